"""Plugins that put Toolgate between an agent framework and its tools.

They translate only: what may happen is decided by the gateway, and asked for by `toolgate`.
"""
