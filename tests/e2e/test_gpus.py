"""Metrics of GPUs, from a library that pretends to be NVIDIA's."""

import shutil
import subprocess
from pathlib import Path

import pytest
from harness import Serve, Server

pytestmark = pytest.mark.skipif(
    shutil.which("cc") is None, reason="cc is not installed: the pretended NVML is not built"
)

ON_GPU = ("--set", "sleepy.devices=cuda:0")
PER_GPU = {"gpu": "0", "uuid": "GPU-fake-0"}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nvml")
    source = Path(__file__).with_name("fake_nvml.c")
    made = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", "-o", made, source], check=True)
    return folder


def page(server: Server) -> str:
    return server.get("/metrics").body.decode()


def test_gpus_and_the_memory_of_workers_are_shown(serve: Serve, library: Path, tmp_path: Path) -> None:
    processes = tmp_path / "processes"
    processes.write_text("1 7\n")
    environment = {"LD_LIBRARY_PATH": str(library), "FAKE_NVML_PROCESSES": str(processes)}
    server = serve("sleepy.py", arguments=ON_GPU, environment=environment)
    for name, value in {
        "jitney_gpu_utilization_ratio": 0.75,
        "jitney_gpu_memory_used_bytes": 400,
        "jitney_gpu_memory_total_bytes": 1000,
        "jitney_gpu_power_watts": 250.5,
        "jitney_gpu_energy_joules_total": 2.5,
        "jitney_gpu_temperature_celsius": 61,
    }.items():
        assert server.metric(name, **PER_GPU) == value, name
    assert server.metric("jitney_gpu_energy_joules_total", **PER_GPU) == 2.5, "it is not counted twice"
    assert server.metric("jitney_gpu_utilization_ratio", gpu="1") == 0.5
    assert 'jitney_gpu_power_watts{gpu="1"' not in page(server), "what a GPU does not know is not 0"
    assert "jitney_worker_gpu_memory_bytes{" not in page(server), "no worker is known by this number"
    (worker,) = server.workers()
    processes.write_text(f"1 7\n{worker} 300\n")
    assert server.metric("jitney_worker_gpu_memory_bytes", deployment="sleepy", replica="0") == 300


def test_without_the_library_or_a_worker_on_a_gpu_nothing_is_shown(serve: Serve, library: Path) -> None:
    for arguments, environment in ((ON_GPU, {}), ((), {"LD_LIBRARY_PATH": str(library)})):
        server = serve("sleepy.py", arguments=arguments, environment=environment)
        assert server.post("/sleepy", "a").status == 200
        assert "jitney_gpu_" not in "".join(line for line in page(server).splitlines() if not line.startswith("#"))
