"""Webhooks: signed HTTP requests that report events to other programs."""
