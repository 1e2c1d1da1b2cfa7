"""What is said while no Ray cluster answers. Ray is not needed for it."""

import socket

from jitney.backends.ray.reach import unreachable, wait_until_reached, watch


def listener() -> tuple[socket.socket, str]:
    """Listen at a free port."""
    listening = socket.create_server(("127.0.0.1", 0))
    return listening, f"127.0.0.1:{listening.getsockname()[1]}"


def test_an_address_where_nothing_listens_is_said_once_until_something_answers() -> None:
    listening, address = listener()
    listening.close()
    said: list[str] = []
    pauses: list[float] = []
    opened: list[socket.socket] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            opened.append(socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))

    wait_until_reached(address, said.append, pause)
    assert said == [f"cannot reach the Ray cluster at {address}: Connection refused"]
    assert len(pauses) == 3
    opened[0].close()


def test_a_cluster_client_has_an_address_too_and_the_one_of_this_machine_is_left_to_ray() -> None:
    listening, address = listener()
    assert unreachable(f"ray://{address}") is None
    listening.close()
    assert unreachable(f"ray://{address}") == f"cannot reach the Ray cluster at ray://{address}: Connection refused"
    said: list[str] = []
    wait_until_reached("auto", said.append)
    assert said == []


def test_a_cluster_is_gone_after_some_failures_in_a_row() -> None:
    listening, address = listener()
    said: list[str] = []
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            listening.close()

    watch(address, said.append, pause)
    assert said == [f"cannot reach the Ray cluster at {address}: Connection refused"]
    assert len(pauses) == 4
