"""`devices="auto"`: a torch that is imported is asked, else the driver; nothing is imported for it."""

import ctypes
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from jitney import devices
from jitney.devices import choose_device, find_devices


def fake_torch(cuda: int, mps: bool = False) -> Any:
    return SimpleNamespace(
        cuda=SimpleNamespace(is_available=lambda: cuda > 0, device_count=lambda: cuda),
        backends=SimpleNamespace(mps=SimpleNamespace(is_available=lambda: mps)),
    )


class FakeDriver:
    def __init__(self, count: int, code: int = 0) -> None:
        self.count, self.code, self.open = count, code, 0

    def nvmlInit_v2(self) -> int:
        self.open += self.code == 0
        return self.code

    def nvmlDeviceGetCount_v2(self, place: Any) -> int:
        place._obj.value = self.count
        return 0

    def nvmlShutdown(self) -> None:
        self.open -= 1


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "_DRIVER", "no-such-driver.so")


def with_driver(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> FakeDriver:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    return driver


@pytest.mark.parametrize(
    ("torch", "expected"),
    [
        (fake_torch(2), ["cuda:0", "cuda:1"]),
        (fake_torch(0, mps=True), ["mps"]),
        (fake_torch(0), ["cpu"]),
        (SimpleNamespace(), ["cpu"]),
    ],
)
def test_an_imported_torch_is_asked(monkeypatch: pytest.MonkeyPatch, torch: Any, expected: list[str]) -> None:
    monkeypatch.setitem(sys.modules, "torch", torch)
    with_driver(monkeypatch, FakeDriver(8))
    assert find_devices() == expected


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        (None, 4),
        ("", 0),
        ("-1", 0),
        ("2", 1),
        ("3, 0", 2),
        ("0,9,1", 1),
        ("GPU-5ebe9f43,MIG-c7e2", 2),
    ],
)
def test_the_driver_is_asked_for_what_cuda_will_show(
    monkeypatch: pytest.MonkeyPatch, visible: str | None, expected: int
) -> None:
    driver = with_driver(monkeypatch, FakeDriver(4))
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert find_devices() == ([f"cuda:{index}" for index in range(expected)] or ["cpu"])
    assert driver.open == 0


def test_without_devices_it_is_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_devices() == ["cpu"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert find_devices() == ["cpu"]
    with_driver(monkeypatch, FakeDriver(4, code=9))
    assert find_devices() == ["cpu"]
    assert "torch" not in sys.modules


def test_replicas_take_what_is_found_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(2))
    assert [choose_device("auto", replica) for replica in range(3)] == ["cuda:0", "cuda:1", "cuda:0"]
    assert choose_device("cuda:7", 1) == "cuda:7"
    assert choose_device(None, 1) is None
