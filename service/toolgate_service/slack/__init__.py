"""Slack integration: sends messages about events, and lets users decide approval requests by buttons in Slack."""
