"""The log in months, on PostgreSQL: which there are, that the next ones are made in time, and that old ones go whole."""
