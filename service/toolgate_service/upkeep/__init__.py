"""Upkeep: what the gateway does in the background, so that what has run out goes."""
