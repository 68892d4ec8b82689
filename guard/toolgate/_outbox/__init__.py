"""Recording: log entries on their way to the gateway, kept while it cannot take them."""
