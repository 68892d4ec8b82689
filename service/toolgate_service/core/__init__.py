"""Shared utilities of the gateway: errors, ids, clock, JSON, cryptography, settings and logging."""
