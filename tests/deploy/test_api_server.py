"""The manifests in a real API server of Kubernetes. It refuses what schemas cannot know. No kubelet runs."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, cast
from urllib.request import urlopen

import pytest
import yaml
from containers import free_port
from harness import until
from test_https import Pair
from test_kubernetes import FOLDER, OVERLAYS, rendered
from tools import DEPLOY, ROOT, run

OPERATORS = Path(__file__).parent / "apiserver/operators.yaml"
PAGE = ROOT / "docs/operations/deployment.md"
TOKEN = "of-an-administrator"
READY_S = 120


class Cluster:
    """etcd and kube-apiserver on free ports of 127.0.0.1, and a kubectl that calls them."""

    def __init__(self, folder: Path, url: str, certificate: Path) -> None:
        self.environment = os.environ | {"KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder)}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(certificate)}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(config))

    def kubectl(
        self, *words: object, check: bool = True, text: str = "", cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return run("kubectl", *words, check=check, env=self.environment, input=text, cwd=cwd)

    def quiet(self, *words: object, text: str = "", cwd: Path | None = None) -> str:
        """Return the output of a command about which neither the API server nor kubectl warns."""
        ran = self.kubectl(*words, text=text, cwd=cwd)
        assert ran.stderr == "", " ".join(map(str, words))
        return ran.stdout

    def namespace(self, name: str) -> None:
        """Make a namespace that takes only pods without any privilege, and warns about Deployments of others."""
        levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
        one = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": levels}}
        self.quiet("create", "--filename", "-", text=json.dumps(one))
        # A controller makes it elsewhere. Pods are refused without it.
        self.quiet("create", "serviceaccount", "default", "--namespace", name)

    def get(self, namespace: str, found: dict[str, Any]) -> dict[str, Any]:
        """Return the object as the API server has it."""
        kind, name = found["kind"], found["metadata"]["name"]
        return json.loads(self.quiet("get", kind, name, "--namespace", namespace, "--output", "json"))


def is_ready(url: str, pair: Pair, *servers: subprocess.Popen[bytes]) -> bool:
    assert all(server.poll() is None for server in servers), "a server has ended"
    try:
        with urlopen(f"{url}/readyz", context=pair.trusted("http/1.1")) as answer:
            return answer.read() == b"ok"
    except OSError:
        return False


def need_servers() -> None:
    """Skip a test whose servers are not installed. Go may be missing: no package of Debian has kube-apiserver."""
    missing = [name for name in ("kubectl", "etcd", "kube-apiserver", "openssl") if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}; with Go 1.24 or later `make deploy-tools` installs them")


@contextmanager
def started(log: Path, *command: object) -> Generator[subprocess.Popen[bytes]]:
    with log.open("w") as file, subprocess.Popen([*map(str, command)], stdout=file, stderr=file) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster without the kinds of operators."""
    need_servers()
    folder = tmp_path_factory.mktemp("cluster")
    pair, port = Pair(folder, "apiserver"), free_port()
    data, peers = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    (folder / "tokens").write_text(f"{TOKEN},admin,1,system:masters\n")
    url = f"https://127.0.0.1:{port}"
    etcd = {
        "data-dir": folder / "etcd",
        "listen-client-urls": data,
        "advertise-client-urls": data,
        "listen-peer-urls": peers,
        "initial-advertise-peer-urls": peers,
        "initial-cluster": f"default={peers}",
    }
    server = {
        "etcd-servers": data,
        "bind-address": "127.0.0.1",
        "advertise-address": "127.0.0.1",
        "endpoint-reconciler-type": "none",
        "secure-port": port,
        "cert-dir": folder,
        "tls-cert-file": pair.cert,
        "tls-private-key-file": pair.key,
        "token-auth-file": folder / "tokens",
        "authorization-mode": "RBAC",
        "service-account-issuer": "https://kubernetes.default.svc",
        "service-account-key-file": pair.cert,
        "service-account-signing-key-file": pair.key,
        "service-cluster-ip-range": "10.0.0.0/24",
    }
    with ExitStack() as stack:
        servers: list[subprocess.Popen[bytes]] = []
        for name, options in (("etcd", etcd), ("kube-apiserver", server)):
            words = [f"--{option}={value}" for option, value in options.items()]
            servers.append(stack.enter_context(started(folder / f"{name}.log", name, *words)))
        try:
            until(lambda: is_ready(url, pair, *servers), "the API server is ready", READY_S)
        except AssertionError as error:
            logs = "\n".join(path.read_text()[-3000:] for path in folder.glob("*.log"))
            raise AssertionError(f"{error}\n{logs}") from error
        yield Cluster(folder, url, pair.cert)


@pytest.fixture(scope="module")
def early(bare: Cluster) -> dict[str, subprocess.CompletedProcess[str]]:
    """Apply each overlay to its own namespace, where no operator is installed."""
    for overlay in OVERLAYS:
        bare.namespace(overlay)
    return {name: bare.kubectl(*apply(name), "--dry-run=server", check=False) for name in OVERLAYS}


@pytest.fixture(scope="module")
def cluster(bare: Cluster, early: dict[str, subprocess.CompletedProcess[str]]) -> Cluster:
    """The cluster, with the kinds of operators."""
    assert early
    bare.quiet("apply", "--server-side", "--filename", OPERATORS)
    bare.quiet("wait", "--for=condition=Established", "customresourcedefinition", "--all", "--timeout=60s")
    return bare


def apply(overlay: str) -> list[object]:
    return ["apply", "--kustomize", FOLDER / "overlays" / overlay, "--namespace", overlay]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_kubectl_names_a_missing_operator_and_applies_the_rest(
    overlay: str, early: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    kinds = [one["kind"] for one in rendered(overlay)]
    foreign = {"PodMonitor", "PrometheusRule", "ScaledObject"}.intersection(kinds)
    assert foreign and early[overlay].returncode == 1
    for kind in foreign:
        assert f'no matches for kind "{kind}"' in early[overlay].stderr
    assert early[overlay].stdout.count(" created (server dry run)\n") == len(kinds) - len(foreign)


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_api_server_takes_each_object_without_a_warning(overlay: str, cluster: Cluster) -> None:
    # First as the page for operators says.
    for words in (["--dry-run=server"], ["--dry-run=server", "--server-side"], ["--server-side"]):
        lines = cluster.quiet(*apply(overlay), *words).splitlines()
        assert len(lines) == len(rendered(overlay)), words
    for wanted in rendered(overlay):
        kept = leaves(cluster.get(overlay, wanted)["spec"])
        changed = [path for path, value in leaves(wanted["spec"]).items() if kept.get(path) != value]
        assert changed == [], (wanted["kind"], wanted["metadata"]["name"])
    # The same once more changes nothing.
    before = versions(overlay, cluster)
    cluster.quiet(*apply(overlay), "--server-side")
    assert versions(overlay, cluster) == before


def versions(overlay: str, cluster: Cluster) -> list[str]:
    return [cluster.get(overlay, one)["metadata"]["resourceVersion"] for one in rendered(overlay)]


def leaves(value: Any, where: str = "spec") -> dict[str, Any]:
    """Return the values in an object by their paths."""
    if isinstance(value, dict):
        inside = [*cast(dict[str, Any], value).items()]
    elif isinstance(value, list):
        inside = [(str(at), one) for at, one in enumerate(cast(list[Any], value))]
    else:
        return {where: value}
    return {path: leaf for key, one in inside for path, leaf in leaves(one, f"{where}.{key}").items()}


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_its_pods_need_no_privilege(overlay: str, cluster: Cluster) -> None:
    templates = [one["spec"]["template"] for one in rendered(overlay) if one["kind"] == "Deployment"]
    assert templates
    for template in templates:
        pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "spec": template["spec"]}
        pod["metadata"] = template["metadata"] | {"name": "one"}
        create = ["create", "--dry-run=server", "--namespace", overlay, "--filename", "-"]
        cluster.quiet(*create, text=json.dumps(pod))
        (container,) = template["spec"]["containers"]
        unlimited = {key: value for key, value in container.items() if key != "securityContext"}
        pod["spec"] = template["spec"] | {"containers": [unlimited]}
        refused = cluster.kubectl(*create, check=False, text=json.dumps(pod)).stderr
        assert 'violates PodSecurity "restricted' in refused


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_an_apply_leaves_the_number_of_pods_to_the_autoscaler(overlay: str, cluster: Cluster) -> None:
    cluster.quiet(*apply(overlay), "--server-side")
    kinds = ("ScaledObject", "HorizontalPodAutoscaler")
    (scaled,) = (one["spec"]["scaleTargetRef"]["name"] for one in rendered(overlay) if one["kind"] in kinds)
    cluster.quiet("scale", f"deployment/{scaled}", "--replicas=5", "--namespace", overlay)
    cluster.quiet(*apply(overlay), "--server-side")
    found = {"kind": "Deployment", "metadata": {"name": scaled}}
    assert cluster.get(overlay, found)["spec"]["replicas"] == 5


def test_the_commands_of_the_page_make_each_secret_that_pods_need(cluster: Cluster, tmp_path: Path) -> None:
    cluster.namespace("commands")
    for name in ("keys.txt", "secret"):
        (tmp_path / name).write_text("a\n")
    (tmp_path / "deploy").symlink_to(DEPLOY)
    commands = re.findall(r"^kubectl (.+)$", PAGE.read_text(), re.MULTILINE)
    assert len(commands) >= 5
    for command in commands:
        cluster.quiet(*command.split(), "--namespace", "commands", cwd=tmp_path)
    secrets = re.findall(r"'secretName': '([^']+)'", str([rendered(overlay) for overlay in OVERLAYS]))
    assert secrets
    for name in {*secrets}:
        cluster.quiet("get", "secret", name, "--namespace", "commands")
