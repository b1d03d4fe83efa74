"""Shared fixtures: a small real corpus, and a run that is trained on it once."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # test workers share the cores; spinning threads wait
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # read once, at an import

import argparse
import functools
import gc
import importlib.util
import pydoc_data.topics
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pytest
import torch
from jsonargparse import _core, _subcommands
from lightning.fabric.utilities import registry

from bertlab.cli.main import main
from bertlab.config.parser import build_parser
from bertlab.config.request import Request
from bertlab.plugins import hooks, index
from bertlab.training.cli import BertlabCLI
from bertlab.training.results import read_curves

gc.disable()  # until all is imported and collected, which stays: seconds of each worker
# the same examples in every run; `pytest --hypothesis-profile default` draws new ones
hypothesis.settings.register_profile("repeatable", derandomize=True, deadline=None)
hypothesis.settings.load_profile("repeatable")
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it

TINY = """
seed_everything: 3
model:
  encoder: {name: bert, preset: tiny, hidden_size: 32, num_attention_heads: 2,
            max_position_embeddings: 64, hidden_dropout_prob: 0.0,
            attention_probs_dropout_prob: 0.0}
  objectives: [mlm, nsp]
  optimizer: {learning_rate: 1.0e-3}
data: {corpus: CORPUS, corpus_format: sentences, vocab_size: 300, max_seq_length: 32, batch_size: 8,
       validation_fraction: 0.2, validation_sequences: 20, cache_dir: CACHE}
checkpoint: {save_top_k: -1}
trainer: {max_steps: 6, val_check_interval: 3, log_every_n_steps: 1, accelerator: cpu}
"""


SEED = 1810  # of tests that say none; none that a planted bug would set
HOOK_MODULES = len(entry_points(group=hooks.HOOKS))


@pytest.fixture(autouse=True)
def all_hooks() -> Iterator[None]:
    """Load the hooks anew after a test in which one was left out: it failed, or was hidden."""
    yield
    loaded = hooks.hook_modules.cache_info().currsize
    if loaded and len(hooks.hook_modules().manager.get_plugins()) < HOOK_MODULES:
        index.forget_installed()
        hooks.hook_modules.cache_clear()


def draw(patch: pytest.MonkeyPatch, curves: Callable[[Path], object]) -> None:
    """Let runs in this process draw some curves at their end."""
    if importlib.util.find_spec("bertlab_pages"):
        for module in ("loss_curve", "run_page"):
            patch.setattr(f"bertlab_pages.{module}.read_curves", curves)


@pytest.fixture(scope="session", autouse=True)
def undrawn() -> Iterator[None]:
    """Let runs draw nothing: their pictures take more time than a short training."""
    with pytest.MonkeyPatch.context() as patch:
        draw(patch, lambda _: {})
        yield


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Let files not wait for the disk; a descriptor that is closed is refused as ever."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)
        yield


@pytest.fixture(scope="session", autouse=True)
def seed_of_runs_without_one() -> Iterator[None]:
    """Let a run that is given no seed draw the same one each time: its last bits decide a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bertlab.config.request.secrets.randbelow", lambda _: SEED)
        yield


@pytest.hookimpl(tryfirst=True)  # before its fixtures
def pytest_runtest_setup() -> None:
    """Let a test draw the same numbers whichever tests ran before it in this process."""
    random.seed(SEED)
    np.random.seed(SEED)  # noqa: NPY002  the global one is what is meant
    torch.manual_seed(SEED)


@pytest.fixture(scope="session", autouse=True)
def looked_up_once() -> Iterator[None]:
    """Let what is installed be looked up once a path: Lightning and bertlab do so for each run."""

    @functools.cache
    def found(group: str, path: tuple[str, ...]) -> object:
        return entry_points(group=group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "entry_points", lambda group: found(group, (*sys.path,)))
        if importlib.util.find_spec("bertlab_conformance"):  # its record of keys, of each run
            patch.setattr("bertlab_conformance.known_keys.write_record", lambda *_: None)
        yield


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runs of a test draw as those of users do; ``tiny_run`` does so for every test."""
    draw(monkeypatch, read_curves)


def plugins_of(command: str, request: Request) -> object:
    """Return what decides a parser, besides the code of classes."""
    return (
        *(command, hooks.hook_modules().manager, *map(index.listed, index.GROUPS)),
        *(request.encoder, repr(request.sizes), tuple(request.objectives)),
        *(tuple(request.head_sections.items()), tuple(request.metrics)),
        tuple(request.transforms),
        *(request.optimizer, request.schedule, request.tokenizer, request.adapter),
    )


def are_ours(request: Request) -> bool:
    """Whether all plugins come with bertlab, so that no test writes their classes anew."""
    named = [
        ("encoder", request.encoder),
        ("tokenizer", request.tokenizer),
        ("adapter", request.adapter),
    ]
    named += [("optimizer", request.optimizer), ("schedule", request.schedule)]
    named += [("objective", each) for each in request.objectives]
    named += [("head", each) for each in request.head_sections.values()]
    installed = [index.installed(kind).get(name) for kind, name in named if name is not None]
    return (
        not request.metrics
        and not request.transforms
        and all(each is not None and each.package in index.FIRST_PARTY for each in installed)
    )


@pytest.fixture(scope="session", autouse=True)
def kept_parsers() -> Iterator[None]:
    """Let commands of the same plugins share a parser, which takes longer to build than a run.

    Parsing changes no parser. Where `build_parser` itself is imported, it builds one.
    """
    kept: dict[object, Any] = {}
    set_up = BertlabCLI.setup_parser

    def keep(command: str, request: Request, build: Callable[[], Any]) -> Any:
        if request.corpus_source or not are_ours(request):
            return build()
        key = (plugins_of(command, request), *request.without_hooks)
        if key not in kept:
            if len(kept) == 50:
                kept.clear()
            kept[key] = build()
        return kept[key]

    def set_up_once(cli: BertlabCLI, *arguments: Any) -> None:
        def build() -> Any:
            set_up(cli, *arguments)
            return cli.parser

        cli.parser = keep(cli.command, cli.request, build)

    def build_once(command: str, request: Request, with_hooks: bool = True) -> Any:
        if not with_hooks:
            return build_parser(command, request, with_hooks=False)
        return keep(command, request, lambda: build_parser(command, request))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BertlabCLI, "setup_parser", set_up_once)
        patch.setattr("bertlab.config.parser.build_parser", build_once)
        patch.setattr("bertlab_conformance.printing.build_parser", build_once)
        yield


@pytest.fixture(scope="session", autouse=True)
def found_arguments() -> Iterator[None]:
    """Let a parser remember where its arguments are: jsonargparse looks through all for each.

    That is a fifth of a short run. An argument that is added since is looked for anew.
    """
    find = _subcommands.find_action_and_subcommand

    def find_once(parser: argparse.ArgumentParser, dest: str, exclude: Hashable = None) -> object:
        count = len(parser._actions)
        kept = parser.__dict__.setdefault("_found_arguments", {})
        key = (count, dest, exclude)
        if key not in kept:
            found = find(parser, dest, exclude=exclude)
            if found[1] is not None:  # of a subcommand's parser, which may grow by itself
                return found
            kept[key] = found
        return kept[key]

    with pytest.MonkeyPatch.context() as patch:
        for module in (_core, _subcommands):
            patch.setattr(module, "find_action_and_subcommand", find_once)
        yield


@pytest.fixture(scope="session")
def corpus_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty help topics of Python, one line a paragraph, a blank line between topics."""
    documents = []
    for topic in sorted(pydoc_data.topics.topics)[:40]:
        paragraphs = pydoc_data.topics.topics[topic].split("\n\n")
        lines = [" ".join(paragraph.split()) for paragraph in paragraphs]
        documents.append("\n".join(line for line in lines if line))
    path = tmp_path_factory.mktemp("corpus") / "topics.txt"
    path.write_text("\n\n".join(documents) + "\n", "utf-8")
    return path


@pytest.fixture(scope="session")
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache of prepared corpora for all tests."""
    cache = tmp_path_factory.mktemp("cache")
    # a checkpoint does not say where the cache is: a resumed run looks here
    os.environ["BERTLAB_CACHE"] = str(cache)
    return cache


@pytest.fixture(scope="session")
def tiny_config(
    tmp_path_factory: pytest.TempPathFactory, corpus_file: Path, cache_dir: Path
) -> Path:
    """A config that trains for six steps in about a second."""
    path = tmp_path_factory.mktemp("config") / "tiny.yaml"
    text = TINY.replace("CORPUS", str(corpus_file)).replace("CACHE", str(cache_dir))
    path.write_text(text, "utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_run(tmp_path_factory: pytest.TempPathFactory, tiny_config: Path) -> Path:
    """The directory of a finished run of the tiny config."""
    directory = tmp_path_factory.mktemp("runs") / "tiny"
    with pytest.MonkeyPatch.context() as patch:
        draw(patch, read_curves)
        assert main(["fit", "--config", str(tiny_config), "--run_dir", str(directory)]) == 0
    return directory


Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def bertlab(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run the command in this process; return exit code, standard output and standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Divide the tests into tiers: where one case of a test is enough for a tier, it has the first.

    Of a test that is ``first_fast`` and ``first_slow`` the first case is fast, the second slow, and
    all others are nightly. All that is nightly is slow too.
    """
    cases: Counter[str] = Counter()
    for item in items:
        fast, slow = map(item.get_closest_marker, ("first_fast", "first_slow"))
        test = item.nodeid.partition("[")[0]
        place, cases[test] = cases[test], cases[test] + 1
        if place >= bool(fast) and (fast or slow):
            item.add_marker("slow")
        if slow and place > bool(fast):
            item.add_marker("nightly")
        if item.get_closest_marker("nightly"):
            item.add_marker("slow")


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over modules and tests, which stay: 0.5 s each time."""
    gc.freeze()
    gc.enable()


def pytest_sessionfinish() -> None:
    """Let the interpreter end as ever."""
    gc.unfreeze()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the long form of tests/reliability, and new golden runs, be one command each."""
    parser.addoption("--rounds", default=6, help="inputs that each test of reliability generates")
    parser.addoption(
        "--write_golden", action="store_true", help="keep the losses of the golden runs anew"
    )
