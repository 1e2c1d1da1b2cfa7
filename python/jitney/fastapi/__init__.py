"""jitney in a FastAPI application: models that live as long as it does, dependencies, errors and answers.

```python
app = FastAPI()
jitney.fastapi.install(app, "embedder.py")
Embed = Annotated[jitney.Model[str, np.ndarray], jitney.fastapi.model("embedder")]

@app.get("/vector")
async def vector(text: str, embed: Embed) -> jitney.fastapi.JSONResponse:
    return jitney.fastapi.JSONResponse(await embed(text))
```

Runs in the user's program. No other package of jitney imports FastAPI.
"""

from jitney.fastapi.dependencies import model, sync_model
from jitney.fastapi.errors import http_error
from jitney.fastapi.lifespans import install, lifespan
from jitney.fastapi.live import live
from jitney.fastapi.responses import JSONResponse, response

__all__ = ["JSONResponse", "http_error", "install", "lifespan", "live", "model", "response", "sync_model"]
