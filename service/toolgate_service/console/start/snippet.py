"""The lines that make a first guarded call, to be pasted into a terminal. No I/O."""

import keyword
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from urllib.parse import urlsplit

from toolgate_service.exact_json import plain_number
from toolgate_service.web.hosts import is_loopback

_FIRST_AMOUNT = Decimal(5)
#: ends the program within the lines; no action can, as none has a line break
_END = "END"


@dataclass(frozen=True, slots=True)
class Snippet:
    """Where to call, as whom, and what.

    Attributes:
        url: the gateway's.
        api_key: whole or masked.
        agent_id: the agent.
        action: what is guarded.
        max_amount: the largest amount; None where there is none.
        held: whether a person approves, so that the call waits.
    """

    url: str
    api_key: str
    agent_id: str
    action: str
    max_amount: Decimal | None
    held: bool

    @property
    def is_readable(self) -> bool:
        """Whether the SDK refuses to call this address unless told otherwise: plain http to another machine."""
        parts = urlsplit(self.url)
        return parts.scheme != "https" and not is_loopback(parts.hostname or "")

    @property
    def text(self) -> str:
        """The lines."""
        given = {
            "TOOLGATE_URL": self.url,
            "TOOLGATE_API_KEY": self.api_key,
            "TOOLGATE_AGENT_ID": self.agent_id,
        }
        exports = [f"export {name}={shlex.quote(value)}" for name, value in given.items()]
        return "\n".join([*exports, "", f"python - <<'{_END}'", *self._program, _END])

    @property
    def _program(self) -> Sequence[str]:
        name = function_name(self.action)
        takes, given = "order: str", '"first"'
        if self.max_amount is not None:
            amount = plain_number(min(self.max_amount, _FIRST_AMOUNT))
            takes, given = f"{takes}, amount: float", f"{given}, amount={amount}"
        held = ', on_hold="wait"' if self.held else ""
        return (
            "from toolgate import flush, guarded",
            "",
            f"@guarded({self.action!r}{held})",
            f"def {name}({takes}):",
            '    return f"done: {order}"',
            "",
            f"print({name}({given}))",
            "flush()",
        )


def function_name(action: str) -> str:
    """Return a name for a function that does an action: what stands last in it, as Python may call it."""
    name = re.sub(r"\W+", "_", action.rpartition(".")[2], flags=re.ASCII).strip("_").lower()
    return name if name.isidentifier() and not keyword.iskeyword(name) and name not in _TAKEN else "call"


_TAKEN = frozenset({"flush", "guarded", "print"})
