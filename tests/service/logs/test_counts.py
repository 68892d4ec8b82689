"""What a batch adds to the counts: each entry once under each subject, each row once."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st
from support.entries import new_entry

from toolgate_service.logs.counts import count_rows, minute_of
from toolgate_service.logs.models import ACTION, AGENT, ALL, HOUR, MINUTE, STATUSES
from toolgate_service.logs.schemas import Stored
from toolgate_service.transparency.leaves import new_salts

MIDNIGHT = datetime(2026, 12, 1, tzinfo=UTC)


def stored(moment: datetime) -> Stored:
    return Stored("id", moment, new_salts())


def test_an_entry_is_counted_by_its_minute_and_its_hour() -> None:
    """A failed call at one minute to midnight is one of that minute's, and of its agent's and its action's last hour."""
    moment = MIDNIGHT - timedelta(seconds=1)
    last = minute_of(MIDNIGHT) - 1
    of = ("acme", "production")
    assert count_rows([(new_entry(status="failed"), stored(moment))]) == [
        (*of, ACTION, HOUR, last - 59, "mail.send", 0, 1, 0, 0),
        (*of, AGENT, HOUR, last - 59, "bot", 0, 1, 0, 0),
        (*of, ALL, MINUTE, last, "", 0, 1, 0, 0),
    ]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["acme", "rival"]),
            st.sampled_from(["production", "test"]),
            st.sampled_from(["a", "b", "c"]),
            st.sampled_from(["x", "y"]),
            st.sampled_from(STATUSES),
            st.integers(-90, 90),
        ),
        max_size=40,
    )
)
def test_every_entry_is_counted_once_under_each_subject(
    sent: list[tuple[str, str, str, str, str, int]],
) -> None:
    """Whatever comes together, the rows add up to the entries, no key comes twice, and the keys are in order."""
    entries = [
        (
            new_entry(organization_id=of, environment=world, agent_id=agent, action=action, status=status),
            stored(MIDNIGHT + timedelta(minutes=minutes)),
        )
        for of, world, agent, action, status, minutes in sent
    ]
    rows = count_rows(entries)
    keys = [row[:6] for row in rows]
    assert keys == sorted(set(keys))
    for subject, named in ((ALL, None), (AGENT, 2), (ACTION, 3)):
        expected = Counter(
            (one[0], one[1], "" if named is None else one[named], STATUSES.index(one[4]))
            for one in sent
            if one[4] != "pending"
        )
        counted: Counter[tuple[str, str, str, int]] = Counter()
        # The columns are in the order of: success, failed, denied, pending.
        for row in rows:
            if row[2] == subject:
                for place, status in zip(row[6:], (0, 1, 3, 2), strict=True):
                    counted[row[0], row[1], row[5], status] += place
        assert +counted == expected
