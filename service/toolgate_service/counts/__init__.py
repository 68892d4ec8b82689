"""How many log entries there were, when, of which agent, for which action, with which outcome: kept beside the log."""
