"""House rules on monitoring: alerts and the dashboard name existing metrics, and each alert is tested and explained."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from fatura.store import lateness
from tests.tidy.contrib_files import contrib, documents
from tests.tidy.sources import ROOT, Finding, Source, none

RULES = "contrib/prometheus/fatura.rules.yaml"
RULES_TEST = "contrib/prometheus/fatura.rules.test.yaml"
RUNBOOK = "docs/how-to/act-on-an-alert.md"
METRICS = "docs/reference/metrics.md"
_METRIC = re.compile(r"\b(fatura_\w+?)(?:_bucket|_count|_sum)?\b(?=[\s{)\[/,\"]|$)(?:\{([^}]*)\})?")
_METRIC_ROW = re.compile(r"^\| `(fatura_\w+)` \| \w+ \| (.*?) \|", re.MULTILINE)
_ALERT_ROW = re.compile(r"^\| `(Fatura\w+)` \| [^|]+ \| [^|]+ \|$", re.MULTILINE)
OF_PROMETHEUS = {"job", "instance", "le"}


def text_of(path: str) -> str:
    return (ROOT / path).read_text("utf-8")


def unknown_metrics(source: Source, described: dict[str, set[str]]) -> Iterator[Finding]:
    """Refuse metrics and labels that `metrics.md` does not list."""
    for number, line in enumerate(source.lines, 1):
        for name, matchers in _METRIC.findall(line):
            if name not in described:
                yield Finding(source.path, number, f"{name} is missing in {METRICS}")
                continue
            labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
            for label in labels - described[name] - OF_PROMETHEUS:
                yield Finding(source.path, number, f"{name} has no label {label}")


def alerts() -> list[dict[str, Any]]:
    (rules,) = documents(Source(RULES, text_of(RULES)))
    return [rule for group in rules["groups"] for rule in group["rules"]]


def described_metrics() -> dict[str, set[str]]:
    rows = _METRIC_ROW.findall(text_of(METRICS))
    return {name: set(re.findall(r"`(\w+)`", labels)) for name, labels in rows}


def test_metrics_exist():
    """[D-128]"""
    described = described_metrics()
    assert len(described) > 10
    files = contrib(".yaml", under="prometheus/") + contrib(".json", under="grafana/")
    assert none(finding for source in files for finding in unknown_metrics(source, described))
    shown = {name for source in contrib(".json") for name, _ in _METRIC.findall(source.text)}
    assert set(described) - shown == set()


def test_every_lane_has_an_alert():
    """[D-128]"""
    measured = {*re.findall(r"SELECT '(\w+)'", lateness.DISCOVER_OLDEST), "retention"}
    (rule,) = [each for each in alerts() if each["alert"] == "FaturaWorkLate"]
    watched = "|".join(re.findall(r'lane=~?"([\w|]+)"', rule["expr"])).split("|")
    assert sorted(watched) == sorted(measured)


def test_every_alert_is_tested_and_explained():
    names = [each["alert"] for each in alerts()]
    assert len(names) > 10
    assert sorted(names) == sorted(set(_ALERT_ROW.findall(text_of(RUNBOOK))))
    (tests,) = documents(Source(RULES_TEST, text_of(RULES_TEST)))
    fired = {
        case["alertname"]
        for test in tests["tests"]
        for case in test["alert_rule_test"]
        if case.get("exp_alerts")
    }
    assert sorted(names) == sorted(fired)
    assert all(each["labels"]["severity"] in {"page", "ticket"} for each in alerts())
    assert all(each["annotations"]["summary"] for each in alerts())


def test_the_dashboard_is_valid():
    (dashboard,) = [json.loads(source.text) for source in contrib(".json", under="grafana/")]
    panels = [each for each in dashboard["panels"] if each["type"] != "row"]
    assert all(target["expr"] for panel in panels for target in panel["targets"])
    numbers = [each["id"] for each in dashboard["panels"]]
    assert len(numbers) == len(set(numbers))


@pytest.mark.parametrize(
    "found",
    [
        unknown_metrics(Source("a", "fatura_new_total > 1"), {"fatura_newer_total": set()}),
        unknown_metrics(Source("a", 'fatura_new_total{x="1"}'), {"fatura_new_total": {"y"}}),
    ],
)
def test_a_bad_sample_is_found(found):
    assert list(found)
