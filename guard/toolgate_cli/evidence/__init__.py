"""``toolgate evidence``: an archive for auditors about a period."""
