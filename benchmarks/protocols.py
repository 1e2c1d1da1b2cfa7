"""The Open Inference Protocol compared with the native route: one server, one generator, the same array, in turn."""

import json
import re
import struct
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import dataclass

from servers import Running

INFER = "/v2/models/rows/infer"
MODEL_INFER = "/inference.GRPCInferenceService/ModelInfer"
SHORT, MEGABYTE = 16, 250_000
CLIENTS = 64


@dataclass(frozen=True)
class Way:
    """One way to send an array."""

    path: str
    body: bytes
    headers: tuple[str, ...]
    connections: int
    streams: int = 1
    is_http2: bool = False

    @property
    def least(self) -> int:
        """Bytes that an answer has at least: a refusal in gRPC has status 200 too, but no body."""
        return len(self.body) // 4


def native(count: int, clients: int) -> Way:
    if count == SHORT:
        return Way("/rows", json.dumps([0.5] * count).encode(), ("content-type: application/json",), clients)
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({count},), }}".ljust(117) + "\n"
    npy = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + floats(count)
    return Way("/rows", npy, ("content-type: application/x-npy", "accept: application/x-npy"), clients)


def rest(count: int, clients: int) -> Way:
    tensor = {"name": "x", "shape": [1, count], "datatype": "FP32", "data": [0.5] * count}
    return Way(INFER, json.dumps({"inputs": [tensor]}).encode(), ("content-type: application/json",), clients)


def binary(count: int, clients: int) -> Way:
    tensor = {"name": "x", "shape": [1, count], "datatype": "FP32", "parameters": {"binary_data_size": 4 * count}}
    head = json.dumps({"parameters": {"binary_data_output": True}, "inputs": [tensor]}).encode()
    length = f"inference-header-content-length: {len(head)}"
    return Way(INFER, head + floats(count), ("content-type: application/octet-stream", length), clients)


def grpc(count: int, clients: int) -> Way:
    tensor = field(1, b"x") + field(2, b"FP32") + field(3, varint(1) + varint(count))
    message = field(1, b"rows") + field(5, tensor) + field(7, floats(count))
    body = b"\0" + struct.pack(">I", len(message)) + message
    connections = max(clients // 8, 1)
    headers = ("content-type: application/grpc", "te: trailers")
    return Way(MODEL_INFER, body, headers, connections, clients // connections, is_http2=True)


def floats(count: int) -> bytes:
    return struct.pack("<f", 0.5) * count


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def h2load(running: Running, way: Way, seconds: float) -> dict[str, float]:
    """One closed-loop run; every answer must be as long as one that holds the array."""
    with tempfile.NamedTemporaryFile() as body:
        body.write(way.body)
        body.flush()
        command = [
            "h2load", f"--duration={seconds:.0f}", f"--clients={way.connections}",
            f"--max-concurrent-streams={way.streams}", "--window-bits=24", "--connection-window-bits=26",
            "--data", body.name,
            *([] if way.is_http2 else ["--h1"]), *(word for header in way.headers for word in ("--header", header)),
            f"http://127.0.0.1:{running.port}{way.path}",
        ]  # fmt: skip
        cpu = running.front_cpu_s()
        done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        cpu = running.front_cpu_s() - cpu
    found = re.search(r"(\d+) succeeded, (\d+) failed", done)
    requests, failed = (int(found.group(1)), int(found.group(2))) if found else (0, 0)
    received = re.search(r"\((\d+)\) data", done)
    answer_bytes = int(received.group(1)) / max(requests, 1) if received else 0.0
    if not requests or failed or answer_bytes < way.least:
        raise RuntimeError(f"{way.path}: {requests} answers of {answer_bytes:.0f} bytes, {failed} failed:\n{done}")
    return {"rps": requests / seconds, "front_cpu_us": cpu / requests * 1e6}


Figures = dict[str, float]


Measured = Callable[[Running, float], dict[str, float]]


def compared(ways: dict[str, Callable[[int, int], Way]], count: int, clients: int) -> Measured:
    """Measure each way in turn, and compare it with the first."""

    def measure(running: Running, seconds: float) -> dict[str, float]:
        figures: dict[str, float] = {}
        for name, way in ways.items():
            for key, value in h2load(running, way(count, clients), max(seconds, 2)).items():
                figures[f"{name}_{key}"] = value
        for name in ways:
            figures[f"{name}_of_native"] = figures[f"{name}_rps"] / figures["native_rps"]
            figures[f"{name}_cpu_of_native"] = figures[f"{name}_front_cpu_us"] / figures["native_front_cpu_us"]
            figures[f"{name}_mb_s"] = figures[f"{name}_rps"] * 4 * count / 1e6
        return figures

    return measure


SHORT_ARRAYS = compared({"native": native, "rest": rest, "binary": binary, "grpc": grpc}, SHORT, CLIENTS)
MEGABYTES = compared({"native": native, "binary": binary, "grpc": grpc}, MEGABYTE, 8)
