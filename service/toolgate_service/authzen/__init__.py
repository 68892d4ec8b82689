"""OpenID AuthZEN Authorization API 1.0: access evaluation, evaluations, searches and metadata."""
