"""Webhooks: telling other programs what happened (decisions §10)."""
