"""List of all settings with their values and sources; secrets and passwords in URLs are hidden."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import unquote

from pydantic import SecretStr

from toolgate_service.core.settings import Settings, read_settings_folder
from toolgate_service.core.text_safety import HIDDEN, masked_url, password_in


def shown(name: str, text: str) -> str:
    """Return the value of a setting for display, with secrets and passwords hidden.

    `name` is the name of the field in `Settings`.
    """
    if name.endswith("_url"):
        return masked_url(text)
    if is_secret(name):
        return HIDDEN
    return masked_url(text) if "://" in text else text


def is_secret(name: str) -> bool:
    """Return whether the value of a setting is a secret; `name` is the name of the field in `Settings`."""
    return _holds_secret(Settings.model_fields[name].annotation)


def _holds_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(_holds_secret(part) for part in get_args(annotation))


PREFIX = "TOOLGATE_"
#: minimum length of a secret that is searched for in messages; shorter secrets may be parts of ordinary words
_SHORTEST = 4


@dataclass(frozen=True, slots=True)
class Listed:
    """Setting with its value and source, for display.

    Attributes:
        variable: Name of the setting's environment variable.
        value: Value with secrets hidden; None if the setting has no value.
        source: Source of the value.
    """

    variable: str
    value: str | None
    source: Literal["default", "file", "environment", "option"]


@dataclass(frozen=True, slots=True)
class Given:
    """Unvalidated texts of all settings that are set, by source. The keys are field names of `Settings`.

    Attributes:
        options: Settings from command line options.
        environment: Settings from environment variables.
        files: Settings from files in the folder ``TOOLGATE_SECRETS_DIR``.
    """

    options: Mapping[str, str]
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @classmethod
    def by(cls, options: Mapping[str, str], variables: Mapping[str, str]) -> "Given":
        """Collect the settings from command line options, environment variables and files.

        Raises:
            StartError: The folder ``TOOLGATE_SECRETS_DIR`` cannot be read.
        """
        environment = given_in(variables)
        folder = environment.get("secrets_dir")
        return cls(
            options, environment, read_settings_folder(folder, Settings.model_fields) if folder else {}
        )

    def secrets(self) -> Sequence[str]:
        """Return all secrets and passwords in the settings, sorted from the longest to the shortest."""
        found: set[str] = set()
        for name, text in (*self.environment.items(), *self.files.items()):
            password = password_in(text)
            found |= {text} if is_secret(name) else set()
            found |= {password, unquote(password)} if password else set()
        return sorted((text for text in found if len(text) >= _SHORTEST), key=len, reverse=True)


def listed(given: Given) -> Sequence[Listed]:
    """Return all settings for display, in the order of the fields of `Settings`."""
    return [_listed(name, given) for name in Settings.model_fields]


def given_in(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings that are set by environment variables, by field name.

    As in the gateway, names are case-insensitive and empty values are ignored.
    """
    by_name = {name.upper(): value for name, value in environment.items() if value}
    texts = {name: by_name.get(variable_of(name)) for name in Settings.model_fields}
    return {name: text for name, text in texts.items() if text is not None}


def variable_of(name: str) -> str:
    """Return the name of the environment variable for a field of `Settings`."""
    return f"{PREFIX}{name.upper()}"


def _listed(name: str, given: Given) -> Listed:
    if name in given.options:
        return Listed(variable_of(name), shown(name, given.options[name]), "option")
    if name in given.environment:
        return Listed(variable_of(name), shown(name, given.environment[name]), "environment")
    if name in given.files:
        return Listed(variable_of(name), shown(name, given.files[name]), "file")
    return Listed(variable_of(name), _written(_default(name)), "default")


def _default(name: str) -> Any:
    return Settings.model_fields[name].get_default(call_default_factory=True)


def _written(value: Any) -> str | None:
    if value is None or isinstance(value, SecretStr) or value == ():
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
