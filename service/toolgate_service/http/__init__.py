"""Helpers of all HTTP routes: authentication, strict request bodies, pagination, responses and documented errors."""
