"""The alerts, read and run by the tool of Prometheus itself."""

import shutil
from pathlib import Path

import pytest
import yaml

from tests.deployment.rendering import OVERLAYS
from tests.engines.promtool import Promtool

RULES = OVERLAYS.parent / "components" / "monitoring" / "prometheus-rule.yaml"
CASES = Path(__file__).with_name("alerts.yaml")


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    """The rules as Prometheus has them in a file."""
    path = tmp_path / "rules.yaml"
    path.write_text(yaml.safe_dump(yaml.safe_load(RULES.read_text())["spec"]))
    return path


def test_the_rules_are_right(rules: Path, promtool: Path) -> None:
    Promtool(promtool).check_rules(rules)


def test_alerts_fire_when_and_with_what_they_should(rules: Path, promtool: Path) -> None:
    cases = Path(shutil.copy(CASES, rules.parent))

    said = Promtool(promtool).run_tests(cases)

    assert said.rstrip().endswith("SUCCESS")


def test_every_alert_is_tested() -> None:
    (group,) = yaml.safe_load(RULES.read_text())["spec"]["groups"]
    alerts = {rule["alert"] for rule in group["rules"]}
    tested = {
        expected["alertname"]
        for test in yaml.safe_load(CASES.read_text())["tests"]
        for expected in test["alert_rule_test"]
        if expected.get("exp_alerts")
    }

    assert tested == alerts
