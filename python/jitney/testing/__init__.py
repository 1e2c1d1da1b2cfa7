"""Models in tests: without processes (`inline`), with them (`fixture(..., processes=True)`), or faked (`fake`).

```python
shout = jitney.testing.fixture(Shout)

def test_it_shouts(shout: jitney.SyncModels) -> None:
    assert shout[Shout]("a") == "A"
```

No other package of jitney imports this one. Only `fixture` needs pytest.
"""

from jitney.testing.fakes import Fakes, fake
from jitney.testing.fixtures import fixture
from jitney.testing.inline import inline

__all__ = ["Fakes", "fake", "fixture", "inline"]
