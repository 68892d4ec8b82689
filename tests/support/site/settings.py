"""The reference page of the gateway's settings, from the class that reads them."""

import json
import re
from inspect import cleandoc
from typing import Any

from pydantic.fields import FieldInfo

from toolgate_service.core.settings import Settings
from toolgate_service.core.settings_sources import RENAMED, STRICT, variable_of

HEAD = """\
# Gateway settings

This page is generated from the class that reads the settings. [Guarding
tools](../guides/guarding.md#where-the-guard-gets-its-settings) lists the settings of the guard, and [Durable log
entries](../guides/recording.md#settings) the settings of the outbox.

The gateway reads each setting from an option of `toolgate serve`, the environment, a file in `TOOLGATE_SECRETS_DIR`, or the
default; the first source wins. `toolgate config show` prints the values and their sources, and `toolgate config check`
checks them before a start. `config check` also reports misspelt names.

| setting | default | meaning |
| --- | --- | --- |
"""

FORMER = """\

## Former names

The gateway accepts these names until version 0.2, and logs a warning for each at start. If both names are set, the gateway uses
the present name. The gateway does not start if the two names have different values for {strict}.

| former name | present name |
| --- | --- |
"""

#: defaults that are computed when the gateway starts
COMPUTED = {"database_url": "`sqlite:///…/toolgate.db` in your data folder"}


def render_settings() -> str:
    """Return the page."""
    described = read_descriptions()
    rows = [
        f"| `{variable_of(name)}` | {_default(name, field)} | {described[name]} |"
        for name, field in Settings.model_fields.items()
    ]
    former = [f"| `{variable_of(old)}` | `{variable_of(new)}` |" for old, new in RENAMED.items()]
    *first, last = (f"`{variable_of(name)}`" for name in sorted(STRICT))
    section = FORMER.format(strict=f"{', '.join(first)} or {last}")
    return HEAD + "\n".join([*rows, ""]) + section + "\n".join([*former, ""])


def read_descriptions() -> dict[str, str]:
    """Return the description of each setting from the docstring of the class."""
    _, _, attributes = cleandoc(Settings.__doc__ or "").partition("Attributes:\n")
    found = re.findall(r"^    (\w+): (.+(?:\n {5,}.+)*)", attributes, re.MULTILINE)
    return {name: _markdown(text) for name, text in found}


def _markdown(text: str) -> str:
    text = re.sub(r"(?<!`)`([a-z_]+)`(?!`)", lambda found: f"`TOOLGATE_{found[1].upper()}`", text)
    return re.sub(r"``(.+?)``", r"`\1`", " ".join(text.split())).replace("|", r"\|")


def _default(name: str, field: FieldInfo) -> str:
    if name in COMPUTED:
        return COMPUTED[name]
    value: Any = field.default
    if value is None or value == ():
        return "none"
    return f"`{value}`" if isinstance(value, str) else f"`{json.dumps(value)}`"
