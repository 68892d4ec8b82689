"""Outbox: stores log entries on this machine until the gateway has acknowledged them."""
