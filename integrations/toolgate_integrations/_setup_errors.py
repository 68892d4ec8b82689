"""Errors that only the operator can repair, in frameworks that turn every error of a tool into text for the model."""

from __future__ import annotations

from typing import Final

from toolgate import ConfigurationError, GatewayProtocolError

__all__ = ["SETUP_ERRORS", "setup_error_in"]

#: they end the run, and the model never reads them
SETUP_ERRORS: Final = (ConfigurationError, GatewayProtocolError)


def setup_error_in(error: BaseException | None) -> ConfigurationError | GatewayProtocolError | None:
    """Return the setup error that an exception is, or that a framework has wrapped in it; None if there is none."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, SETUP_ERRORS):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
