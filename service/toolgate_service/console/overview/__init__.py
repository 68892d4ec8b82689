"""The overview: what happened lately, at a glance."""
