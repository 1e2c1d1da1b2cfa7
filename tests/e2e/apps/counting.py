"""A model that counts what it reads."""

import jitney

words = jitney.counter("words_total", "Words that were read.", language=("en", "de"))
lengths = jitney.histogram("text_characters", "Characters of a text.", buckets=(5, 10))


@jitney.deployment(max_batch_size=4, examples=["warm up"])
class Counting:
    def predict(self, texts: list[str]) -> list[int]:
        for text in texts:
            words.inc(len(text.split()), language="de" if "ü" in text else "en")
            lengths.observe(len(text))
        return [len(text) for text in texts]
