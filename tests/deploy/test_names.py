"""What deploys the gateway names settings that exist."""

import json
import re

import pytest
import yaml
from support.readme import ROOT, blocks

from toolgate_service.cli.config import is_secret
from toolgate_service.core.settings import Settings
from toolgate_service.core.settings_sources import RENAMED, variable_of

DEPLOY = ROOT / "service" / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
SETTINGS = {variable_of(name) for name in Settings.model_fields}
FORMER = {variable_of(name) for name in RENAMED}
SCHEMA = DEPLOY / "helm" / "toolgate" / "values.schema.json"


def named(text: str) -> set[str]:
    """Every variable of ours in a text."""
    return set(re.findall(r"\bTOOLGATE_[A-Z][A-Z_]*[A-Z]", text))


def test_every_setting_that_is_named_exists() -> None:
    """Dockerfile, compose, chart, unit and their judges name settings of the gateway, none that was renamed."""
    found = {path.name: named(path.read_text()) for path in FILES}
    # The schema rejects the former name of a secret too, because the gateway still accepts it.
    found[SCHEMA.name] -= FORMER
    assert {name for name, names in found.items() if "TOOLGATE_SECRETS_DIR" in names} >= {
        "compose.yaml",
        "deployment.yaml",
        "toolgate.service",
    }
    assert {name: names - SETTINGS for name, names in found.items() if names - SETTINGS} == {}


def test_the_chart_takes_no_secret_among_its_settings() -> None:
    """Whatever nobody may see comes from the Secret; in the values it would be stored with the release."""
    schema = json.loads(SCHEMA.read_text())
    refused = set(schema["properties"]["settings"]["propertyNames"]["not"]["enum"])
    assert refused >= {variable_of(name) for name in Settings.model_fields if is_secret(name)}
    assert refused >= {variable_of(former) for former, name in RENAMED.items() if is_secret(name)}
    assert refused <= SETTINGS | FORMER


def test_every_deployment_sets_the_default_plan() -> None:
    """Compose, chart, unit and the pages about production set the plan without limits for new organizations."""
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    assert compose["services"]["gateway"]["environment"]["TOOLGATE_DEFAULT_PLAN"] == "enterprise"
    values = yaml.safe_load((DEPLOY / "helm" / "toolgate" / "values.yaml").read_text())
    assert values["settings"]["TOOLGATE_DEFAULT_PLAN"] == "enterprise"
    deployment = (DEPLOY / "helm" / "toolgate" / "templates" / "deployment.yaml").read_text()
    assert "range $name, $value := .Values.settings" in deployment
    lines = (DEPLOY / "systemd" / "toolgate.service").read_text().splitlines()
    plan = lines.index("Environment=TOOLGATE_DEFAULT_PLAN=enterprise")
    # systemd applies the later line, so that the operator's file can set another plan.
    assert plan < lines.index("EnvironmentFile=-/etc/toolgate/gateway.env")
    pages = [
        f"operate/{name}.md" for name in ("deploying", "gateway", "postgresql", "replicas", "systemd")
    ] + ["get-started/production.md"]
    for page in pages:
        assert "TOOLGATE_DEFAULT_PLAN=enterprise" in (ROOT / "docs" / page).read_text(), page


def test_no_deployment_has_open_registration() -> None:
    """Compose, chart and unit allow only invited people to register; the operator can set another value."""
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    registration = compose["services"]["gateway"]["environment"]["TOOLGATE_REGISTRATION"]
    assert registration == "${TOOLGATE_REGISTRATION:-invite}"
    values = yaml.safe_load((DEPLOY / "helm" / "toolgate" / "values.yaml").read_text())
    assert values["settings"]["TOOLGATE_REGISTRATION"] == "invite"
    lines = (DEPLOY / "systemd" / "toolgate.service").read_text().splitlines()
    # systemd applies the later line.
    assert lines.index("Environment=TOOLGATE_REGISTRATION=invite") < lines.index(
        "EnvironmentFile=-/etc/toolgate/gateway.env"
    )


def test_page_about_systemd_shows_the_drop_in() -> None:
    drop_in = (DEPLOY / "systemd" / "toolgate.service.d" / "postgresql.conf").read_text()
    assert drop_in in blocks("docs/operate/systemd.md", "ini")


def test_the_page_names_settings_that_exist() -> None:
    """So do the pages about deploying."""
    pages = ("deploying", "systemd", "load-balancer")
    names = named("".join((ROOT / "docs" / "operate" / f"{page}.md").read_text() for page in pages))
    assert "TOOLGATE_SECRET" in names
    assert names - SETTINGS == set()


def test_the_page_names_files_and_commands_that_exist() -> None:
    """Paths below the repository and targets of its Makefile are there."""
    pages = ("deploying.md", "load-balancer.md", "supply-chain.md", "systemd.md")
    text = "".join((ROOT / "docs" / "operate" / page).read_text() for page in pages)
    paths = set(re.findall(r"service/deploy/[\w./-]*\w", text))
    assert len(paths) > 5
    assert [path for path in sorted(paths) if not (ROOT / path).exists()] == []
    targets = set(re.findall(r"`make ([a-z-]+)`|\$ make ([a-z-]+)", text))
    makefile = (ROOT / "Makefile").read_text()
    assert [one or other for one, other in targets if f"\n{one or other}:" not in makefile] == []


@pytest.mark.parametrize("word", ["latest", "TODO", "FIXME"])
def test_nothing_is_left_open(word: str) -> None:
    """No image is of whatever version comes, and nothing is to be filled in."""
    assert [path.name for path in FILES if re.search(rf"\b{word}\b", path.read_text())] == []


def test_the_page_tells_what_judged_it() -> None:
    """The versions of the judges in the page are those that are pinned."""
    text = (ROOT / "docs" / "operate" / "supply-chain.md").read_text()
    pinned = (DEPLOY / "lint" / "requirements.in").read_text()
    judges = re.findall(r"^([\w-]+)==([\w.]+)$", pinned, re.MULTILINE)
    assert len(judges) > 5
    assert [judge for judge in judges if f"`{judge[0]}` {judge[1]}" not in text] == []
    locked = (DEPLOY / "lint" / "requirements.txt").read_text()
    assert [judge for judge in judges if f"\n{judge[0]}=={judge[1]} \\" not in f"\n{locked}"] == []
