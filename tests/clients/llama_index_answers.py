# pyright: basic, reportMissingImports=false
"""What LlamaIndex gets from the routes of the OpenAI API; the answers go to stdout as JSON.

Arguments: the base URL, and a folder for gates.
"""

import asyncio
import gc
import json
import sys

import openai
from llama_index.core.llms import ChatMessage
from llama_index.embeddings.openai_like import OpenAILikeEmbedding
from llama_index.llms.openai_like import OpenAILike
from operator_view import OperatorView

api_base, folder = sys.argv[1:]
view = OperatorView(api_base, folder)
server = {"api_base": api_base, "api_key": "none"}
TEXT = "one two three"
LONG = "word " * 1000


def chatting(model="echo", **fields):
    return OpenAILike(model=model, is_chat_model=True, additional_kwargs=fields, **server)


def user(text):
    return [ChatMessage(role="user", content=text)]


def whole():
    answer = chatting().chat(user(TEXT))
    return answer.message.content, answer.raw.usage.total_tokens, chatting().complete(TEXT).text


def stream():
    parts = list(chatting(stream_options={"include_usage": True}).stream_chat(user(TEXT)))
    return [part.delta for part in parts if part.delta], parts[-1].message.content, parts[-1].raw.usage.total_tokens


async def astream():
    answer = await chatting().astream_chat(user(TEXT))
    return [part.delta async for part in answer if part.delta]


def leave():
    gate = view.new_gate()
    for part in chatting(extra_body={"gate": gate}, max_tokens=1000).stream_chat(user(LONG)):
        if part.delta:
            first = part.delta
            break
    gc.collect()  # the client closes the connection when Python collects the answer
    return first, view.wait_for_end(gate, cancelled=1)


async def cancel():
    gate, begun = view.new_gate(), asyncio.Event()

    async def read():
        answer = await chatting(extra_body={"gate": gate}, max_tokens=1000).astream_chat(user(LONG))
        async for part in answer:
            if part.delta:
                begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    [ended] = await asyncio.gather(task, return_exceptions=True)
    return type(ended).__name__, await asyncio.to_thread(view.wait_for_end, gate, cancelled=2)


def error_of(model, text, is_streamed=False, **fields):
    try:
        asked = chatting(model, **fields)
        list(asked.stream_chat(user(text)) if is_streamed else asked.chat(user(text)))
    except openai.APIStatusError as error:
        return type(error).__name__, error.status_code, str(error)


def late():
    parts = []
    try:
        parts.extend(part.delta for part in chatting().stream_chat(user("you hurt me")))
    except openai.APIError as error:
        return "".join(parts), type(error).__name__, error.code


async def alate():
    parts = []
    try:
        async for part in await chatting().astream_chat(user("you hurt me")):
            parts.append(part.delta)
    except openai.APIError as error:
        return "".join(parts), type(error).__name__, error.code


def completion():
    asked = OpenAILike(model="go_on", max_tokens=3, **server)
    answer = asked.complete("abc")
    return answer.text, answer.raw.usage.total_tokens, "".join(part.delta for part in asked.stream_complete("abc"))


def embedding():
    asked = OpenAILikeEmbedding(model_name="words", embed_batch_size=2, **server)
    return [asked.get_query_embedding("a bus"), *asked.get_text_embedding_batch(["a bus", "another", "third"])]


async def in_one_loop():
    return {"astream": await astream(), "cancelled": await cancel(), "alate": await alate()}


print(
    json.dumps(
        {
            "whole": whole(),
            "stream": stream(),
            "left": leave(),
            **asyncio.run(in_one_loop()),
            "errors": [
                error_of("nobody", TEXT),
                error_of("echo", "forbidden"),
                error_of("echo", TEXT, logprobs=True),
                error_of("echo", "hurt me", is_streamed=True),
            ],
            "late": late(),
            "completion": completion(),
            "embedding": embedding(),
        }
    )
)
