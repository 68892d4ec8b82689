"""The gateway, except that no check leaves a record in the decision log: `python -m load.unrecorded serve …`."""

from __future__ import annotations

from toolgate_cli import main
from toolgate_service.decisions.recorder import DecisionRecord, DecisionRecorder


def _drop(_self: DecisionRecorder, _record: DecisionRecord) -> None:
    pass


def disable() -> None:
    """Let every recorder of this process ignore its records, however it is made."""
    setattr(DecisionRecorder, "record", _drop)  # noqa: B010 - mypy lets no method be assigned


if __name__ == "__main__":
    disable()
    main()
