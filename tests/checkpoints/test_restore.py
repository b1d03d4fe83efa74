"""A command's weights are in memory once: those of the module."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from bertlab.checkpoints import restore as starting_point
from bertlab.checkpoints.run_checkpoint import RunCheckpoint
from bertlab.checkpoints.warm_start import WarmStart
from bertlab.cli import embed as embed_cli
from bertlab.cli.fit import COMMANDS
from bertlab.model.embedding import write_embeddings
from tests.conftest import Command

Reference = weakref.ReferenceType[Tensor]


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many of the tensors that were read are left when a command begins its work."""
    read: list[Reference] = []
    left: list[int] = []
    read_checkpoint = starting_point.read_run_checkpoint
    read_warm = starting_point.read_warm_start

    def checkpoint(path: Path) -> RunCheckpoint:
        found = read_checkpoint(path)
        read.extend(weakref.ref(tensor) for tensor in found.state.values())
        return found

    def warm(source: str, with_optimizer: bool = False) -> WarmStart:
        found = read_warm(source, with_optimizer)
        states = [found.encoder_state, *found.task_states.values()]
        states += [] if found.head is None else [found.head.state]
        read.extend(weakref.ref(tensor) for state in states for tensor in state.values())
        return found

    def count(_: object = None) -> int:
        gc.collect()
        assert read
        left.append(sum(reference() is not None for reference in read))
        return 0

    def count_and_write(*arguments: Any) -> tuple[int, ...]:
        count()
        return write_embeddings(*arguments)

    monkeypatch.setattr(starting_point, "read_run_checkpoint", checkpoint)
    monkeypatch.setattr(starting_point, "read_warm_start", warm)
    monkeypatch.setattr(embed_cli, "read_warm_start", warm)
    monkeypatch.setattr(embed_cli, "write_embeddings", count_and_write)
    for command in COMMANDS:
        monkeypatch.setitem(COMMANDS, command, count)
    return left


@pytest.mark.parametrize("command", ["fit", "validate", "predict"])
def test_a_checkpoint_is_let_go_of(
    alive: list[int], tiny_run: Path, bertlab: Command, command: str
) -> None:
    text = ["--data.text", "A [MASK]."] if command == "predict" else []
    code, _, error = bertlab(command, "--ckpt_path", tiny_run, *text)
    assert code == 0, error
    assert alive == [0]


@pytest.mark.parametrize("from_scratch", ["true", "false"])
@pytest.mark.parametrize("exported", [False, True])
def test_a_warm_start_is_let_go_of(
    alive: list[int],
    tiny_config: Path,
    tiny_run: Path,
    tmp_path: Path,
    bertlab: Command,
    exported: bool,
    from_scratch: str,
) -> None:
    source = tiny_run
    if exported:
        source = tmp_path / "exported"
        assert bertlab("export", tiny_run, source)[0] == 0
    beginning = ["--model.init_from", source, "--model.from_scratch", from_scratch]
    code, _, error = bertlab(
        "fit", "--config", tiny_config, *beginning, "--run_dir", tmp_path / "run"
    )
    assert code == 0, error
    assert alive == [0]


def test_what_embeds_is_let_go_of(
    alive: list[int], tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    (tmp_path / "texts.txt").write_text("One text.\n", "utf-8")
    code, _, error = bertlab(
        "embed",
        "--model",
        tiny_run,
        tmp_path / "texts.txt",
        tmp_path / "out.safetensors",
        "--layers",
        "[-1]",
    )
    assert code == 0, error
    assert alive == [0]
