"""Activity log: records of tool calls. This package stores, queries, counts, exports and deletes log entries."""
