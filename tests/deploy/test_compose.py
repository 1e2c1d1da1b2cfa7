"""The composed stack: what it mounts is there, ports are published on loopback, and its parts find each other."""

import re
from typing import Any

import pytest
import yaml
from jitney.config.layers import server_options
from tools import DEPLOY, ROOT

COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
PROMETHEUS: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/prometheus.yml").read_text())


def with_defaults(text: str) -> str:
    """Return a value as Compose has it when no variable is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


@pytest.mark.parametrize("name", SERVICES)
def test_ports_are_published_on_loopback_and_images_have_a_version(name: str) -> None:
    service = SERVICES[name]
    assert all(str(port).startswith("127.0.0.1:") for port in service.get("ports", []))
    _, _, tag = service["image"].rpartition(":")
    assert tag == "local" or re.search(r"\d+\.\d+", tag), service["image"]


def test_files_that_are_mounted_are_there() -> None:
    mounts = [with_defaults(mount) for service in SERVICES.values() for mount in service.get("volumes", [])]
    places = [mount.split(":")[0] for mount in mounts]
    assert [place for place in places if place.startswith(".") and not (DEPLOY / place).exists()] == []
    named = {place for place in places if place[0] not in "./"}
    assert named == COMPOSE["volumes"].keys()


def test_the_server_has_the_limits_of_its_options() -> None:
    service, options = SERVICES["jitney"], server_options()
    stop = float(service["stop_grace_period"].removesuffix("s"))
    assert stop >= options["drain_grace_s"].default + options["drain_timeout_s"].default + 6
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    variables = [name for name in service["environment"] if name.startswith("JITNEY_")]
    assert [name for name in variables if name.removeprefix("JITNEY_").lower() not in options] == []
    assert (DEPLOY / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    target = with_defaults(service["command"][-1])
    assert (DEPLOY / with_defaults(service["volumes"][0]).split(":")[0] / target).is_file()


def test_prometheus_scrapes_the_services_and_grafana_asks_prometheus() -> None:
    targets = [
        target
        for job in PROMETHEUS["scrape_configs"]
        for target in [
            *(name for group in job.get("static_configs", []) for name in group["targets"]),
            *(f"{name}:{group['port']}" for group in job.get("dns_sd_configs", []) for name in group["names"]),
        ]
    ]
    assert {target.partition(":")[0] for target in targets} == SERVICES.keys() - {"prometheus", "grafana"}
    for target in targets:
        name, _, port = target.partition(":")
        known = [str(place).rpartition(":")[2] for place in SERVICES[name].get("ports", [])] + SERVICES[name].get(
            "expose", []
        )
        assert port in known, target
    mounted = [mount.split(":")[1] for mount in SERVICES["prometheus"]["volumes"]]
    assert set(PROMETHEUS["rule_files"]) <= set(mounted)
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text())["datasources"][0]
    assert (source["uid"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
    provider = yaml.safe_load((DEPLOY / "grafana/provisioning/dashboards/jitney.yml").read_text())["providers"][0]
    assert provider["options"]["path"] in SERVICES["grafana"]["volumes"][1]


def test_the_context_of_the_image_has_what_the_dockerfile_copies_and_no_more() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert [name for name in allowed if not (ROOT / name).exists()] == []
    copied = re.findall(r"^COPY (?!--)(\S+) ", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE)
    assert set(copied) - {"."} <= allowed
