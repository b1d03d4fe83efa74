"""Nothing that comes from elsewhere names a class, is imported, or says where files are written."""

import contextlib
import functools
import json
import pickle
import re
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import yaml
from jsonargparse import ArgumentError, ArgumentParser
from lightning.pytorch import Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader

from bertlab.checkpoints.run_checkpoint import RUN_KEY, read_run_checkpoint
from bertlab.config.checkpoint_config import check_users_own, is_listed, read_stored_config
from bertlab.config.merge import read_request
from bertlab.config.named_classes import check_no_classes
from bertlab.config.parser import build_parser
from bertlab.config.request import SECTION
from bertlab.config.run_config import RunConfig, parse_request, resolve_request
from bertlab.config.yaml_files import keys_of, value_at
from bertlab.errors import (
    BertlabError,
    CheckpointError,
    DamagedCheckpointError,
    ResumeError,
)
from bertlab.model.module import BertModule
from bertlab.training.best_checkpoint import BestCheckpoint
from bertlab.training.record import RunRecord
from bertlab.training.run import Run
from tests.conftest import Command

CANARY = "canary_of_the_mine"
CLASS = {"class_path": f"{CANARY}.Trap", "init_args": {"path": "x"}}
TEXT = f"{CANARY}.Trap"
YAML = f"{{class_path: {CANARY}.Trap}}"
CALLBACKS = [{"class_path": "lightning.pytorch.callbacks.LearningRateMonitor", "init_args": {}}]


@pytest.fixture(autouse=True)
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that anybody could import, and that nobody may: its import leaves a file."""
    folder, sung = tmp_path / "modules", tmp_path / "sung"
    folder.mkdir()
    code = (
        f"open({str(sung)!r}, 'a').close()\n"
        "from lightning.pytorch import Callback\n"
        "class Trap(Callback):\n    def __init__(self, path=''): pass\n"
    )
    (folder / f"{CANARY}.py").write_text(code)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    yield sung
    assert not sung.exists(), "it was imported"
    assert CANARY not in sys.modules


@pytest.fixture
def planted(tiny_run: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a run whose last checkpoint has something else at a key of its config."""

    def plant(key: str, value: object, run: Path = tiny_run) -> Path:
        content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        put(content[RUN_KEY]["config"], key, value)
        folder = tmp_path / "run"
        (folder / "checkpoints").mkdir(parents=True)
        torch.save(content, folder / "checkpoints" / "last.ckpt")
        for name in ("manifest.json", "results.json", "config.yaml"):
            (folder / name).write_bytes((run / name).read_bytes())
        return folder

    return plant


def put(config: dict[str, Any], key: str, value: object) -> None:
    *above, last = key.split(".")
    for part in above:
        config = config.setdefault(part, {})
    config[last] = value


# where a class is left out, and everything goes on without it
TRAINER = [
    ("trainer.callbacks", [CLASS]),
    ("trainer.callbacks", CLASS),
    ("trainer.callbacks", [TEXT]),
    ("trainer.callbacks", "/dev/stdin"),
    ("trainer.logger", CLASS),
    ("trainer.logger", [CLASS]),
    ("trainer.logger", TEXT),
    ("trainer.plugins", [CLASS]),
    ("trainer.plugins", TEXT),
    ("trainer.strategy", CLASS),
    ("trainer.strategy", TEXT),
    ("trainer.strategy", "SingleDeviceStrategy"),
    ("trainer.accelerator", CLASS),
    ("trainer.accelerator", TEXT),
    ("trainer.profiler", CLASS),
    ("trainer.profiler", "advanced"),
    ("trainer.model_registry", "mine"),
    ("trainer.default_root_dir", "/tmp/elsewhere"),
    ("trainer.max_time", TEXT),
    ("trainer.unheard_of", CLASS),
    ("checkpoint.dirpath", "elsewhere"),
]
# where nothing but names of plugins and plain values stand: refused
ELSEWHERE = [
    ("model.encoder", {"name": "bert", **CLASS}),
    ("model.encoder.activation", CLASS),
    ("model.encoder.name", TEXT),
    ("model.encoder.name", CLASS),
    ("model.objectives.mlm.rate", CLASS),
    ("model.objectives", {TEXT: {}}),
    ("model.metrics", {TEXT: {}}),
    ("model.metrics.x", CLASS),
    ("model.optimizer.name", TEXT),
    ("model.optimizer.schedule", TEXT),
    ("model.optimizer.schedule", {"name": TEXT}),
    ("model.optimizer.schedule", CLASS),
    ("data.tokenizer_kind", CLASS),
    ("data.tokenizer_kind.name", TEXT),
    ("data.corpus", CLASS),
    ("checkpoint.monitor", CLASS),
    ("checkpoint.filename", "../../precious"),
    ("checkpoint.filename", "{step:999999999}"),
    ("checkpoint.filename", "{step.__class__}"),
    ("evaluations", {"x": {"evaluation": "minimal_pairs", "data": "r", "settings": CLASS}}),
    # read as YAML where an argument takes any value
    ("evaluations", {"x": {"evaluation": "minimal_pairs", "data": YAML}}),
    ("evaluations", {"x": {"y": YAML}}),
    ("evaluations", f"{{x: {{y: {YAML}}}}}"),
    ("evaluations", f"{{x: {{y: '{YAML}'}}}}"),
    ("evaluations", f'{{x: {{y: {{"class\\x5fpath": {TEXT}}}}}}}'),
    ("stages", [{"name": "x", "share": YAML}]),
    ("model.encoder.preset", YAML),
    ("model.optimizer.betas", YAML),
    ("seed", CLASS),
    ("anything", CLASS),
]


@pytest.fixture(scope="module")
def honest(tiny_run: Path) -> dict[str, Any]:
    """The config that a checkpoint stores."""
    content = torch.load(tiny_run / "checkpoints" / "last.ckpt", weights_only=True)
    config: dict[str, Any] = content[RUN_KEY]["config"]
    return config


def brought(config: dict[str, Any], command: str) -> RunConfig:
    """Return what a command makes of a checkpoint's config; it reads it in these steps."""
    file = Path("run", "checkpoints", "last.ckpt")
    stored, left_out = read_stored_config(config, str(file))
    check_users_own(left_out, file, command)
    return parse_request(read_request([], stored, str(file), file), command)


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(("key", "value"), TRAINER)
def test_a_checkpoint_brings_no_class_of_the_trainer(
    key: str, value: object, honest: dict[str, Any]
) -> None:
    config, plain = deepcopy(honest), brought(honest, "predict").plain
    put(config, key, value)
    if key == "trainer.accelerator":  # it was cpu
        plain["trainer"]["accelerator"] = "auto"
    assert brought(config, "predict").plain == plain
    with pytest.raises(ResumeError, match=f"last.ckpt: its run has {re.escape(key)}"):
        brought(config, "fit")


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("trainer.callbacks", [CLASS]),
        ("trainer.strategy", "SingleDeviceStrategy"),
        ("checkpoint.dirpath", "elsewhere"),
    ],
)
def test_commands_go_on_without_what_a_checkpoint_may_not_bring_and_a_run_does_not(
    key: str, value: object, planted: Callable[..., Path], bertlab: Command, tmp_path: Path
) -> None:
    run = planted(key, value)
    code, _, error = bertlab("predict", "--ckpt_path", run, "--data.text", "A [MASK].")
    assert code == 0, error
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert f"error E403: {run / 'checkpoints' / 'last.ckpt'}: its run has {key}" in error
    assert f"--config {run / 'config.yaml'}" in error
    assert not (tmp_path / "elsewhere").exists()


# what a config of a user may have, and a checkpoint may not bring
USERS = {
    *("config", "print_config", "help", "ckpt_path", "head", "compile", "run_dir", "output"),
    *("output_format", "top_k", "background_checkpoints", "task_name"),
    *("checkpoint.dirpath", "data.cache_dir", "data.objectives.cache_dir"),
    *("data.num_workers", "data.prepare_workers", "data.objectives.prepare_workers"),
    *("data.text", "data.text_pair", "data.input"),
    *(f"trainer.{key}" for key in ("devices", "num_nodes", "strategy", "barebones")),
    *(f"trainer.{key}" for key in ("callbacks", "logger", "plugins", "profiler")),
    *(f"trainer.{key}" for key in ("default_root_dir", "fast_dev_run", "model_registry")),
    *("seeds", "backend", "against_scratch", "check_every", "say_cost"),  # of packages
    "without_hooks",
}
KINDS = {
    "text": [],
    "rows": ["--model.head=span"],
    "several": [
        "--model.heads={a: single_sentence, b: sentence_pair}",
        "--model.objectives=[mlm]",
    ],
}


@pytest.mark.first_fast
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_every_key_of_every_command_is_on_the_closed_list_or_the_users_own(
    command: str, kind: str
) -> None:
    """A new key, the core's or a package's, fails here until somebody has decided."""
    request = read_request(KINDS[kind])
    parser = build_parser(command, request)
    keys = {key for key in keys_of(parser) if not SECTION.fullmatch(key)}
    listed = {key for key in keys if is_listed(key) or key == "trainer.logger"}
    assert keys - listed <= USERS
    assert listed & USERS <= {"trainer.logger"}  # as true or false only
    content = resolve_request(read_request(KINDS[kind])) | {"seed_everything": 1}
    users = sorted(keys & USERS - {"config"})
    for value in ("planted", 7, True, {"path": "planted"}, ["planted"]):
        hostile = deepcopy(content)
        for key in users:
            put(hostile, key, value)
        stored, _ = read_stored_config(hostile, "x.yaml")
        given = read_request([], stored, "x.yaml", Path("x.yaml"))
        for key in users:
            expected = True if key == "trainer.logger" and value is True else None
            assert value_at(given.values, key) == expected, key
        assert (given.ckpt_path, given.run_dir, given.one_head) == (None, None, None)
    with pytest.raises(ResumeError) if command == "fit" else contextlib.nullcontext():
        found, defaults = parse_request(given, command).values, parser.get_defaults()
        assert all(found.get(key) == defaults.get(key) for key in users)


@pytest.mark.first_fast
@pytest.mark.parametrize("command", ["validate", "predict", "evaluate", "embed", "export"])
def test_a_checkpoint_says_nowhere_what_is_written_and_starts_no_processes(
    command: str,
    tiny_run: Path,
    bertlab: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, place, precious = tmp_path / "run", tmp_path / "work", tmp_path / "precious"
    shutil.copytree(tiny_run, run)
    place.mkdir()
    precious.write_text("mine")
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    config = content[RUN_KEY]["config"]
    for key in ("output", "run_dir", "data.cache_dir", "checkpoint.dirpath", "data.input"):
        put(config, key, str(precious))
    for key in ("trainer.devices", "trainer.num_nodes", "data.num_workers"):
        put(config, key, 3)
    config |= {"output_format": "csv", "top_k": 9}
    torch.save(content, run / "checkpoints" / "last.ckpt")
    (place / "text").write_text("A word.\n")
    (place / "pairs.jsonl").write_text('{"good": "A word.", "bad": "Word a."}\n')
    made = []
    monkeypatch.setattr(DataLoader, "__init__", _noting(DataLoader.__init__, made, "num_workers"))
    monkeypatch.setattr(Trainer, "__init__", _noting(Trainer.__init__, made, "devices"))
    monkeypatch.chdir(place)
    file = run / "checkpoints" / "last.ckpt"
    arguments = {
        "validate": ["--ckpt_path", file],
        "predict": ["--ckpt_path", file, "--text", "A [MASK]."],
        "evaluate": [
            *("--ckpt_path", file, "--evaluation", "minimal_pairs"),
            *("--data", "pairs.jsonl", "--output", "scores"),
        ],
        "embed": ["text", "out.safetensors", "--model", file, "--layers=[-1]"],
        "export": [file, "out"],
    }
    code, _, error = bertlab(command, *arguments[command])
    assert code == 0, error
    assert precious.read_text() == "mine"
    assert all(each in (None, 0, 1, "auto") for each in made)


def _noting(call: Callable[..., None], made: list[object], name: str) -> Callable[..., None]:
    @functools.wraps(call)  # the parser reads the signature
    def noted(self: object, *args: Any, **kwargs: Any) -> None:
        made.append(kwargs.get(name))
        call(self, *args, **kwargs)

    return noted


@pytest.mark.slow
def test_a_users_own_run_goes_on_with_what_it_had(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    """What a checkpoint does not bring is said, and the message's command brings it."""
    run = tmp_path / "own"
    begin = ("fit", "--config", tiny_config, "--run_dir", run, "--data.num_workers", 1)
    assert bertlab(*begin)[0] == 0
    before = (run / "checkpoints" / "last.ckpt").read_bytes()
    step, again = run / "checkpoints" / "step-3.ckpt", tmp_path / "again"
    code, _, error = bertlab("fit", "--ckpt_path", step, "--run_dir", again)
    assert code == 0, error
    assert "data.num_workers: not taken from a checkpoint" in error
    assert "--data.num_workers N" in error
    assert Run(again).metrics == Run(run).metrics
    code, _, error = bertlab(
        *("fit", "--ckpt_path", step, "--run_dir", tmp_path / "b", "--data.num_workers", 1)
    )
    assert code == 0, error
    assert "num_workers: not taken" not in error
    assert Run(tmp_path / "b").config["data"]["num_workers"] == 1
    assert (run / "checkpoints" / "last.ckpt").read_bytes() == before


@pytest.mark.parametrize(("key", "value"), ELSEWHERE)
def test_a_checkpoint_names_plugins_only(key: str, value: object, honest: dict[str, Any]) -> None:
    config = deepcopy(honest)
    put(config, key, value)
    with pytest.raises(BertlabError) as refused:
        brought(config, "fit")
    assert key.split(".", maxsplit=1)[0] in str(refused.value) or TEXT in str(refused.value)


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("", "trainer.callbacks", [TEXT]),
        ("", "trainer.strategy", TEXT),
        ("", "checkpoint.dirpath", "elsewhere"),
        ("", "model.encoder.activation", TEXT),
        ("model", "encoder.activation", TEXT),
        ("trainer", "callbacks.x", TEXT),
    ],
)
def test_a_dotted_key_does_not_slip_past_the_checks_of_its_section(
    section: str, key: str, value: object, honest: dict[str, Any]
) -> None:
    config = deepcopy(honest)
    (config[section] if section else config)[key] = value
    with pytest.raises(DamagedCheckpointError, match=re.escape(key)):
        read_stored_config(config, "x")


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("command", "key", "value"),
    [
        ("fit", "model.encoder.activation", CLASS),
        ("fit", "model.optimizer.name", TEXT),
        ("fit", "evaluations", {"x": {"evaluation": TEXT, "data": "rows"}}),
        ("predict", "model.encoder.activation", CLASS),
        ("predict", "trainer", {"callbacks.x": TEXT}),
    ],
)
def test_a_command_reads_a_stored_config_by_these_checks(
    command: str, key: str, value: object, planted: Callable[..., Path], bertlab: Command
) -> None:
    run = planted(key, value)
    text = ["--text", "A [MASK]."] if command == "predict" else []
    code, _, error = bertlab(command, "--ckpt_path", run, *text)
    assert code == 2, error
    assert "bertlab: error E" in error
    assert key in error


@pytest.mark.first_slow
@pytest.mark.parametrize(
    "hyper_parameters",
    [
        {"encoder": {"hidden_size": 64}, "objectives": {"clm": {}}},
        {"_class_path": TEXT, "path": "x"},
        {"class_path": TEXT, "init_args": {"path": "x"}, "_instantiator": TEXT},
    ],
)
def test_hyper_parameters_of_a_checkpoint_override_nothing(
    hyper_parameters: dict[str, Any], tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    """LightningCLI parses them over the config, and may import the class that they name."""
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    content = torch.load(run / "checkpoints" / "step-3.ckpt", weights_only=True)
    content["hyper_parameters"] = hyper_parameters
    torch.save(content, run / "checkpoints" / "step-3.ckpt")
    arguments = ("--ckpt_path", run / "checkpoints" / "step-3.ckpt")
    code, _, error = bertlab("predict", *arguments, "--text", "A [MASK].")
    assert code == 0, error
    code, _, error = bertlab("fit", *arguments, "--run_dir", tmp_path / "again")
    assert code == 0, error
    for section in ("model", "trainer"):
        assert Run(tmp_path / "again").config[section] == Run(tiny_run).config[section]
    assert Run(tmp_path / "again").metrics == Run(tiny_run).metrics


@pytest.mark.first_fast
@pytest.mark.parametrize("command", ["validate", "evaluate", "embed", "export"])
def test_no_command_builds_what_a_checkpoint_names(
    command: str, planted: Callable[..., Path], bertlab: Command, tmp_path: Path
) -> None:
    run = planted("trainer.callbacks", [CLASS])
    (tmp_path / "text").write_text("A word.\n")
    (tmp_path / "pairs.jsonl").write_text('{"good": "A word.", "bad": "Word a."}\n')
    arguments = {
        "validate": ["--ckpt_path", run],
        "evaluate": [
            *("--ckpt_path", run, "--evaluation", "minimal_pairs"),
            *("--data", tmp_path / "pairs.jsonl", "--output", tmp_path / "scores"),
        ],
        "embed": [tmp_path / "text", tmp_path / "out.safetensors", "--model", run, "--layers=[-1]"],
        "export": [run, tmp_path / "out"],
    }
    code, _, error = bertlab(command, *arguments[command])
    assert code == 0, error


@pytest.mark.slow
def test_a_run_with_callbacks_goes_on_with_its_users_own_config(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "own"
    callbacks = json.dumps(CALLBACKS)
    begin = ("fit", "--config", tiny_config, "--run_dir", run, "--trainer.callbacks", callbacks)
    assert bertlab(*begin)[0] == 0
    step = run / "checkpoints" / "step-3.ckpt"
    code, _, error = bertlab("fit", "--ckpt_path", step)
    assert code == 2
    assert "its run has trainer.callbacks" in error
    again = ("fit", "--ckpt_path", step, "--config", run / "config.yaml")
    code, _, error = bertlab(*again, "--run_dir", tmp_path / "again")
    assert code == 0, error


def test_files_of_a_run_directory_are_data(tiny_run: Path, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text(json.dumps({"command": CLASS}))
    (tmp_path / "run" / "config.yaml").write_text(yaml.safe_dump({"trainer": {"logger": CLASS}}))
    run = Run(tmp_path / "run")
    assert run.manifest["command"] == CLASS
    assert run.config["trainer"]["logger"] == CLASS


@pytest.mark.parametrize("key", ["best_k_models", "best_model_path", "last_model_path"])
@pytest.mark.parametrize("kind", [BestCheckpoint, ModelCheckpoint])
def test_a_checkpoint_cannot_have_other_files_deleted(
    kind: type[ModelCheckpoint], key: str, tmp_path: Path
) -> None:
    callback = kind(dirpath=tmp_path / "run" / "checkpoints")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    outside = f"{callback.dirpath}/../../precious"
    value = {outside: torch.tensor(1.0)} if key == "best_k_models" else outside
    state = {**callback.state_dict(), key: value}
    trainer = Mock(checkpoint_callbacks=[callback], ckpt_path="a.ckpt")
    content = {"callbacks": {callback.state_key: state}}
    with pytest.raises(DamagedCheckpointError, match="precious"):
        RunRecord.on_load_checkpoint(Mock(), trainer, Mock(spec=BertModule), content)
    callback.load_state_dict({**callback.state_dict(), key: type(value)()})


def test_the_trainers_safe_keys_take_no_class() -> None:
    """An upgrade of Lightning that gives one of them a class fails here."""
    parser = build_parser("fit", read_request([]))
    classes = set()
    for action in parser._actions:
        try:
            check_no_classes(parser, nested(action.dest, "a.Class"), "x")
        except CheckpointError:
            classes.add(action.dest)
    assert {"trainer.callbacks", "trainer.strategy", "trainer.profiler"} <= classes
    assert not {each for each in classes if each.startswith(("model.", "data."))}
    config = {"seed_everything": 1, "model": {"encoder": {"name": "bert"}}}
    config |= {"data": {"max_seq_length": 8}}
    for dest in classes:
        section, _, key = dest.partition(".")
        given = {**config, "trainer": {}, section: {**config.get(section, {}), key: "a.Class"}}
        if section == "trainer" and not key.endswith(".help"):
            assert read_stored_config(given, "x")[0]["trainer"] == {}


def nested(key: str, value: object) -> dict[str, Any]:
    content: dict[str, Any] = {}
    put(content, key, value)
    return content


def test_an_argument_of_a_plugin_that_takes_a_class_gets_none_from_a_checkpoint() -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--model.function", type=Callable[[int], int])
    parser.add_argument("--model.trainer", type=Trainer | ModelCheckpoint | None)
    parser.add_argument("--model.kind", type=type[Trainer])
    parser.add_argument("--model.text", type=str | list[str])
    check_no_classes(parser, {"model": {"text": TEXT, "function": None}}, "x")
    parser.add_argument("--model.either", type=str | Trainer)
    check_no_classes(parser, {"model": {"either": "word"}}, "x")
    either = parser._option_string_actions["--model.either"]
    assert either._typehint is str  # the class went: nothing is looked for
    for key in ("function", "trainer", "kind"):
        with pytest.raises(CheckpointError, match=f"x: model.{key}: found '{TEXT}'"):
            check_no_classes(parser, {"model": {key: TEXT}}, "x")


@pytest.mark.parametrize("key", ["strategy", "accelerator", "precision"])
def test_a_word_that_is_also_a_file_here_is_not_read_as_one(
    key: str,
    planted: Callable[..., Path],
    bertlab: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = planted(f"trainer.{key}", "evil")
    (tmp_path / "evil").write_text(yaml.safe_dump(CLASS))
    monkeypatch.chdir(tmp_path)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2, error
    assert f"its run has trainer.{key}" in error


class Untyped:
    """Takes anything, as a plugin may."""

    def __init__(  # type: ignore[no-untyped-def]
        self, anything: Any = None, untyped=None, numbers=3, mapping: dict[str, Any] | None = None
    ) -> None:
        pass


@pytest.mark.parametrize("key", ["anything", "untyped", "numbers", "mapping"])
@pytest.mark.parametrize(
    "text", [YAML, f"[{YAML}]", f"a: [b, {YAML}]", f'"{{class\\x5fpath: {TEXT}}}"', f"- '{YAML}'"]
)
def test_arguments_without_a_type_get_plain_values(key: str, text: str, canary: Path) -> None:
    config = {"seed_everything": 1, "data": {"max_seq_length": 8}, "trainer": {}}
    for value in (text, [text], {"x": text}):
        given = {**config, "model": {"encoder": {"name": "bert", key: value}}}
        with pytest.raises(CheckpointError, match=f"{key}.*: found a text that is YAML and names"):
            read_stored_config(given, "x")
    for value in (TEXT, "{a: b}", "class_path", "Path: {class", [1, None], {"class": "x"}):
        given = {**config, "model": {"encoder": {"name": "bert", key: value}}}
        stored, _ = read_stored_config(given, "x")
        parser = ArgumentParser(exit_on_error=False)
        parser.add_class_arguments(Untyped, "model.encoder", instantiate=False, fail_untyped=False)
        parser.add_argument("--model.encoder.name")
        with contextlib.suppress(ArgumentError):
            parser.parse_object({"model": stored["model"]})
        assert not canary.exists()


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        (
            "model.encoder.num_hidden_layers",
            10**9,
            "ckpt: no encoder .* config: model.encoder.num_hid",
        ),
        ("model.encoder.hidden_size", 2**24, "are not of the sizes in its config"),
        ("model.encoder.intermediate_size", 2**50, "are not of the sizes in its config"),
        ("model.encoder.hidden_size", "wide", "no encoder can be made of its config"),
        (
            "model.encoder.no_such",
            1,
            "decide what is computed: model.encoder.no_such: 1",
        ),
        ("model.encoder.hidden_size", 10**30, "at most 64 bits"),
        ("model.encoder.hidden_size", [], "no encoder can be made of its config"),
    ],
)
def test_sizes_that_are_not_the_weights_take_no_memory(
    key: str, value: object, reason: str, planted: Callable[..., Path]
) -> None:
    with pytest.raises(BertlabError, match=reason):
        read_run_checkpoint(planted(key, value) / "checkpoints" / "last.ckpt")


@pytest.mark.parametrize("command", ["predict", "export"])
def test_a_command_refuses_other_sizes_than_those_of_the_weights(
    command: str, planted: Callable[..., Path], bertlab: Command, tmp_path: Path
) -> None:
    run = planted("model.encoder.hidden_size", 2**24)
    arguments = {
        "predict": ["--ckpt_path", run, "--data.text", "a"],
        "export": [run, tmp_path / "out"],
    }
    code, _, error = bertlab(command, *arguments[command])
    assert code == 2, error
    assert "are not of the sizes in its config" in error


@pytest.mark.slow
def test_tensors_larger_than_their_file_and_endless_content_are_refused(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    whole = torch.load(tiny_run / "checkpoints" / "last.ckpt", weights_only=True)
    moments = {**whole, "optimizer_states": [{"state": {0: torch.zeros(1).expand(10**12)}}]}
    torch.save(moments, tmp_path / "moments.ckpt")
    code, _, error = bertlab("predict", "--ckpt_path", tmp_path / "moments.ckpt")
    assert code == 2
    assert "declares shape (1000000000000,)" in error
    torch.save({**whole, "global_step": "many"}, tmp_path / "kinds.ckpt")
    code, _, error = bertlab("predict", "--ckpt_path", tmp_path / "kinds.ckpt")
    assert code == 2
    assert "global_step: of another kind" in error


@pytest.mark.slow
def test_an_archive_that_unpacks_to_much_is_not_unpacked(tmp_path: Path, bertlab: Command) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.ckpt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(10**8))
    code, _, error = bertlab("predict", "--ckpt_path", tmp_path / "bomb.ckpt")
    assert code == 2
    assert "unpacks to 100,000,000 bytes" in error


class _Trap:
    """Pickled, it is a call that leaves the canary's file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return open, (str(self.file), "a")


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("is_tensor_file", [True, False])
def test_pickles_of_before_archives_run_nothing(
    is_tensor_file: bool, protocol: int, canary: Path, tmp_path: Path, bertlab: Command
) -> None:
    file = tmp_path / "old.ckpt"
    content = {"state_dict": {"a": torch.ones(2)}, "trap": _Trap(canary)}
    if is_tensor_file:  # as torch.save wrote before 1.6
        torch.save(content, file, pickle_protocol=protocol, _use_new_zipfile_serialization=False)
    else:
        file.write_bytes(pickle.dumps({"trap": content["trap"]}, protocol))
    for arguments in (
        ("predict", "--ckpt_path", file, "--text", "a"),
        ("fit", "--ckpt_path", file),
        ("embed", file, tmp_path / "o.safetensors", "--model", file),
        ("export", file, tmp_path / "out"),
    ):
        code, _, error = bertlab(*arguments)
        assert code == 2, error
        assert "bertlab: error E" in error
    folder = tmp_path / "hf"
    folder.mkdir()
    (folder / "config.json").write_text(
        '{"model_type": "bert", "auto_map": {"AutoModel": "' + TEXT + '"}, "architectures": ["X"]}'
    )
    (folder / "pytorch_model.bin").write_bytes(file.read_bytes())
    code, _, error = bertlab("predict", "--ckpt_path", folder, "--text", "a")
    assert code == 2, error
