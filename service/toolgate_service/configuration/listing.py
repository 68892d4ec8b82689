"""Every setting: its value, and where that comes from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote

from pydantic import SecretStr

from toolgate_service.configuration.masking import is_secret, password_in, shown
from toolgate_service.settings import Settings
from toolgate_service.settings_folder import texts_in

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
    source: Literal["default", "file", "environment", "option"]


@dataclass(frozen=True, slots=True)
class Given:
    """What is set, as it was written, by the names of `Settings`.

    Attributes:
        options: by options of the command line.
        environment: by variables.
        files: by files of the folder that one of the others names.
    """

    options: Mapping[str, str]
    environment: Mapping[str, str]
    files: Mapping[str, str]

    @classmethod
    def by(cls, options: Mapping[str, str], variables: Mapping[str, str]) -> "Given":
        """Find out what is set.

        Raises:
            StartError: the folder of files cannot be read.
        """
        environment = given_in(variables)
        folder = environment.get("secrets_dir")
        return cls(options, environment, texts_in(folder, Settings.model_fields) if folder else {})

    def secrets(self) -> Sequence[str]:
        """Return every text that must not be seen, the longest first."""
        found: set[str] = set()
        for name, text in (*self.environment.items(), *self.files.items()):
            password = password_in(text)
            found |= {text} if is_secret(name) else set()
            found |= {password, unquote(password)} if password else set()
        return sorted((text for text in found if len(text) >= _SHORTEST), key=len, reverse=True)


def listed(given: Given) -> Sequence[Listed]:
    """Return all settings, in the order in which they are documented."""
    return [_listed(name, given) for name in Settings.model_fields]


def given_in(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return the settings that the environment names, as the gateway reads it: in any case, and none that is empty."""
    by_name = {name.upper(): value for name, value in environment.items() if value}
    texts = {name: by_name.get(variable_of(name)) for name in Settings.model_fields}
    return {name: text for name, text in texts.items() if text is not None}


def variable_of(name: str) -> str:
    """Return a setting's name in the environment."""
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
