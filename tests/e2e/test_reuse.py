"""No request gets the answer of another one, whatever a model does with its memory and its items."""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness import Serve, Server

CLIENTS = 16
REQUESTS = 80


def count(
    server: Server, path: str, wrap: Callable[[float], object], read: Callable[[Any], set[float]]
) -> Counter[str]:
    """Send from many clients at once, one of them nothing but -1, and count what came."""

    def talk(name: int) -> Counter[str]:
        counted: Counter[str] = Counter()
        with server.client() as client:
            for request in range(REQUESTS):
                number = -1.0 if name == 0 else float(name * 1000 + request)
                reply = client.post(path, wrap(number))
                if reply.status != 200:
                    counted[f"{reply.status} {'bad' if number < 0 else 'good'}"] += 1
                else:
                    counted["right" if read(reply.json()) == {number} else "wrong"] += 1
        return counted

    with ThreadPoolExecutor(CLIENTS) as pool:
        return sum(pool.map(talk, range(CLIENTS)), Counter[str]())


def test_innocents_beside_a_bad_item_get_their_own_rows(serve: Serve) -> None:
    counted = count(serve("reuser.py"), "/rows", float, set)
    assert counted == {"right": (CLIENTS - 1) * REQUESTS, "500 bad": REQUESTS}


def test_innocents_beside_a_bad_item_are_not_changed_by_the_call_that_raised(serve: Serve) -> None:
    counted = count(serve("reuser.py"), "/doubled", lambda number: {"n": number}, lambda answer: {answer / 2})
    assert counted == {"right": (CLIENTS - 1) * REQUESTS, "500 bad": REQUESTS}


def test_memory_reused_by_the_next_batch_does_not_change_answers_under_way(serve: Serve) -> None:
    counted = count(serve("reuser.py"), "/dicts", float, lambda answer: set(answer["values"]))
    assert counted == {"right": CLIENTS * REQUESTS}
