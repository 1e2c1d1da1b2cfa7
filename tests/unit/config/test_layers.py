"""Layers of options: their order, their strictness, and that nothing is lost on the way to a worker."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Any, cast

import jitney
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jitney.config.layers import (
    DeploymentOptions,
    Overrides,
    ServerOptions,
    SetText,
    environment_name,
    resolve,
    resolve_server,
)
from jitney.config.options import deployment_options, server_options
from jitney.config.reading import read_overrides
from jitney.errors import ConfigError


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "jitney.toml"
    path.write_text(text)
    return str(path)


def test_defaults_are_those_of_the_design() -> None:
    options = DeploymentOptions()
    assert (options.max_batch_size, options.replicas, options.max_queued_items) == (32, 1, 4096)
    assert options.max_queued_bytes == 256 * 1024**2
    assert (options.policy, options.max_batch_delay_ms) == ("auto", 0)
    assert ServerOptions().listen == ("tcp:127.0.0.1:8000",)


def test_each_layer_wins_over_the_weaker_ones(tmp_path: Path) -> None:
    toml = write(tmp_path, "[deployment.m]\nmax_batch_size = 3\nreplicas = 3\nmax_queued_items = 3\n")
    environ = {"JITNEY_M__REPLICAS": "4", "JITNEY_M__MAX_QUEUED_ITEMS": "4"}
    overrides = read_overrides(toml, environ, ["m.max_queued_items=5"])
    declared = {"batch_timeout_s": 2, "max_batch_size": 2, "replicas": 2, "max_queued_items": 2}
    resolved = resolve("m", declared, overrides)
    options = resolved.options
    assert options.batch_timeout_s == 2.0
    assert (options.max_batch_size, options.replicas, options.max_queued_items) == (3, 4, 5)
    keys = ("load_timeout_s", "batch_timeout_s", "max_batch_size", "replicas", "max_queued_items")
    assert [resolved.sources[key] for key in keys] == ["default", "decorator", "file", "environment", "set"]


def test_a_delay_means_fixed_and_contradicts_drain() -> None:
    assert resolve("m", {"max_batch_delay_ms": 5}, Overrides()).options.policy == "fixed"
    assert resolve("m", {"policy": "fixed"}, Overrides()).options.policy == "fixed"
    with pytest.raises(ConfigError, match=r"policy `eager` .*never waits"):
        resolve("m", {"max_batch_delay_ms": 5, "policy": "eager"}, Overrides())


def test_more_ready_replicas_than_replicas_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"min_ready_replicas is 2 \(decorator\).*only 1 replicas \(default\)"):
        resolve("m", {"min_ready_replicas": 2}, Overrides())


@pytest.mark.parametrize(
    ("sets", "message"),
    [
        (["m.max_bach_size=3"], r"--set m\.max_bach_size: there is no option .*did you mean `max_batch_size`"),
        (
            ["m.max_batch_size=0"],
            r"--set m\.max_batch_size: expected a whole number of at least 1 and at most 4294967295, got",
        ),
        (["m.max_batch_size=many"], "expected a whole number of at least 1 .*, got 'many'"),
        (["m.request_timeout_s=0"], "expected a number of more than 0 and at most 31536000, got '0'"),
        (["m.request_timeout_s=inf"], "expected a number"),
        (["m.retry=maybe"], "expected true or false, got 'maybe'"),
        (["m.policy=soon"], "expected one of auto, eager, fixed, got 'soon'"),
        (["m.policy=drain"], "expected one of auto, eager, fixed, got 'drain'"),
        (["m.batched=false"], "set it in @jitney.deployment"),
        (["m"], "expected NAME.option=value"),
        (["max_batch_size=3"], "expected NAME.option=value"),
        (["server.log_level=debug"], "flags: --log-level debug"),
    ],
)
def test_a_wrong_set_argument_is_named(sets: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_overrides(None, {}, sets)


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[deployment.m]\nreplica = 3", r"jitney\.toml \[deployment.m\]: .*did you mean `replicas`"),
        ("[deployment.m]\nreplicas = '3'", "expected a whole number of at least 1 .*, got '3'"),
        ("[deployment.m]\nreplicas = true", "expected a whole number of at least 1 .*, got True"),
        ("[deployment.m]\nretry = 1", "expected true or false, got 1"),
        ("[deploymen.m]\nreplicas = 3", "did you mean `deployment`"),
        ("[server]\nlog_levl = 'info'", "did you mean `log_level`"),
        ("[deployment]\nm = 3", r"`deployment.m` is a table, written \[deployment.m\]"),
        ("[deployment.m.init]\nday = 2020-01-01", "`day`: date is not supported"),
        ("[deployment.m.init]\nx = [inf]", "not a finite number"),
        ("x = ", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named(tmp_path: Path, toml: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_overrides(write(tmp_path, toml), {}, [])


def test_a_missing_file_is_named() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml cannot be read"):
        read_overrides("nowhere.toml", {}, [])


def test_the_environment_is_strict_where_it_is_ours() -> None:
    assert read_overrides(None, {"PATH": "x", "JITNEY_SECRET": "x"}, []).environment_names() == {}
    with pytest.raises(ConfigError, match=r"JITNEY_M__REPLICS: .*did you mean `replicas`"):
        read_overrides(None, {"JITNEY_M__REPLICS": "2"}, [])
    with pytest.raises(ConfigError, match=r"JITNEY_M__INIT__KEY: .*--set NAME\.init\.key=VALUE$"):
        read_overrides(None, {"JITNEY_M__INIT__KEY": "hunter2"}, [])
    with pytest.raises(ConfigError, match="names no deployment"):
        read_overrides(None, {"JITNEY___REPLICAS": "2"}, [])


def test_names_are_kept_and_unknown_ones_found(tmp_path: Path) -> None:
    toml = write(tmp_path, "[deployment.embeder]\nreplicas = 2\n[deployment.'my-model.v2']\n[server]\n")
    environ = {"JITNEY_MY_MODEL_V2__REPLICAS": "2", "JITNEY_OTHER__REPLICAS": "2", "JITNEY_SERVER__LOG_LEVEL": "debug"}
    overrides = read_overrides(toml, environ, ["my-model.v2.init.path=x", "my-model.v2.retry=no"])
    assert overrides.names().keys() == {"embeder", "my-model.v2"}
    assert overrides.environment_names().keys() == {"MY_MODEL_V2", "OTHER"}
    messages = overrides.unknown_names(["embedder", "my-model.v2"])
    assert len(messages) == 2
    assert f"{toml} [deployment.embeder]: there is no deployment `embeder`; did you mean `embedder`?" in messages
    resolved = resolve("my-model.v2", {}, overrides)
    assert (resolved.options.replicas, resolved.options.retry) == (2, False)


def test_constructor_arguments_come_typed_from_the_file_and_as_text_from_set(tmp_path: Path) -> None:
    toml = write(tmp_path, "[deployment.m.init]\nlayers = [1, 2]\npath = 'a'\n")
    overrides = read_overrides(toml, {}, ["m.init.path=b=c"])
    resolved = resolve("m", {}, Overrides.from_json(overrides.to_json()))
    assert resolved.init == {"layers": [1, 2], "path": "b=c"}
    assert type(resolved.init["path"]) is SetText


def test_server_options_come_from_file_environment_and_flags(tmp_path: Path) -> None:
    toml = write(tmp_path, "[server]\nlog_level = 'warn'\nlog_format = 'json'\nlisten = ['unix:a']\n")
    overrides = read_overrides(
        toml, {"JITNEY_SERVER__LOG_LEVEL": "error", "JITNEY_SERVER__LISTEN": "unix:a,unix:b"}, []
    )
    resolved = resolve_server({"drain_timeout_s": 5.0}, Overrides.from_json(overrides.to_json()))
    assert (resolved.options.log_level, resolved.options.log_format) == ("error", "json")
    assert resolved.options.listen == ("unix:a", "unix:b")
    assert resolved.options.to_dict()["listen"] == ["unix:a", "unix:b"]
    assert resolved.sources["drain_timeout_s"] == "set"
    with pytest.raises(ConfigError, match="log_levels"):
        resolve_server({"log_levels": "x"}, overrides)


def test_crossing_as_json_changes_nothing(tmp_path: Path) -> None:
    toml = write(tmp_path, "[deployment.m]\ndevices = ['cuda:0']\nmax_batch_delay_ms = 2\n")
    overrides = read_overrides(toml, {"JITNEY_M__MAX_BATCH_COST": "none"}, ["m.replicas=2"])
    assert resolve("m", {}, Overrides.from_json(overrides.to_json())) == resolve("m", {}, overrides)
    assert resolve("m", {}, overrides).options.devices == ("cuda:0",)


def test_every_option_says_what_it_means_and_fits_its_type() -> None:
    for table in (deployment_options(), server_options()):
        for option in table.values():
            assert option.meaning
            assert option.default is None or isinstance(option.default, option.base)
            if option.name.endswith(("_s", "_ms", "_bytes")):
                assert option.unit is not None


@given(st.text(max_size=20))
def test_a_name_in_the_environment_has_only_its_letters(name: str) -> None:
    assert set(environment_name(name)) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


@given(st.data())
def test_what_is_written_as_text_is_read_back(data: st.DataObject) -> None:
    options = {
        "max_batch_size": data.draw(st.integers(1, 2**32 - 1)),
        "max_batch_delay_ms": data.draw(st.floats(0, 1e9)),
        "retry": data.draw(st.booleans()),
        "policy": "fixed",
    }
    for key, value in options.items():
        assert deployment_options()[key].parse_text(str(value)) == value


def test_options_cross_as_the_server_declares_them() -> None:
    core = pytest.importorskip("jitney._core", reason="jitney._core is not built")
    core.check_options("deployment", json.dumps(DeploymentOptions().to_dict()))
    core.check_options("server", json.dumps(ServerOptions().to_dict()))
    for kind, options in (("deployment", DeploymentOptions()), ("server", ServerOptions())):
        # To the reader of the JSON an option that may be None and one that is missing are the same.
        for missing in (row for row in dataclasses.fields(options) if getattr(options, row.name) is not None):
            partial = {key: value for key, value in options.to_dict().items() if key != missing.name}
            with pytest.raises(ValueError, match=missing.name):
                core.check_options(kind, json.dumps(partial))
        with pytest.raises(ValueError, match="surplus"):
            core.check_options(kind, json.dumps({**options.to_dict(), "surplus": 1}))


@pytest.mark.parametrize(
    ("name", "is_shown"),
    [
        ("api_key", False), ("apiKey", False), ("KEY", False), ("hf-token", False), ("accesstoken", False),
        ("password", False), ("client_secrets", False), ("credentials", False),
        ("token", False), ("id_token", False), ("image_registry_token", False), ("max_retries_token", False),
        ("tokenizer", True), ("max_tokenization", True), ("folder", True), ("keyboard", True),
        ("max_tokens", True), ("max_new_tokens", True), ("maxTokens", True), ("pad_token", True), ("bos_token", True),
        ("eos_token_id", True), ("decoder_start_token_id", True), ("additional_special_tokens", True),
    ],
)  # fmt: skip
def test_what_looks_secret_is_not_shown(name: str, is_shown: bool) -> None:
    resolved = resolve("m", {}, read_overrides(None, {}, [f"m.init.{name}=hunter2"]))
    assert resolved.init == {name: "hunter2"}
    assert resolved.shown_init() == {name: "hunter2" if is_shown else "***"}


def test_secrets_inside_of_constructor_arguments_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "jitney.toml"
    path.write_text('[deployment.m.init]\nstore = [{url = "redis://u:p@host/1", secret = ["x"]}]\nn = 3\n')
    shown = resolve("m", {}, read_overrides(str(path), {}, [])).shown_init()
    assert shown == {"store": [{"url": "redis://***@host/1", "secret": "***"}], "n": 3}


def test_headers_for_the_context_are_names_in_lower_case_and_never_those_of_secrets() -> None:
    options = resolve("d", {"context_headers": ["X-Tenant"]}, read_overrides(None, {}, ())).options
    assert options.context_headers == ("x-tenant",)
    for header in ("Authorization", "cookie", "x-api-key", "proxy-authorization"):
        with pytest.raises(ConfigError, match=r"`d`: context_headers has .* \(decorator\), which holds a secret"):
            resolve("d", {"context_headers": [header]}, read_overrides(None, {}, ()))
    with pytest.raises(ConfigError, match="is not the name of a header"):
        resolve("d", {}, read_overrides(None, {}, ["d.context_headers=x tenant"]))


def test_a_time_is_a_finite_number_of_at_most_a_year() -> None:
    lengths = [(name, row) for name, row in deployment_options().items() if row.unit in ("s", "ms")]
    lengths += [(name, row) for name, row in server_options().items() if row.unit == "s"]
    assert len(lengths) == 15
    for name, row in lengths:
        for value in (1e300, 10**400, float("nan"), float("inf"), -1, -1e-9):
            with pytest.raises(ValueError, match="expected"):
                row.parse_typed(value)
            with pytest.raises(ValueError, match="expected"):
                row.parse_text(str(value))
        year = 365 * 86_400 * (1000 if row.unit == "ms" else 1)
        assert row.parse_typed(year) == year, name


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("timeout", "request_timeout_s"),
        ("max_wait_time", "max_batch_delay_ms"),
        ("batch_timeout", "max_batch_delay_ms"),
        ("wait_time", "max_batch_delay_ms"),
        ("workers", "replicas"),
        ("num", "replicas"),
        ("num_replicas", "replicas"),
        ("workers_per_device", "replicas"),
        ("accelerator", "devices"),
        ("max_latency_ms", "latency_target_ms"),
    ],
)
def test_a_name_that_another_server_has_leads_to_ours(theirs: str, ours: str) -> None:
    with pytest.raises(ConfigError, match=f"there is no option `{theirs}`; did you mean `{ours}`"):
        resolve("m", {}, read_overrides(None, {}, [f"m.{theirs}=3"]))
    with pytest.raises(ConfigError, match=rf"\(decorator\): there is no option `{theirs}`; did you mean `{ours}`"):
        jitney.deployment(**cast("dict[str, Any]", {theirs: 3}))(write)


def test_all_wrong_options_of_a_decorator_are_named_at_once() -> None:
    wrong: dict[str, Any] = {"num_replicas": 2, "max_bach_size": 3}
    with pytest.raises(ConfigError, match=r"`num_replicas`; did you .*; there is no option `max_bach_size`; did you"):
        jitney.deployment(**wrong)(write)


def test_a_program_is_told_of_the_keyword_that_it_wrote() -> None:
    cases: list[tuple[str, object, str]] = [
        ("m.replicas", 0, "options: `m.replicas`: expected a whole number of at least 1"),
        ("m.replica", 2, "options: `m.replica`: there is no option `replica`; did you mean `replicas`?"),
        ("replicas", 2, "options: `replicas`: expected NAME.option"),
        ("server.listen", "x", "options: `server.listen`: an engine inside a program has no options of a server"),
        ("m.init.scale", object(), "options: `m.init.scale`: object is not supported"),
    ]
    for key, value, says in cases:
        with pytest.raises(ConfigError) as refused:
            Overrides().give(key, value)
        assert says in str(refused.value)
        assert "--set" not in str(refused.value)
    overrides = Overrides()
    for key, value in (("m.devices", ["cuda:0", "cuda:1"]), ("m.retry", False), ("m.max_batch_size", 8)):
        overrides.give(key, value)
    options = resolve("m", {}, overrides).options
    assert (options.devices, options.retry, options.max_batch_size) == (("cuda:0", "cuda:1"), False, 8)


def test_a_flag_is_an_option_of_the_only_deployment_and_its_name_is_stronger() -> None:
    overrides = Overrides()
    overrides.give_flag("replicas", "2")
    overrides.give_flag("devices", "cuda:0,cuda:1")
    overrides.check_flags(["m"], "m")
    resolved = resolve("m", {"replicas": 4}, Overrides.from_json(overrides.to_json()))
    assert (resolved.options.replicas, resolved.sources["replicas"]) == (2, "set")
    assert resolved.options.devices == ("cuda:0", "cuda:1")
    overrides.sets.put("m", "replicas", 3, "--set m.replicas")
    assert resolve("m", {}, overrides).options.replicas == 3
    message = r"--replicas 2 is for one deployment, but there are several \(m, n\); write --set m.replicas=2"
    with pytest.raises(ConfigError, match=message):
        overrides.check_flags(["m", "n"], "m")


def test_devices_are_names_or_auto_alone() -> None:
    assert resolve("m", {"devices": "auto"}, Overrides()).options.devices == ("auto",)
    assert resolve("m", {"devices": "cuda:0, cuda:1"}, Overrides()).options.devices == ("cuda:0", "cuda:1")
    with pytest.raises(ConfigError, match=r"devices are auto, cpu \(decorator\); write `auto` alone"):
        resolve("m", {"devices": ["auto", "cpu"]}, Overrides())


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[server]\nport = 9000", '[server]: there is no option `port`; write listen = ["tcp:127.0.0.1:9000"]'),
        ("[server]\nhost = '::'\nport = 9000", 'there is no option `host`; write listen = ["tcp:[::]:9000"]'),
        (
            "[server]\nreplicas = 2",
            "[server]: `replicas` is not an option of this table; write it in [deployment.NAME]",
        ),
        ("[deployment.m]\nlog_level = 'info'", "`log_level` is not an option of this table; write it in [server]"),
        (
            "[m]\nreplicas = 2",
            "there is no table `m`; options of a deployment are in [deployment.m]",
        ),
        ("[sentiment]\nreplicas = 2", "there is no table `sentiment`; options of a deployment are in [deployment.sent"),
        ("[deployment.m]\nport = 9000", 'no option `port`; write listen = ["tcp:127.0.0.1:9000"] in [server]'),
        ("replicas = 2", "`replicas` is in no table; write it in [deployment.NAME]"),
        ("listen = []", "`listen` is in no table; write it in [server]"),
    ],
)
def test_what_stands_in_the_wrong_place_of_a_file_is_led_to_the_right_one(
    tmp_path: Path, toml: str, message: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_overrides(write(tmp_path, toml), {}, [])
    assert message in str(refused.value)


def test_the_port_of_the_environment_has_its_own_variable() -> None:
    with pytest.raises(ConfigError, match=r"JITNEY_SERVER__PORT: there is no option `port`; write JITNEY_PORT$"):
        read_overrides(None, {"JITNEY_SERVER__PORT": "9000"}, [])


def test_an_error_names_the_place_where_the_value_is_written(tmp_path: Path) -> None:
    """Not the layer alone: an operator must find the flag, the variable, or the table of the file."""
    both = r"min_ready_replicas is 3 \({}\), but there are only 2 replicas \({}\)"
    toml = write(tmp_path, "[deployment.m]\nmin_ready_replicas = 3\n")
    overrides = read_overrides(toml, {"JITNEY_M__REPLICAS": "2"}, [])
    with pytest.raises(ConfigError, match=both.format(re.escape(f"{toml} [deployment.m]"), "JITNEY_M__REPLICAS")):
        resolve("m", {}, overrides)
    overrides = read_overrides(None, {}, ["m.min_ready_replicas=3"])
    overrides.give_flag("replicas", "2")
    for received in (overrides, Overrides.from_json(overrides.to_json())):  # in the front and in a worker
        with pytest.raises(ConfigError, match=both.format("--set m.min_ready_replicas", "--replicas")):
            resolve("m", {}, received)
    overrides = Overrides()
    overrides.give("m.min_ready_replicas", 3)
    with pytest.raises(ConfigError, match=both.format("options: `m.min_ready_replicas`", "decorator")):
        resolve("m", {"replicas": 2}, overrides)
