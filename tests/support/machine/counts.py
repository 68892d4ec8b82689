"""What the runs of the machine saw: proof that they were not about nothing."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class Counts:
    """Counters over all runs.

    Attributes:
        runs: how many were begun.
        steps: how many things were done in all of them.
        checks: outcomes of checks, by kind.
        reasons: reasons of checks that were not allowed, by kind.
        explained: checks that were explained before they were put, by the step at which they were decided.
        used: approvals that were used up.
        seen: other things that happened, by name.
    """

    runs: int = 0
    steps: int = 0
    used: int = 0
    checks: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    explained: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)

    def share(self, kind: str) -> float:
        """Return the share of checks that had an outcome."""
        return self.checks[kind] / max(1, self.checks.total())
