"""Activity log: records of tool calls. The package stores, queries, counts, exports and removes log entries."""
