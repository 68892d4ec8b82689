"""The operator's plan file: what it may override, and how it is refused (decisions §7)."""

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from toolgate_service.core.plans import BUILT_IN, FEATURES, PLAN_NAMES, PlanFileError, read_plans

TOML = """
[pro]
price = 49.90
requests_per_minute = 2000
max_logs_per_month = -1
log_retention_days = 60
max_agents = 20
max_team_members = 7
features = ["webhooks"]
description = "Ours"
provider_price_ids = ["price_1", "price_2"]
ip_allow_list = true

[free]
max_agents = 0
"""

JSON = """
{"pro": {"price": 49.90, "requests_per_minute": 2000, "max_logs_per_month": -1, "log_retention_days": 60,
         "max_agents": 20, "max_team_members": 7, "features": ["webhooks"], "description": "Ours",
         "provider_price_ids": ["price_1", "price_2"], "ip_allow_list": true},
 "free": {"max_agents": 0}}
"""


def written(folder: Path, text: str, name: str = "plans.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


@pytest.mark.parametrize(("name", "text"), [("plans.toml", TOML), ("plans.json", JSON)])
def test_a_file_overrides_what_it_names_and_nothing_else(tmp_path: Path, name: str, text: str) -> None:
    """Every field may be set, in TOML as in JSON; what is not named stays built in, in the same order."""
    plans = read_plans(written(tmp_path, text, name))
    assert tuple(plans) == PLAN_NAMES
    assert plans["pro"] == replace(
        BUILT_IN["pro"],
        price=Decimal("49.90"),
        requests_per_minute=2000,
        max_logs_per_month=-1,
        log_retention_days=60,
        max_agents=20,
        max_team_members=7,
        features=("webhooks",),
        description="Ours",
        provider_price_ids=("price_1", "price_2"),
        ip_allow_list=True,
    )
    assert plans["free"] == replace(BUILT_IN["free"], max_agents=0)
    assert [plans[name] for name in PLAN_NAMES[2:]] == [BUILT_IN[name] for name in PLAN_NAMES[2:]]


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    """A file that overrides nothing leaves the built-in plans."""
    assert dict(read_plans(written(tmp_path, ""))) == dict(BUILT_IN)


def test_the_table_cannot_be_changed_by_whoever_reads_it(tmp_path: Path) -> None:
    """Neither the built-in table nor a file's is a mutable global."""
    for plans in (BUILT_IN, read_plans(written(tmp_path, TOML))):
        with pytest.raises(TypeError):
            plans["gold"] = plans["free"]  # type: ignore[index]  # what must not work


REFUSED = {
    "another plan": ("[gold]\nprice = 1", ["'gold'", "free, pro, business, enterprise"]),
    "no table": ("pro = 5", ["'pro'", "5", "table"]),
    "another field": ("[pro]\nprize = 1", ["'pro'", "'prize'", "max_agents"]),
    "a name": ("[pro]\nname = 'best'", ["'name'"]),
    "negative price": ("[pro]\nprice = -1", ["'price'", "'pro'", "-1", "from 0"]),
    "price in words": ("[pro]\nprice = 'much'", ["'price'", "'much'"]),
    "price nan": ("[pro]\nprice = nan", ["'price'"]),
    "price inf": ("[pro]\nprice = inf", ["'price'"]),
    "price true": ("[pro]\nprice = true", ["'price'", "True"]),
    "no rate": ("[pro]\nrequests_per_minute = 0", ["'requests_per_minute'", "from 1"]),
    "unlimited rate": ("[pro]\nrequests_per_minute = -1", ["'requests_per_minute'", "-1"]),
    "half a log": ("[pro]\nmax_logs_per_month = 0.5", ["'max_logs_per_month'", "0.5", "whole number"]),
    "below unlimited": ("[pro]\nmax_agents = -2", ["'max_agents'", "-2", "-1 for unlimited"]),
    "agents true": ("[pro]\nmax_agents = true", ["'max_agents'", "True"]),
    "no retention": ("[pro]\nlog_retention_days = 0", ["'log_retention_days'", "from 1"]),
    "no member": ("[pro]\nmax_team_members = 0", ["'max_team_members'", "from 1"]),
    "another feature": ("[pro]\nfeatures = ['teleport']", ["'features'", "'teleport'", ", ".join(FEATURES)]),
    "one feature": ("[pro]\nfeatures = 'webhooks'", ["'features'", "list"]),
    "two lines": ("[pro]\ndescription = 'a\\nb'\nprice = [1]", ["'price'", "[1]"]),
    "long text": (f"[pro]\ndescription = '{'x' * 1001}'", ["'description'", "1000"]),
    "empty price id": ("[pro]\nprovider_price_ids = ['']", ["'provider_price_ids'", "['']"]),
    "a price twice": (
        "[pro]\nprovider_price_ids = ['price_x']\n[business]\nprovider_price_ids = ['price_x']",
        ["'price_x'", "'pro'", "'business'"],
    ),
    "no toml": ("[pro", ["plans.toml"]),
}


@pytest.mark.parametrize(("text", "words"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_file_is_refused_by_name(tmp_path: Path, text: str, words: list[str]) -> None:
    """The message names the file, the plan, the field and the value, and what to write instead."""
    path = written(tmp_path, text)
    with pytest.raises(PlanFileError) as refusal:
        read_plans(path)
    (line,) = str(refusal.value).splitlines()
    for word in (str(path), *words):
        assert word in line


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("plans.yaml", "", ["plans.yaml", ".toml or .json"]),
        ("plans.json", "[]", ["plans.json", "table or object"]),
        ("plans.json", '{"pro": {}, "pro": {}}', ["plans.json", "'pro'"]),
        ("plans.json", "{", ["plans.json", "JSON"]),
    ],
    ids=["yaml", "array", "duplicate", "broken"],
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, name: str, text: str, words: list[str]) -> None:
    """Only one table or object of TOML or strict JSON is a plan file."""
    with pytest.raises(PlanFileError) as refusal:
        read_plans(written(tmp_path, text, name))
    for word in words:
        assert word in str(refusal.value)


def test_a_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    """Bytes that are no text are an error of the file, not a crash."""
    path = tmp_path / "plans.toml"
    path.write_bytes(b"[pro]\ndescription = '\xff'")
    with pytest.raises(PlanFileError, match=r"plans\.toml"):
        read_plans(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A file that cannot be read is named with the reason and the way around."""
    with pytest.raises(PlanFileError, match=r"none\.toml.*No such file.*TOOLGATE_PLANS_FILE"):
        read_plans(tmp_path / "none.toml")
