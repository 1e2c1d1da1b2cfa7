"""The rules as Prometheus' own tool reads them, and the page that explains the alerts."""

import re
import subprocess
from pathlib import Path

import pytest
from monitoring.alerts import ALERTS, Alert
from monitoring.rules import groups

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "deploy/prometheus"
PAGE = ROOT / "docs/operations/monitoring.md"


def run(*command: str) -> str:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout + ran.stderr


def sections() -> dict[str, str]:
    """The text of each section about an alert, by its title."""
    parts = re.split(r"^### (\w+)$", PAGE.read_text(), flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_prometheus_takes_the_rules(promtool: str) -> None:
    rules = sum(len(group.rules) for group in groups())
    assert f"SUCCESS: {rules} rules found" in run(promtool, "check", "rules", str(FOLDER / "jitney.rules.yml"))


def test_alerts_fire_when_they_should_and_only_then(promtool: str) -> None:
    tests = sorted(str(path) for path in FOLDER.glob("*.test.yml"))
    assert run(promtool, "test", "rules", *tests).count("SUCCESS") == len(tests) == 3


def test_a_rule_that_is_wrong_fails_its_tests(promtool: str, tmp_path: Path) -> None:
    """The tests can fail: with another limit, an alert fires where it must not."""
    text = (FOLDER / "jitney.rules.yml").read_text()
    (tmp_path / "jitney.rules.yml").write_text(text.replace('up{job=~".*jitney.*"} == 0', 'up{job=~".*jitney.*"} == 1'))
    head, *cases = re.split(r"^(?=  - name: )", (FOLDER / "jitney.test.yml").read_text(), flags=re.MULTILINE)
    (tmp_path / "jitney.test.yml").write_text(head + next(case for case in cases if "a server is down" in case))
    command = [promtool, "test", "rules", str(tmp_path / "jitney.test.yml")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode != 0 and "JitneyDown" in ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "alert", ALERTS, ids=lambda alert: f"{alert.name} {alert.labels.get('long_window', '')}".strip()
)
def test_an_alert_is_tested_and_explained(alert: Alert) -> None:
    tests = "".join(path.read_text() for path in FOLDER.glob("*.test.yml"))
    fires = re.findall(rf'ALERTS\{{alertname="{alert.name}", alertstate="firing"(?:, severity="(\w+)"(.*?))?\}}', tests)
    assert fires, f"no test in {FOLDER.name}/*.test.yml lets {alert.name} fire"
    labels = {label for severity, more in fires if severity for label in re.findall(r"(\w+)=", more)}
    used = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.text))
    assert used <= labels or alert.name == "JitneyErrorBudgetBurnsSlowly", (
        f"{alert.name} names labels that it does not have"
    )
    for text in (alert.summary, alert.text):
        assert not set("{}") & set(re.sub(r"\{\{[^{}]*\}\}", "", text)), f"{alert.name}: a brace too many in {text!r}"
    explained = sections()[alert.name]
    assert explained.lstrip().startswith(f"{alert.severity.capitalize()}. "), f"{PAGE.name}: {alert.name}"
    # A relative path would be a dead link in Alertmanager and Grafana.
    assert alert.runbook.startswith("https://")
    assert alert.runbook.endswith(f"/{PAGE.relative_to(ROOT)}#{alert.name.lower()}")


def test_the_page_explains_no_alert_that_does_not_exist() -> None:
    assert list(sections()) == list(dict.fromkeys(alert.name for alert in ALERTS))


def test_the_configuration_of_the_composed_stack_loads_the_rules(promtool: str, tmp_path: Path) -> None:
    text = (FOLDER / "prometheus.yml").read_text().replace("/etc/prometheus", str(FOLDER))
    (tmp_path / "prometheus.yml").write_text(text)
    said = run(promtool, "check", "config", str(tmp_path / "prometheus.yml"))
    assert "1 rule files found" in said and f"{sum(len(group.rules) for group in groups())} rules found" in said


def test_the_configuration_of_the_page_is_one(promtool: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(global:.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (tmp_path / "prometheus.yml").write_text(block)
    (tmp_path / "jitney.rules.yml").write_text((FOLDER / "jitney.rules.yml").read_text())
    assert "SUCCESS" in run(promtool, "check", "config", str(tmp_path / "prometheus.yml"))


def test_the_job_with_https_and_keys_is_one(promtool: str, tmp_path: Path) -> None:
    (block,) = re.findall(r"^```yaml\n(scrape_configs:.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    for name in ("jitney-ca.crt", "jitney-key"):
        assert f"/etc/prometheus/{name}" in block
        (tmp_path / name).touch()
    (tmp_path / "prometheus.yml").write_text(block.replace("/etc/prometheus", str(tmp_path)))
    assert "SUCCESS" in run(promtool, "check", "config", str(tmp_path / "prometheus.yml"))


def test_the_page_says_how_to_change_the_addresses_of_runbooks() -> None:
    (old,) = re.findall(r"^sed -i 's\|(\S+?)\|https://\S+\|' jitney\.rules\.yml$", PAGE.read_text(), re.MULTILINE)
    assert all(alert.runbook.startswith(f"{old}operations/") for alert in ALERTS)
