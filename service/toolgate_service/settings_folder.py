"""Settings from a folder of files, as Docker, Kubernetes and systemd hand out secrets: a file for a setting.

What is in the environment is inherited by every process and shown by ``docker inspect``; a file is not.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_settings import PydanticBaseSettingsSource

from toolgate_service.errors import StartError


class SettingsFolder(PydanticBaseSettingsSource):
    """The files of ``TOOLGATE_SECRETS_DIR``, each named as its variable: ``TOOLGATE_SECRET``, for instance.

    White space around the text is none of it. An empty file is refused: a secret that did not arrive is not "none set".
    """

    def __call__(self) -> dict[str, Any]:
        """Return what the files say.

        Raises:
            StartError: the folder, or a file in it that names a setting, cannot be read.
        """
        named = self.current_state.get("secrets_dir")
        return texts_in(str(named), self.settings_cls.model_fields) if named else {}

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        """Return nothing: all fields are read together."""
        del field
        return None, field_name, False


def texts_in(named: str, settings: Iterable[str]) -> dict[str, str]:
    """Return the settings that a folder's files name.

    Args:
        named: the folder.
        settings: all settings.

    Raises:
        StartError: the folder, or a file in it that names a setting, cannot be read.
    """
    folder = Path(named).expanduser()
    try:
        files = {path.name: path for path in folder.iterdir()}
    except OSError as error:
        raise StartError(
            f"TOOLGATE_SECRETS_DIR: cannot read {str(folder)!r}: {error.strerror}; "
            "name a folder that holds a file for a setting"
        ) from None
    fields = {f"TOOLGATE_{name.upper()}": name for name in settings}
    return {fields[name]: _text(path) for name, path in files.items() if name in fields}


def _text(path: Path) -> str:
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        # Without the text: it may be a secret.
        why = (error.strerror if isinstance(error, OSError) else None) or "no UTF-8 text"
        raise StartError(f"{path.name}: cannot read {str(path)!r}: {why}; let the gateway read it") from None
    if not text:
        raise StartError(f"{path.name}: {str(path)!r} is empty; write the value into it, or remove it")
    return text
