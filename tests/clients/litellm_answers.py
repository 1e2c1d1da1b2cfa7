# pyright: basic, reportMissingImports=false
"""What LiteLLM gets from the routes of the OpenAI API; the answers go to stdout as JSON.

Arguments: the base URL, and a folder for gates.
"""

import asyncio
import json
import sys

import litellm
import openai
from operator_view import OperatorView

api_base, folder = sys.argv[1:]
view = OperatorView(api_base, folder)
server = {"api_base": api_base, "api_key": "none"}
TEXT = "one two three"
LONG = "word " * 1000

litellm.suppress_debug_info = True
# The default transport of LiteLLM leaves the connection open when a task is cancelled.
litellm.disable_aiohttp_transport = True


def user(text):
    return [{"role": "user", "content": text}]


def whole():
    answer = litellm.completion(model="openai/echo", messages=user(TEXT), n=2, **server)
    texts = [choice.message.content for choice in answer.choices]
    return {"texts": texts, "tokens": answer.usage.total_tokens, "model": answer.model}


def text_of(chunks):
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


def stream():
    counted = {"stream": True, "stream_options": {"include_usage": True}}
    chunks = list(litellm.completion(model="openai/echo", messages=user(TEXT), **counted, **server))
    reasons = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices[0].finish_reason]
    return {"text": text_of(chunks), "parts": len(chunks), "reasons": reasons, "tokens": chunks[-1].usage.total_tokens}


async def astream():
    answer = await litellm.acompletion(model="openai/echo", messages=user(TEXT), stream=True, **server)
    return text_of([chunk async for chunk in answer])


def leave():
    gate = view.new_gate()
    answer = litellm.completion(
        model="openai/echo", messages=user(LONG), max_tokens=1000, stream=True, extra_body={"gate": gate}, **server
    )
    first = text_of([next(answer)])
    answer.completion_stream.close()
    return first, view.wait_for_end(gate, cancelled=1)


async def cancel():
    gate, begun = view.new_gate(), asyncio.Event()

    async def read():
        answer = await litellm.acompletion(
            model="openai/echo", messages=user(LONG), max_tokens=1000, stream=True, extra_body={"gate": gate}, **server
        )
        async for _ in answer:
            begun.set()

    task = asyncio.create_task(read())
    await begun.wait()
    task.cancel()
    [ended] = await asyncio.gather(task, return_exceptions=True)
    return type(ended).__name__, await asyncio.to_thread(view.wait_for_end, gate, cancelled=2)


def error_of(model, text, **fields):
    try:
        litellm.completion(model=f"openai/{model}", messages=user(text), **fields, **server)
    except openai.APIStatusError as error:
        return type(error).__name__, error.status_code, str(error)


def late():
    chunks = []
    try:
        chunks.extend(litellm.completion(model="openai/echo", messages=user("you hurt me"), stream=True, **server))
    except Exception as error:
        return text_of(chunks), type(error).__name__, str(error)


async def alate():
    chunks = []
    try:
        answer = await litellm.acompletion(model="openai/echo", messages=user("you hurt me"), stream=True, **server)
        async for chunk in answer:
            chunks.append(chunk)
    except Exception as error:
        return text_of(chunks), type(error).__name__, str(error)


def completion():
    asked = {"model": "text-completion-openai/go_on", "prompt": "abc", "max_tokens": 3, **server}
    answer = litellm.text_completion(**asked)
    chunks = list(litellm.text_completion(**asked, stream=True))
    return answer.choices[0].text, answer.usage.total_tokens, "".join(chunk.choices[0].text or "" for chunk in chunks)


def embedding():
    answer = litellm.embedding(model="openai/words", input=["a bus", "another"], **server)
    return [each["embedding"] for each in answer.data], answer.usage.total_tokens


def image():
    answer = litellm.image_generation(model="openai/paint", prompt="a bus", size="16x24", **server)
    return answer.data[0].b64_json


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
                error_of("echo", "hurt me", stream=True),
                error_of("echo", "hurt me"),
            ],
            "late": late(),
            "completion": completion(),
            "embedding": embedding(),
            "image": image(),
        }
    )
)
