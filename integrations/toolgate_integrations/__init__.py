"""Plugins that guard the tool calls of agent frameworks.

A plugin only translates between a framework and the `toolgate` SDK: the SDK sends the checks, and the gateway decides.
"""
