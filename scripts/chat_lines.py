"""Print how to talk to the ready-made language model: `make chat` runs this before the server starts."""

import sys

LINES = """\
When the server is ready, talk to it from another terminal:

  curl -sN http://127.0.0.1:{port}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model": "smollm2", "stream": true, "max_tokens": 60, "temperature": 0,
         "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'

or with the client of OpenAI (pip install openai):

  from openai import OpenAI

  client = OpenAI(base_url="http://127.0.0.1:{port}/v1", api_key="none")
  messages = [{{"role": "user", "content": "What is the capital of France?"}}]
  answer = client.chat.completions.create(model="smollm2", messages=messages, stream=True, max_tokens=60, temperature=0)
  for chunk in answer:
      print(chunk.choices[0].delta.content or "", end="", flush=True)
"""


def main() -> None:
    print(LINES.format(port=sys.argv[1]))


if __name__ == "__main__":
    main()
