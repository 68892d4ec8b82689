"""What the tests of serving share."""

from support.homes import home, interruptible, kept

__all__ = ["home", "interruptible", "kept"]
