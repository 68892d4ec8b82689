"""Guarantees, grouped by topic: one module for each topic of `toolgate_cli.verify.registry`."""
