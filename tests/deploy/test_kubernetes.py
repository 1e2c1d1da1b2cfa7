"""The manifests: what kustomize makes of each overlay fits together, and their variables are options of jitney."""

import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from jitney.config.layers import server_options
from tools import DEPLOY, documents, need, run

FOLDER = DEPLOY / "kubernetes"
OVERLAYS = sorted(path.name for path in (FOLDER / "overlays").iterdir())


@cache
def rendered(overlay: str) -> list[dict[str, Any]]:
    need("kubectl")
    return documents(run("kubectl", "kustomize", FOLDER / "overlays" / overlay).stdout)


def of_kind(overlay: str, kind: str) -> list[dict[str, Any]]:
    return [document for document in rendered(overlay) if document["kind"] == kind]


def pods(overlay: str) -> dict[str, dict[str, Any]]:
    """Return the template of the pods of each Deployment."""
    return {one["metadata"]["name"]: one["spec"]["template"] for one in of_kind(overlay, "Deployment")}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.yaml")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_file_is_yaml_and_is_used(path: Path) -> None:
    assert documents(path.read_text())
    if path.name not in ("kustomization.yaml", "prometheus-adapter.yaml"):
        assert path.name in (path.parent / "kustomization.yaml").read_text()


def test_components_are_used_by_an_overlay() -> None:
    used = "".join((FOLDER / "overlays" / name / "kustomization.yaml").read_text() for name in OVERLAYS)
    assert [path.name for path in (FOLDER / "components").iterdir() if f"components/{path.name}" not in used] == []


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_what_selects_pods_finds_them(overlay: str) -> None:
    labels = [pod["metadata"]["labels"] for pod in pods(overlay).values()]
    selectors = [one["spec"]["selector"] for one in of_kind(overlay, "Service")]
    for kind in ("Deployment", "PodDisruptionBudget", "PodMonitor"):
        selectors += [one["spec"]["selector"]["matchLabels"] for one in of_kind(overlay, kind)]
    selectors += [one["spec"]["podSelector"]["matchLabels"] for one in of_kind(overlay, "NetworkPolicy")]
    assert [wanted for wanted in selectors if not any(wanted.items() <= found.items() for found in labels)] == []
    names = pods(overlay).keys()
    scaled = of_kind(overlay, "ScaledObject") + of_kind(overlay, "HorizontalPodAutoscaler")
    targets = [one["spec"]["scaleTargetRef"]["name"] for one in scaled]
    assert targets and set(targets) <= names
    # Both an autoscaler and the manifest would set the number of pods.
    fixed = [one["metadata"]["name"] for one in of_kind(overlay, "Deployment") if "replicas" in one["spec"]]
    assert not set(fixed) & set(targets)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_ports_have_names_that_containers_have(overlay: str) -> None:
    containers = [container for pod in pods(overlay).values() for container in pod["spec"]["containers"]]
    known = {port["name"] for container in containers for port in container.get("ports", [])}
    text = str([*rendered(overlay)])
    used = set(re.findall(r"'(?:targetPort|port)': '(\w+)'", text))
    assert used and used <= known


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_pods_may_do_nothing_and_end_in_time(overlay: str) -> None:
    options = server_options()
    for pod in pods(overlay).values():
        spec, (container,) = pod["spec"], pod["spec"]["containers"]
        variables = {variable["name"]: variable.get("value") for variable in container.get("env", [])}
        known = {f"JITNEY_{name.upper()}" for name in options} | {"JITNEY_HOST", "POD_IP"}
        assert variables.keys() <= known
        grace = float(variables.get("JITNEY_DRAIN_GRACE_S") or options["drain_grace_s"].default)
        assert spec["terminationGracePeriodSeconds"] >= grace + options["drain_timeout_s"].default + 6
        assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
        inside = container["securityContext"]
        assert inside["readOnlyRootFilesystem"] and not inside["allowPrivilegeEscalation"]
        assert inside["capabilities"] == {"drop": ["ALL"]}
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]}
        assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]], "sockets of workers"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_prometheus_gets_the_rules_and_finds_the_servers_by_their_job(overlay: str) -> None:
    (rule,) = of_kind(overlay, "PrometheusRule")
    assert [rule["spec"]] == documents((DEPLOY / "prometheus/jitney.rules.yml").read_text())
    (monitor,) = of_kind(overlay, "PodMonitor")
    jobs = {pod["metadata"]["labels"][monitor["spec"]["jobLabel"]] for pod in pods(overlay).values()}
    assert jobs == {"jitney"}, "the rules need a job with `jitney` in its name"


def test_a_start_may_take_longer_than_a_load() -> None:
    (container,) = pods("cpu")["jitney"]["spec"]["containers"]
    probe = container["startupProbe"]
    assert probe["httpGet"]["path"] == "/readyz"
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 600
    assert container["livenessProbe"]["httpGet"]["path"] == "/livez"
