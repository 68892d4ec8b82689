"""The wire: requests, answers, retries, and the one module that knows the HTTP library."""
