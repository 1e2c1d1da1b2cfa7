"""Actors whose front was killed. Last of all files here: a lease takes a minute, and the tests before it fill it."""

from harness import until
from watching import actors


def test_actors_end_by_themselves_when_no_front_answers_for_their_lease(orphans: list[str]) -> None:
    assert orphans
    until(lambda: not set(orphans) & set(actors()), "they end a minute after their front", 90)
