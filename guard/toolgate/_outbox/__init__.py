"""Outbox: durable local queue that stores log entries until the gateway has acknowledged them."""
