"""Scratch organizations: temporary organizations in which the operator tests the running gateway."""
