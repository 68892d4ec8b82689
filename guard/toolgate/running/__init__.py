"""Running a tool of each kind between its check and its log entry."""
