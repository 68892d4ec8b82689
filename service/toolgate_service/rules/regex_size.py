"""Estimated cost of a regular expression in RE2, the engine of CEL.

RE2 needs time proportional to the length of the text, but the factor depends on the size of the compiled program, and
on whether the states of the automaton fit in memory. If the states do not fit, a byte costs a hundred times as much.
"""

import re
from dataclasses import dataclass, field

#: maximum estimated number of instructions of one regular expression
MAX_SIZE = 1_000

#: maximum number of choices with which the states of an expression certainly fit in memory. Choices are character
#: classes, wildcards such as `.`, repetitions, and alternations inside groups.
_FEW = 10
#: number of instructions of an atom that matches all characters except a few, because UTF-8 needs several byte ranges
_ANY = 10
#: factor by which the flag `(?i)` multiplies the estimated number of instructions, because `k` and `s` then also match
#: characters outside ASCII
_FOLD = 3

_TOKEN = re.compile(
    r"""
    (?P<group>\( (?: \? (?: P?<\w+> | (?P<flags>[imsU-]*) (?P<end>[:)]) ) )? )
    | (?P<close>\))
    | (?P<alternative>\|)
    | (?P<count>\{ (?P<least>\d+) (?P<comma>,(?P<most>\d*))? \} \??)
    | (?P<repeat>[*+?] \??)
    | (?P<class>\[ (?P<negated>\^?) \]? (?: \[:\^?\w+:\] | \\. | [^\]\\] )* \])
    | [\^$] | \\[AzbB]
    | (?P<wide>\. | \\[dDwWsS])
    | \\x\{[0-9a-fA-F]+\} | \\x[0-9a-fA-F]{2} | \\[0-7]{1,3} | \\[^pPQCxdDwWsSAzbB]
    | [^\\()\[\]|*+?.^$]
    | \]
    """,
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class RegexSize:
    """Estimated size of a regular expression: an upper bound of its instructions."""

    instructions: int
    #: True if the states of the automaton certainly fit in memory
    is_small: bool


@dataclass(slots=True)
class _Sequence:
    """Number of instructions of a group so far, and of the group's last atom, which a repetition can multiply."""

    total: int = 0
    last: int = 0
    is_group: bool = False

    def add(self, instructions: int, *, is_group: bool = False) -> None:
        """Count an atom with this number of instructions."""
        self.total += instructions
        self.last = instructions
        self.is_group = is_group

    def repeat(self, times: int) -> None:
        """Count the instructions of a repetition such as `{3}` after the last atom."""
        self.total += self.last * max(times - 1, 0) + times
        self.last = self.last * max(times, 1) + times


@dataclass(slots=True)
class _Pattern:
    groups: list[_Sequence] = field(default_factory=lambda: [_Sequence()])
    wildcards: int = 0
    fold: int = 1
    is_small: bool = True

    @property
    def instructions(self) -> int:
        return sum(group.total for group in self.groups) * self.fold

    def add(self, token: re.Match[str]) -> None:
        """Count a token that is not a parenthesis."""
        current = self.groups[-1]
        if token["alternative"]:
            current.add(1)
            # Count an alternation inside a group, such as `(a|b)`, as a wildcard, because it offers a choice like a
            # character class.
            self.wildcards += len(self.groups) > 1
        elif token["count"]:
            times = max(int(token["least"]), int(token["most"] or 0))
            current.repeat(times + 1 if token["comma"] and not token["most"] else times)
            self.is_small = False
        elif token["repeat"]:
            current.total += 1
            self.wildcards += 1
            self.is_small = self.is_small and not current.is_group
        else:
            self.wildcards += bool(token["class"] or token["wide"])
            current.add(_atom(token))

    def open_group(self, token: re.Match[str]) -> None:
        """Begin a group, or set flags."""
        if "i" in (token["flags"] or ""):
            self.fold = _FOLD
        if token["end"] != ")":
            self.groups.append(_Sequence())

    def close_group(self) -> bool:
        """End the innermost group. Return False if no group was open."""
        closed = self.groups.pop()
        if self.groups:
            self.groups[-1].add(closed.total + 2, is_group=True)
        return bool(self.groups)


def estimate_size(pattern: str) -> RegexSize | None:
    r"""Return the estimated size of a valid regular expression, or None for syntax that is not supported.

    The estimate ends when the number of instructions exceeds `MAX_SIZE`.

    Unicode classes such as `\pL` are not supported, because each consists of hundreds of ranges. `\Q` and `\C` are not
    supported either.
    """
    parsed = _Pattern()
    position = 0
    while position < len(pattern) and parsed.instructions <= MAX_SIZE:
        token = _TOKEN.match(pattern, position)
        if token is None or (token["class"] and re.search(r"\\[pP]", token["class"])):
            return None
        position = token.end()
        if token["group"]:
            parsed.open_group(token)
        elif not token["close"]:
            parsed.add(token)
        elif not parsed.close_group():
            return None
    return RegexSize(parsed.instructions, is_small=parsed.is_small and parsed.wildcards <= _FEW)


def _atom(token: re.Match[str]) -> int:
    text = token[0]
    if token["wide"]:
        return _ANY if text in {".", "\\D", "\\W", "\\S"} else 2
    if token["class"]:
        beyond = sum(not character.isascii() for character in text) + text.count("\\x") + text.count("\\")
        inverted = token["negated"] or "[:^" in text
        return 2 + _ANY * (beyond + bool(inverted))
    return len(text.encode()) if not text.startswith("\\") else 4
