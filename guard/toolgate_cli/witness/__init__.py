"""Witness of transparency logs: a separate process that cosigns only consistent checkpoints."""
