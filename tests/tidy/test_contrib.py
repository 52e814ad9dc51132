"""House rules on `contrib`: its commands, settings and ports exist, and all processes run confined."""

import re
from collections.abc import Iterator

import pytest

from fatura.cli.options import DEFAULT_PORT
from fatura.variables import VARIABLES
from tests.tidy.contrib_files import (
    arguments,
    commands_of_contrib,
    commands_of_docs,
    containers,
    contrib,
    documents,
    fault_of,
    mappings,
)
from tests.tidy.sources import ROOT, Finding, Source, none

API_METRICS_PORT, WORKER_PORT = 8200, 8101
_PORT = re.compile(r"(?<![\d.\"-])8[012]\d\d\b(?! days)")
_VARIABLE = re.compile(r"\bFATURA_[A-Z][A-Z_]*[A-Z]\b")
CONFINED = (
    *("CapabilityBoundingSet=", "MemoryDenyWriteExecute=yes", "NoNewPrivileges=yes", "PrivateDevices=yes"),
    *("PrivateTmp=yes", "ProtectHome=yes", "ProtectKernelModules=yes", "ProtectKernelTunables=yes"),
    *(
        "ProtectSystem=strict",
        "RestrictNamespaces=yes",
        "RestrictSUIDSGID=yes",
        "SystemCallFilter=@system-service",
    ),
    *("SystemCallFilter=~@privileged", "User=fatura"),
)
POD = {
    "runAsNonRoot": True,
    "runAsUser": 10001,
    "runAsGroup": 10001,
    "fsGroup": 10001,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def text_of(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def unknown_variables(source: Source) -> Iterator[Finding]:
    """Refuse settings that Fatura does not read."""
    known = {each.name for each in VARIABLES}
    for number, line in enumerate(source.lines, 1):
        for name in set(_VARIABLE.findall(line)) - known:
            yield Finding(source.path, number, f"{name} is no setting of Fatura")


def other_ports(source: Source) -> Iterator[Finding]:
    """Refuse ports that no process of `contrib` listens on."""
    for number, line in enumerate(source.lines, 1):
        for port in map(int, _PORT.findall(line)):
            if port != DEFAULT_PORT and port // 10 not in {API_METRICS_PORT // 10, WORKER_PORT // 10}:
                yield Finding(source.path, number, f"nothing listens on {port}")


def unconfined_pods(source: Source) -> Iterator[Finding]:
    """Refuse pods whose containers run as root, write to their image, or may get more privileges."""
    for pod in (
        each for document in documents(source) for each in mappings(document) if "containers" in each
    ):
        if pod.get("securityContext") != POD or pod.get("automountServiceAccountToken") is not False:
            yield Finding(source.path, 1, f"the pod's securityContext is not {POD}")
        for container in pod["containers"]:
            if container.get("securityContext") != CONTAINER:
                yield Finding(source.path, 1, f"{container['name']}: securityContext is not {CONTAINER}")


def wrong_pod_ports(source: Source) -> Iterator[Finding]:
    """Refuse a container port that is not its command's port, and probes of a port that the container lacks."""
    for container in containers(source):
        words, ports = arguments(container), container.get("ports", [])
        if not ports:
            continue
        listening = {
            words[place + 1] for place, word in enumerate(words) if word in {"--port", "--metrics-port"}
        }
        if listening != {str(port["containerPort"]) for port in ports}:
            yield Finding(source.path, 1, f"the ports of {words} are not those of the container")
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if container[probe]["httpGet"]["port"] != ports[0]["name"]:
                yield Finding(source.path, 1, f"{probe} does not probe {ports[0]['name']}")


def test_commands_and_options_exist():
    """[D-47]"""
    named = [*commands_of_contrib(), *commands_of_docs()]
    assert len({path for path, _, _ in named}) > 10
    assert none(
        Finding(path, line, fault) for path, line, words in named if (fault := fault_of(words)) is not None
    )


def test_settings_exist():
    assert none(finding for source in contrib() for finding in unknown_variables(source))


def test_ports_agree():
    written = contrib(".yaml", ".service", ".conf", "Dockerfile")
    assert none(finding for source in written for finding in other_ports(source))
    pods = contrib(".yaml", under="kubernetes/")
    assert none(finding for source in pods for finding in wrong_pod_ports(source))
    assert f"EXPOSE {DEFAULT_PORT}\n" in text_of("contrib/container/Dockerfile")
    assert f"127.0.0.1:{DEFAULT_PORT}/health'" in text_of("contrib/container/Dockerfile")


def test_everything_runs_confined():
    units = contrib(".service")
    assert len(units) >= 4
    assert none(
        Finding(unit.path, 1, f"{line} is missing")
        for unit in units
        for line in CONFINED
        if line not in unit.lines
    )
    pods = contrib(".yaml", under="kubernetes/")
    assert none(finding for source in pods for finding in unconfined_pods(source))
    (composed,) = contrib("compose.yaml")
    services = [(each["user"], each["read_only"], each["cap_drop"]) for each in containers(composed)]
    assert services == [("10001:10001", True, ["ALL"])] * 3


def test_the_kustomization_lists_all_manifests():
    (listed,) = documents(Source("", text_of("contrib/kubernetes/kustomization.yaml")))
    files = {path.name for path in (ROOT / "contrib/kubernetes").glob("*.yaml")}
    assert files - {"kustomization.yaml", "secret.example.yaml"} == set(listed["resources"])


LOOSE = "kind: Pod\nspec:\n  containers: [{name: a, image: b}]\n"
DEAF = (
    "spec: {containers: [{image: fatura, args: [api, --host, 0.0.0.0, --port, '8000'], "
    "ports: [{name: http, containerPort: 9000}], startupProbe: &p {httpGet: {port: http}}, "
    "livenessProbe: *p, readinessProbe: *p}]}"
)


@pytest.mark.parametrize(
    "found",
    [
        unknown_variables(Source("a", "FATURA_NEW=1")),
        other_ports(Source("a", "port: 8080")),
        unconfined_pods(Source("a.yaml", LOOSE)),
        wrong_pod_ports(Source("a.yaml", DEAF)),
    ],
)
def test_a_bad_sample_is_found(found):
    assert list(found)


@pytest.mark.parametrize("words", ["bill", "api --prot 1", "keys turn", "account create --jason"])
def test_a_wrong_command_is_found(words):
    assert fault_of(words.split())


@pytest.mark.parametrize("words", ["api --port 1", "keys list --json", "keys", "--version"])
def test_a_right_command_passes(words):
    assert fault_of(words.split()) is None
