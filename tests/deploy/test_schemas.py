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
        said = run("kubernetes-validate", "--kubernetes-version", version, "--strict", file).stdout
        # Objects of operators have no schema among those of Kubernetes.
        unknown = [line for line in said.splitlines() if not line.startswith("INFO")]
        assert [line for line in unknown if "monitoring.coreos.com" not in line and "keda.sh" not in line] == []
        assert "INFO" in said


def test_compose_would_take_every_field() -> None:
    need("npx")
    # The image has a name, and is built if it is not there.
    allowed = ("--disable-rule", "no-build-and-image")
    for name in ("compose.yml", "compose.gpu.yml"):
        lint = run("npx", "--yes", "dclint@3.1.0", DEPLOY / name, "--quiet", *allowed, timeout_s=300)
        assert "error" not in lint.stdout.lower()
