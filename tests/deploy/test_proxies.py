"""What the examples of proxies publish, read from their files: no page that is for operators."""

import re
from typing import Any

import yaml
from tools import DEPLOY, ROOT

FOR_OPERATORS = ("/metrics", "/config", "/live", "/live/events", "/trace/1")
PUBLISHED = ("/livez", "/readyz", "/docs", "/openapi.json", "/embedder", "/liveness", "/v1/models")
NGINX = re.compile(r"^ *location (= )?(\S+) \{ return (\d+); \}$", re.MULTILINE)


def of_nginx(path: str) -> bool:
    """Say whether nginx passes a path on: an exact location counts first, then the longest one that it begins with."""
    found = NGINX.findall((DEPLOY / "proxies/nginx.conf").read_text())
    assert found and {status for _, _, status in found} == {"404"}
    return not any(path == place if exact else path.startswith(place) for exact, place, _ in found)


def manager() -> dict[str, Any]:
    listener = yaml.safe_load((DEPLOY / "proxies/envoy.yaml").read_text())["static_resources"]["listeners"][0]
    return listener["filter_chains"][0]["filters"][0]["typed_config"]


def of_envoy(path: str) -> bool:
    """Say whether Envoy passes a path on: its first route that matches counts."""
    for route in manager()["route_config"]["virtual_hosts"][0]["routes"]:
        match = route["match"]
        if path == match.get("path") or path.startswith(match.get("prefix", " ")):
            assert "route" in route or route["direct_response"] == {"status": 404}
            return "route" in route
    return False


def test_pages_for_operators_are_not_published() -> None:
    for passes in (of_nginx, of_envoy):
        assert [path for path in FOR_OPERATORS if passes(path)] == [], passes.__name__
        assert [path for path in PUBLISHED if not passes(path)] == [], passes.__name__


def test_envoy_decodes_paths_before_it_matches_them() -> None:
    """jitney decodes paths too: `/%6detrics` would go past a route for `/metrics`."""
    assert manager()["normalize_path"] is True
    assert manager()["path_with_escaped_slashes_action"] == "UNESCAPE_AND_FORWARD"


def test_the_page_names_what_must_not_be_published() -> None:
    page = (ROOT / "docs/operations/deployment.md").read_text()
    (row,) = re.findall(r"^\| not publish (.*?) \|", page, re.MULTILINE)
    assert set(re.findall(r"`([^`]+)`", row)) == {"/metrics", "/config", "/live", "/live/events", "/trace/…"}
