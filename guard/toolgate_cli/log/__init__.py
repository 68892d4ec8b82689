"""``toolgate log``: export and verify the transparency log."""
