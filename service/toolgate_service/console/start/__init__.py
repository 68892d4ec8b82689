"""The first run: from an empty organization to the first guarded call."""
