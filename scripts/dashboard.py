"""Write the Grafana dashboard and the Prometheus rules into deploy/. `make docs` runs this.

`--check` writes nothing and fails if a file is not what the tables say.
"""

import json
import sys
from pathlib import Path

from monitoring import board, rules

DEPLOY = Path(__file__).resolve().parent.parent / "deploy"


def files() -> dict[Path, str]:
    """Return the text of each file."""
    return {
        DEPLOY / "grafana/jitney.json": json.dumps(board.dashboard(), indent=1, ensure_ascii=False) + "\n",
        DEPLOY / "prometheus/jitney.rules.yml": rules.document(),
        DEPLOY / "kubernetes/components/monitoring/rules.yaml": rules.resource(),
    }


def main() -> int:
    stale: list[str] = []
    for path, text in files().items():
        if "--check" not in sys.argv:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(f"{path.relative_to(DEPLOY.parent)} is not what the tables say: run `make docs`")
    print("\n".join(stale) or "the dashboard and the rules are what the tables say")
    return int(bool(stale))


if __name__ == "__main__":
    sys.exit(main())
