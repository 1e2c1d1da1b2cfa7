"""Print how to talk to the ready-made language model: `make chat` runs this before the server starts."""

import sys

LINES = """\
In another terminal, once the server is ready:

  curl -sN http://127.0.0.1:{port}/smollm2 -H 'accept: text/event-stream' -H 'content-type: application/json' \\
    -d '{{"messages": [{{"role": "user", "content": "What is the capital of France?"}}], "max_tokens": 60}}'
"""


def main() -> None:
    print(LINES.format(port=sys.argv[1]))


if __name__ == "__main__":
    main()
