"""Log entries: what was done."""
