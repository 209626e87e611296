"""Alerts, dashboard and runbooks speak of figures that are really told, and of each other."""

import json
import re
from pathlib import Path
from typing import Any

import yaml
from prometheus_client import CollectorRegistry

from scripts.database import REPOSITORY
from ticketing.api.metrics import Metrics
from ticketing.backlog import Backlog
from ticketing.vital_signs import LeaseSign, VitalSigns
from workers.metrics import Metrics as WorkerMetrics

FOLDER = REPOSITORY / "docs" / "monitoring"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in RULES if "alert" in rule]
TESTS = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# What the library tells of every process beyond what anybody here looks at.
OF_NO_INTEREST = {"ticketing_process_virtual_memory_bytes", "ticketing_process_max_fds"}
_NAME = re.compile(r"\bticketing_[a-z0-9_]+")
_SERIES = re.compile(r"_(bucket|count|sum)$")


def told() -> set[str]:
    """The names of all figures that API and workers tell."""
    signs = VitalSigns({"m": 0.0}, 0.0, 0, [LeaseSign("j", "h", 1.0)], {"a rule": 0}, 0.0)
    waiting = Backlog(0.0, {"mail": 0.0}, 0.0, 0, 0, 0)
    text = Metrics().exposition(waiting, signs).decode()
    registry: CollectorRegistry = WorkerMetrics("release").registry
    families = {family.name for family in registry.collect()}
    names = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    return names | {name if name in names else f"{name}_total" for name in families}


def asked_for(text: str) -> set[str]:
    return {_SERIES.sub("", name) for name in _NAME.findall(text)}


def test_every_figure_that_is_asked_for_is_told() -> None:
    asked = asked_for(json.dumps([rule["expr"] for rule in RULES]))
    asked |= asked_for(json.dumps([panel["targets"] for panel in PANELS]))
    assert asked <= told()


def test_every_figure_that_is_told_is_looked_at_somewhere() -> None:
    shown = asked_for(json.dumps([panel["targets"] for panel in PANELS]))
    assert told() - shown <= OF_NO_INTEREST


def test_every_alert_says_how_bad_it_is_and_leads_to_a_runbook() -> None:
    runbooks = (REPOSITORY / "docs" / "runbooks.md").read_text()
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^## (.*)$", runbooks, re.MULTILINE)
    }
    for alert in ALERTS:
        assert alert["labels"]["severity"] in {"page", "ticket"}, alert
        page, _, heading = alert["annotations"]["runbook"].partition("#")
        assert (REPOSITORY / Path(page)).exists()
        assert heading in headings, alert["alert"]
        assert {"summary", "description"} <= alert["annotations"].keys()


def test_every_alert_has_a_test_in_which_it_fires_and_is_quiet_before() -> None:
    tested = {test["name"]: test["promql_expr_test"] for test in TESTS}
    assert tested.keys() == {alert["alert"] for alert in ALERTS}
    for name, (quiet, firing) in tested.items():
        assert name in quiet["expr"] == firing["expr"] or name in firing["expr"]
        assert quiet["exp_samples"] == []
        assert firing["exp_samples"] == [{"labels": "{}", "value": 1}]


def test_every_panel_has_a_title_a_unit_and_a_question() -> None:
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["fieldConfig"]["defaults"]["unit"]
        assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])
