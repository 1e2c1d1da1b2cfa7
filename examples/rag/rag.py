"""Answers questions from a few passages: embed, search, rerank, and an answer that comes word by word.

    jitney serve examples/rag/rag.py minilm smollm2
    curl -s 127.0.0.1:8000/search -d '"When does the night bus leave?"'
    curl -sN 127.0.0.1:8000/ask -H 'accept: text/event-stream' -d '"When does the night bus leave?"'

Each stage has its own batches, replicas and workers. All stages of a question have its deadline and its id, and end
when its client leaves.
"""

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import jitney
import numpy as np

PASSAGES = [
    "The night bus leaves the station every half hour until four.",
    "A jitney is a small bus that leaves when it is full.",
    "The restaurant on the corner serves noodles that people queue for.",
    "Bring the dough to room temperature before you shape the loaf.",
    "The museum opens at ten and is free on the first Sunday of the month.",
    "Sea levels follow the moon, twice a day.",
    "She repaired the old radio with a soldering iron and patience.",
    "The council voted to plant two thousand trees along the river.",
]
CANDIDATES = 5
"""Passages that the search finds by their vectors, for the reranker to read."""
RULES = "Answer the question in one sentence. Use only these notes, and say so if they do not help.\n\n"


@dataclass
class Pair:
    question: str
    passage: str


@dataclass
class Hit:
    passage: str
    score: float


def words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


@jitney.deployment(max_batch_size=64, examples=[Pair("Where is the bus?", PASSAGES[0])])
class Rerank:
    """Says how well passages answer questions: here the share of the words. A cross-encoder has the same form."""

    def predict(self, pairs: list[Pair]) -> list[float]:
        asked = [words(pair.question) for pair in pairs]
        return [len(one & words(pair.passage)) / max(len(one), 1) for one, pair in zip(asked, pairs, strict=True)]


@jitney.deployment(batched=False, max_batch_size=64, examples=["When does the night bus leave?"])
class Search:
    """Finds passages by the meaning of a question, and puts the best first."""

    embed = jitney.uses("minilm")
    rerank = jitney.uses(Rerank)

    def __init__(self) -> None:
        self.filling = asyncio.Lock()
        self.vectors: np.ndarray | None = None

    async def index(self) -> np.ndarray:
        """The vectors of all passages, computed for the first question."""
        async with self.filling:
            if self.vectors is None:
                self.vectors = np.stack(await self.embed.many(PASSAGES))
            return self.vectors

    async def predict(self, question: str) -> list[Hit]:
        index, vector = await asyncio.gather(self.index(), self.embed(question))
        places: list[int] = np.argsort(-(index @ vector))[:CANDIDATES].tolist()
        near = [PASSAGES[place] for place in places]
        scores = await self.rerank.many([Pair(question, passage) for passage in near])
        hits = [Hit(passage, round(score, 3)) for passage, score in zip(near, scores, strict=True)]
        return sorted(hits, key=lambda hit: -hit.score)


@jitney.deployment(batched=False, max_batch_size=16, examples=["When does the night bus leave?"])
class Ask:
    """Answers a question with what the search finds, part by part."""

    search = jitney.uses(Search)
    write = jitney.uses("smollm2")

    async def predict(self, question: str) -> AsyncIterator[str]:
        hits = await self.search(question)
        notes = "".join(f"- {hit.passage}\n" for hit in hits[:2])
        messages = [jitney.Message("system", RULES + notes), jitney.Message("user", question)]
        async with self.write.stream(jitney.Chat(messages=messages, max_tokens=80, temperature=0)) as parts:
            async for part in parts:
                yield part
