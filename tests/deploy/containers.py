"""The image of `deploy/Dockerfile`, built and run without a registry: its base images are made of Debian's packages.

Everything is below `target/deploy`, which git ignores, and is made once.
"""

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from tools import DEPLOY, ROOT, need, run

FOLDER = ROOT / "target/deploy"
STORAGE = ("--root", str(FOLDER / "storage"), "--runroot", str(FOLDER / "run"), "--storage-driver", "overlay")
IMAGE = "localhost/jitney:test"
PACKAGES = "ca-certificates,python3,python3-pip,python3-venv,systemd,systemd-sysv"
# What a build needs of the machine: its certificates and its name servers.
MACHINE = ("/etc/ssl/certs/ca-certificates.crt", "/etc/resolv.conf")
BUILD_S = 1700


def buildah(*arguments: object, timeout_s: float = 120) -> str:
    environment = os.environ | {"BUILDAH_ISOLATION": "chroot"}
    return run("buildah", *STORAGE, *arguments, timeout_s=timeout_s, env=environment, cwd=ROOT).stdout.strip()


def podman(*arguments: object, check: bool = True, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = ("podman", *STORAGE, "--cgroup-manager", "cgroupfs", "--runtime", "runc")
    return run(*command, *arguments, check=check, timeout_s=timeout_s)


def base_images() -> dict[str, str]:
    """Return the default of each base image in the Dockerfile."""
    return dict(re.findall(r"^ARG (\w+_IMAGE)=(\S+)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE))


@cache
def image() -> str:
    """Build the whole Dockerfile, and return the name of the image."""
    need("buildah", "podman", "runc", "debootstrap", "rustc")
    FOLDER.mkdir(parents=True, exist_ok=True)
    names = base_images()
    present = buildah("images", "--format", "{{.Name}}:{{.Tag}}").splitlines()
    if names["PYTHON_IMAGE"] not in present:
        make_python(names["PYTHON_IMAGE"])
    if names["RUST_IMAGE"] not in present:
        make_rust(names["PYTHON_IMAGE"], names["RUST_IMAGE"])
    mounts = [word for path in MACHINE for word in ("--volume", f"{path}:{path}:ro")]
    jobs = os.environ.get("CARGO_BUILD_JOBS", "")
    arguments = ("--build-arg", f"CARGO_BUILD_JOBS={jobs}") if jobs else ()
    buildah(
        *("bud", "--pull-never", "--format", "docker", "--file", DEPLOY / "Dockerfile", "--tag", IMAGE),
        *(*mounts, *arguments, ROOT),
        timeout_s=BUILD_S,
    )
    return IMAGE


def root_file_system() -> Path:
    """Return a Debian of this machine's release, with Python and systemd."""
    folder, done = FOLDER / "debian", FOLDER / "debian.done"
    if not done.exists():
        shutil.rmtree(folder, ignore_errors=True)
        release = re.search(r"^VERSION_CODENAME=(\w+)$", Path("/etc/os-release").read_text(), re.MULTILINE)
        assert release, "this machine is not a Debian"
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", release[1], folder, timeout_s=600)
        (folder / "usr/bin/python").symlink_to("python3")
        for marker in folder.glob("usr/lib/python3*/EXTERNALLY-MANAGED"):
            marker.unlink()
        done.touch()
    return folder


def make_python(name: str) -> None:
    """Make a stand-in for the image of Python."""
    container = buildah("from", "scratch")
    mounted = buildah("mount", container)
    run("cp", "-a", f"{root_file_system()}/.", mounted, timeout_s=300)
    buildah("config", "--env", "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", container)
    finish(container, name)


def make_rust(python: str, name: str) -> None:
    """Make a stand-in for the image of Rust: the toolchain of this machine."""
    toolchain = Path(run("rustc", "--print", "sysroot").stdout.strip())
    container = buildah("from", "--pull-never", python)
    place = Path(buildah("mount", container)) / "usr/local/rust"
    target = "lib/rustlib"
    for part in ("bin", "lib"):
        (place / part).mkdir(parents=True)
    run(
        "sh",
        "-c",
        f"cp -a {toolchain}/bin/cargo {toolchain}/bin/rustc {place}/bin; cp -a {toolchain}/lib/*.so* {place}/lib",
    )
    (place / target).mkdir()
    for folder in (path for path in (toolchain / target).glob("*-linux-*") if path.is_dir()):
        shutil.copytree(folder, place / target / folder.name, symlinks=True)
    path = "/usr/local/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    buildah("config", "--env", f"PATH={path}", container)
    finish(container, name)


def finish(container: str, name: str) -> None:
    buildah("umount", container)
    buildah("commit", "--rm", container, name, timeout_s=600)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Container:
    """A container that runs; its network is that of this machine."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.port = name, port

    def inspect(self) -> dict[str, Any]:
        (found,) = json.loads(podman("inspect", self.name).stdout)
        return found

    def execute(self, *command: str, check: bool = True) -> str:
        return podman("exec", self.name, *command, check=check).stdout

    def log(self) -> str:
        ran = podman("logs", self.name)
        return ran.stdout + ran.stderr


@contextmanager
def running(*arguments: str, command: Sequence[str] = (), port: int | None = None) -> Generator[Container]:
    """Run the image with the limits of the composed stack, and with further arguments of podman."""
    port = port or free_port()
    limits = (
        "--read-only",
        "--tmpfs",
        "/tmp:size=1g,mode=1777",
        "--cap-drop",
        "ALL",
        "--security-opt",
        "no-new-privileges",
    )
    # In a container of a container limits can only go down, and podman's timers of health checks need systemd.
    here = (
        "--pull",
        "never",
        "--network",
        "host",
        "--no-healthcheck",
        "--ulimit",
        "nofile=4096:4096",
        "--ulimit",
        "nproc=4096:4096",
    )
    environment = ("--env", "JITNEY_ALLOW_UNAUTHENTICATED=true", "--env", f"JITNEY_PORT={port}")
    health = ("--env", f"HEALTH_URL=http://127.0.0.1:{port}/livez")
    ran = podman("run", "--detach", *limits, *here, *environment, *health, *arguments, image(), *command)
    container = Container(ran.stdout.strip(), port)
    try:
        yield container
    finally:
        podman("rm", "--force", "--time", "0", container.name, check=False)
