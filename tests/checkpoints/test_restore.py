"""A command's weights are in memory once: those of the module."""

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from bertlab.checkpoints import restore
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.training.cli import BertlabCLI
from bertlab_evaluations import embedding_file
from bertlab_evaluations.embedding_file import write_embeddings
from tests.conftest import Command

Reference = weakref.ReferenceType[Tensor]


@pytest.fixture
def alive(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many of the tensors that were read are left when a command begins its work."""
    read: list[Reference] = []
    left: list[int] = []
    readers = {name: getattr(restore, name) for name in ("read_run_checkpoint", "read_foreign")}

    def reading(name: str) -> Callable[..., Pretrained]:
        def read_and_note(*arguments: Any) -> Pretrained:
            found: Pretrained = readers[name](*arguments)
            tensors = [*found.state.values()]
            tensors += [] if found.head is None else [*found.head.state.values()]
            read.extend(weakref.ref(tensor) for tensor in tensors)
            return found

        return read_and_note

    def count(_: object = None) -> int:
        gc.collect()
        assert read
        left.append(sum(reference() is not None for reference in read))
        return 0

    def count_and_write(*arguments: Any) -> tuple[int, ...]:
        count()
        return write_embeddings(*arguments)

    for name in readers:
        monkeypatch.setattr(restore, name, reading(name))
    monkeypatch.setattr(embedding_file, "write_embeddings", count_and_write)
    monkeypatch.setattr(BertlabCLI, "run", count)
    return left


@pytest.mark.first_fast
@pytest.mark.parametrize("command", ["fit", "validate", "predict"])
def test_a_checkpoint_is_released(
    alive: list[int], tiny_run: Path, bertlab: Command, command: str
) -> None:
    text = ["--data.text", "A [MASK]."] if command == "predict" else []
    code, _, error = bertlab(command, "--ckpt_path", tiny_run, *text)
    assert code == 0, error
    assert alive == [0]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("from_scratch", ["true", "false"])
@pytest.mark.parametrize("exported", [False, True])
def test_a_warm_start_is_released(
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


def test_what_embeds_is_released(
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
