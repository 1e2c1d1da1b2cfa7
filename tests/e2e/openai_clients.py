"""The official Python client of the OpenAI API, for the server of a test."""

import openai
from harness import Server


def base_url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}/v1"


def client_of(server: Server, key: str = "none") -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url(server), api_key=key, max_retries=0)


def async_client_of(server: Server) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=base_url(server), api_key="none", max_retries=0)
