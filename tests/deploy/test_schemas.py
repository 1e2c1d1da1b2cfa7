"""The manifests against the schemas of Kubernetes itself, and the composed stack against that of Compose."""

from pathlib import Path

import pytest
from test_kubernetes import FOLDER, OVERLAYS
from tools import DEPLOY, need, run

VERSIONS = ("1.30", "1.34")


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubernetes_would_take_every_field(overlay: str, tmp_path: Path) -> None:
    need("kubectl", "kubernetes-validate")
    file = tmp_path / "rendered.yaml"
    file.write_text(run("kubectl", "kustomize", FOLDER / "overlays" / overlay).stdout)
    for version in VERSIONS:
        said = run("kubernetes-validate", "--kubernetes-version", version, "--strict", file, check=False)
        wrong = [line for line in said.stdout.splitlines() if "ERROR" in line or "INFO" not in line]
        # The schemas are those of Kubernetes alone: objects of operators are unknown.
        assert said.returncode == 0 or all("monitoring.coreos.com" in line or "keda.sh" in line for line in wrong), (
            wrong
        )


def test_compose_would_take_every_field() -> None:
    need("npx")
    lint = run(
        "npx", "--yes", "dclint@3.1.0", "--quiet", DEPLOY / "compose.yml", DEPLOY / "compose.gpu.yml", timeout_s=300
    )
    assert "error" not in lint.stdout.lower()
