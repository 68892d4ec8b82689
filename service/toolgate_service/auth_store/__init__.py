"""Fast database reads for the authentication of requests."""
