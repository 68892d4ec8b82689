"""Webhooks: signed HTTP requests with which the gateway reports events to other programs."""
