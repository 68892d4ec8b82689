"""Every setting: its value, and where that comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from pydantic import SecretStr

from toolgate_service.configuration.masking import is_secret, password_in, shown
from toolgate_service.settings import Settings

PREFIX = "TOOLGATE_"
#: texts too short to be searched for in what is shown: they would stand in every other word
_SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """A setting.

    Attributes:
        variable: its name in the environment.
        value: its value, without what must not be seen; None where there is none.
        source: where the value comes from.
    """

    variable: str
    value: str | None
    source: Literal["default", "environment", "option"]


def listed(overrides: Mapping[str, str], environment: Mapping[str, str]) -> Sequence[Listed]:
    """Return all settings, in the order in which they are documented.

    Args:
        overrides: those that options of the command line name.
        environment: all variables.
    """
    given = given_in(environment)
    return [_listed(name, overrides.get(name), given.get(name)) for name in Settings.model_fields]


def given_in(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings that the environment names, as the gateway reads it: in any case, and none that is empty."""
    by_name = {name.upper(): value for name, value in environment.items() if value}
    texts = {name: by_name.get(variable_of(name)) for name in Settings.model_fields}
    return {name: text for name, text in texts.items() if text is not None}


def variable_of(name: str) -> str:
    """Return a setting's name in the environment."""
    return f"{PREFIX}{name.upper()}"


def secrets_of(environment: Mapping[str, str]) -> Sequence[str]:
    """Return every text of the environment that must not be seen, the longest first."""
    given = given_in(environment)
    found = {text for name, text in given.items() if is_secret(name)}
    passwords = {password for text in given.values() if (password := password_in(text))}
    found |= passwords | {unquote(password) for password in passwords}
    return sorted((text for text in found if len(text) >= _SHORTEST), key=len, reverse=True)


def _listed(name: str, option: str | None, variable: str | None) -> Listed:
    if option is not None:
        return Listed(variable_of(name), shown(name, option), "option")
    if variable is not None:
        return Listed(variable_of(name), shown(name, variable), "environment")
    return Listed(variable_of(name), _written(_default(name)), "default")


def _default(name: str) -> Any:
    return Settings.model_fields[name].get_default(call_default_factory=True)


def _written(value: Any) -> str | None:
    if value is None or isinstance(value, SecretStr) or value == ():
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
