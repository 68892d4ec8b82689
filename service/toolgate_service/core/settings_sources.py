"""Sources of settings beside arguments and environment variables: the folder of secrets, and former names."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from toolgate_service.core.errors import StartError

logger = logging.getLogger("toolgate.gateway")

PREFIX: Final = "TOOLGATE_"

#: present names of renamed settings by their former names, which are accepted until version 0.2
RENAMED: Final[Mapping[str, str]] = MappingProxyType(
    {
        "approved_ttl_seconds": "approval_use_ttl_seconds",
        "denial_memory_seconds": "denial_cache_seconds",
        "provider_webhook_secret": "stripe_webhook_secret",
        "upkeep_seconds": "maintenance_interval_seconds",
    }
)

#: Renamed settings that affect decisions, or verify events of the payment provider. If both names have different
#: values, the gateway does not start, because either value could be the outdated one.
STRICT: Final = frozenset({"approval_use_ttl_seconds", "denial_cache_seconds", "stripe_webhook_secret"})


def variable_of(name: str) -> str:
    """Return the environment variable for a field of `Settings`: ``TOOLGATE_DATABASE_URL`` for ``database_url``."""
    return f"{PREFIX}{name.upper()}"


class SettingsFolder(PydanticBaseSettingsSource):
    """Source of settings that reads files from the folder ``TOOLGATE_SECRETS_DIR``.

    Each file is named like an environment variable, for example ``TOOLGATE_SECRET``, and contains its value. White
    space around the value is ignored, and an empty file is an error. Docker, Kubernetes and systemd provide secrets in
    this form. Unlike environment variables, files are not inherited by child processes and not shown by ``docker
    inspect``.
    """

    def __call__(self) -> dict[str, Any]:
        """Return the values in the files of the folder, by field name of `Settings`.

        Raises:
            StartError: The folder, or the file of a setting, cannot be read.
        """
        named = self.current_state.get("secrets_dir")
        return read_settings_folder(str(named), self.settings_cls.model_fields) if named else {}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return no value. Pydantic requires this method, but `__call__` reads all fields at once."""
        del field
        return None, field_name, False


def read_settings_folder(named: str, settings: Iterable[str]) -> dict[str, str]:
    """Read the settings from a folder with one file per setting, and return the values by field name.

    `named` is the path of the folder. `settings` contains the field names of all settings. The result contains only
    settings that have a file.

    Raises:
        StartError: The folder, or the file of a setting, cannot be read.
    """
    folder = Path(named).expanduser()
    try:
        files = {path.name: path for path in folder.iterdir()}
    except OSError as error:
        raise StartError(
            f"TOOLGATE_SECRETS_DIR: cannot read {str(folder)!r}: {error.strerror}; "
            "name a folder that contains one file per setting"
        ) from None
    fields = {variable_of(name): name for name in settings}
    return {fields[name]: _text(path) for name, path in files.items() if name in fields}


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        # The error message must not contain the content of the file, because it may be a secret.
        reason = (error.strerror if isinstance(error, OSError) else None) or "its content is not UTF-8 text"
        raise StartError(
            f"{path.name}: cannot read {str(path)!r}: {reason}; write a UTF-8 text file that the gateway is permitted to read"
        ) from None
    if not text:
        raise StartError(
            f"{path.name}: the file {str(path)!r} is empty; write the value of the setting into it, or remove the file"
        )
    return text


class RenamedSetting(NamedTuple):
    """Setting that is set under its former name.

    Attributes:
        former: Former name of the setting, as a field of `Settings`.
        name: Present name of the setting.
        value: Value under the former name.
        source: Source of the value.
        is_superseded: True if the present name is set too, so that the value under the former name is ignored.
    """

    former: str
    name: str
    value: str
    source: Literal["file", "environment"]
    is_superseded: bool

    def __str__(self) -> str:
        former, name = variable_of(self.former), variable_of(self.name)
        if self.is_superseded:
            return f"{former} is deprecated and ignored, because {name} is set; remove {former}"
        return f"{former} is deprecated and accepted until version 0.2; set {name} instead"


def find_renamed(environment: Mapping[str, str], folder: str | None) -> Iterator[RenamedSetting]:
    """Yield the settings that are set under a former name, in the environment or in a folder of secrets.

    Names of variables are case-insensitive, and empty variables are ignored, as for present names.

    Raises:
        StartError: The folder, or the file of a setting, cannot be read.
    """
    variables = {name.upper(): value for name, value in environment.items() if value}
    files = read_settings_folder(folder, (*RENAMED, *RENAMED.values())) if folder else {}
    for former, name in RENAMED.items():
        is_superseded = variable_of(name) in variables or name in files
        if value := variables.get(variable_of(former)):
            yield RenamedSetting(former, name, value, "environment", is_superseded)
        elif former in files:
            yield RenamedSetting(former, name, files[former], "file", is_superseded)


class RenamedSettings(PydanticBaseSettingsSource):
    """Source of settings that are set under a former name. It has the lowest precedence of all sources."""

    def __call__(self) -> dict[str, Any]:
        """Return the values of the settings that are set under a former name, by their present name.

        Raises:
            StartError: Both names of a setting in `STRICT` are set, to different values.
        """
        folder = self.current_state.get("secrets_dir")
        found = list(find_renamed(os.environ, str(folder) if folder else None))
        for one in found:
            given = self.current_state.get(one.name)
            if one.name in STRICT and isinstance(given, str) and given.strip() != one.value.strip():
                former, name = variable_of(one.former), variable_of(one.name)
                raise StartError(
                    f"{name}: differs from {former}, the former name of the same setting; remove {former}"
                )
        return {one.name: one.value for one in found}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return no value. Pydantic requires this method, but `__call__` reads all fields at once."""
        del field
        return None, field_name, False


def log_renamed_settings(folder: Path | None) -> None:
    """Log a warning for each setting that is set under a former name. `folder` is the folder of secrets."""
    for one in find_renamed(os.environ, str(folder) if folder else None):
        logger.warning("%s", one)
