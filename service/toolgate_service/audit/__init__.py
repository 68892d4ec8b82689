"""Audit log of management changes."""
