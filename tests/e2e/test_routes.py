"""A deployment may have a second path next to its name, also below /v1."""

from pathlib import Path

import pytest
from harness import Serve


def test_a_deployment_is_called_at_its_own_path_and_by_its_name(serve: Serve) -> None:
    server = serve("routed.py")
    with server.client() as client:
        for path in ("/shout", "/v1/predict", "/api/whisper", "/whisper"):
            assert client.post(path, "a").json() == "A", path
        assert client.post("/v1/predict/batch", ["a", "b"]).json()["outcomes"] == [{"value": "A"}, {"value": "B"}]
        assert client.get("/v1/predict").status == 405
        assert client.get("/v1/models").status == 200
        missing = client.post("/v1/predicts", "a")
        assert missing.status == 404
        # Below /v1 as OpenAI's clients read it.
        assert missing.json()["error"]["message"].endswith("; did you mean /v1/predict?")
        for asked, meant in (("/v1/embedings", "/v1/embeddings"), ("/v1/predict/bach", "/v1/predict/batch")):
            assert f"; did you mean {meant}?" in client.post(asked, "a").json()["error"]["message"]
        assert "did you mean" not in client.post("/v1/something/else", "a").json()["error"]["message"]
        for asked, meant in (
            ("/api/whispr", "/api/whisper"),
            ("/shout/btach", "/shout/batch"),
            ("/shout/predict", "/shout"),
        ):
            assert f"; did you mean {meant}? " in client.post(asked, "a").json()["detail"]
        paths = client.get("/openapi.json").json()["paths"]
        ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
        assert {"/v1/predict", "/v1/predict/batch", "/api/whisper", "/shout"} <= set(paths)
        assert len(ids) == len(set(ids))
        assert client.get("/config").json()["deployments"]["shout"]["route"] == "/v1/predict"
    assert "/v1/predict" in server.log()  # the line with curl


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        ("/v1/models", "/b", "belongs to the server itself"),
        ("/metrics", "/b", "belongs to the server itself"),
        ("/a/batch", "/b", "the path for many items"),
        ("/a", "/a", "leads to one already; give two another route="),
        ("/two", "/b", "leads to two already"),
        ("no slash", "/b", "is not a path"),
    ],
)
def test_a_path_that_is_not_free_is_refused_at_start(
    serve: Serve, tmp_path: Path, first: str, second: str, words: str
) -> None:
    target = tmp_path / "clash.py"
    target.write_text(
        "import jitney\n"
        f"@jitney.deployment(route={first!r})\ndef one(texts: list[str]) -> list[str]: ...\n"
        f"@jitney.deployment(route={second!r})\ndef two(texts: list[str]) -> list[str]: ...\n"
    )
    server = serve(str(target), wait=False)
    assert server.wait_exit() != 0
    assert words in server.log()
