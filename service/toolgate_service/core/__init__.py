"""Shared utilities without permission rules: errors, ids, clock, JSON, cryptography, settings and logging."""
