"""demo (placeholder while building)."""


def demo() -> None:
    """Demo."""
