"""The approvals inbox: what waits for a person, and deciding about it."""
