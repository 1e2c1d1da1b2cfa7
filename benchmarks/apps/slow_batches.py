"""A model that sleeps for each batch of up to 8 items. It uses no core, as a model on an accelerator does."""

import os
import time

import jitney

BATCH_S = float(os.environ.get("BENCH_BATCH_S", "0.2"))


@jitney.deployment(max_batch_size=8, batch_timeout_s=60)
class SlowBatches:
    """Gives each item back."""

    def predict(self, items: list[dict[str, str]]) -> list[dict[str, str]]:
        time.sleep(BATCH_S * float(os.environ.get("BENCH_FACTOR", "1")))
        return items
