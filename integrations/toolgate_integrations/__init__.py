"""Plugins that check and log the tool calls of agent frameworks.

A plugin translates between one framework and the `toolgate` SDK. The SDK sends the checks, and the gateway decides.
"""
