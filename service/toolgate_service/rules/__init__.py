"""Rules, which forbid, require approval for, or allow tool calls by action and by conditions on their arguments."""
