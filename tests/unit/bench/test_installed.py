"""`jitney bench` where the load generator, a separate package, is not installed."""

import pytest
from jitney.cli.main import main


@pytest.fixture(autouse=True)
def not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    def find_spec(name: str) -> None:
        assert name == "jitney_bench"

    monkeypatch.setattr("jitney.cli.bench.find_spec", find_spec)


@pytest.mark.parametrize("arguments", [[], ["--help"], ["model.py", "--users", "3"]])
def test_one_line_says_how_to_install_it(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", *arguments]) == 2
    assert capsys.readouterr().err == (
        "jitney: jitney bench needs the package jitney-bench, which is not installed; "
        "in a checkout of jitney: pip install ./bench, "
        "or install the file jitney_bench-*.whl that `make wheels` has built\n"
    )


def test_other_commands_do_without_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    assert "minilm" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "bench" in capsys.readouterr().out
