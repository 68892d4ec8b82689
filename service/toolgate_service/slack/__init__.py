"""Slack integration: messages about events, and decisions about approval requests by linked members."""
