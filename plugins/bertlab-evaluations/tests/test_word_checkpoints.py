"""Checkpoints after chosen numbers of words seen."""

import json
import math
import shutil
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Callback

from bertlab.data.corpus.store import TokenStore
from bertlab.data.run_length import StepSizes
from bertlab.errors import CheckpointError
from bertlab_evaluations.word_checkpoints import (
    nearest_step,
    steps_at_words,
    words_checkpoint_name,
    words_checkpoints,
)
from tests.conftest import Command
from tests.data.test_run_length import GROWS
from tests.training.test_words import data

SETTINGS = ("--trainer.max_steps", 6, "--trainer.accumulate_grad_batches", 2,
            "--trainer.val_check_interval", 6)  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--checkpoint_words", "[1e3, -1]"], "checkpoint_words: found -1"),
        (["--checkpoint_words", "[.inf]"], "checkpoint_words: found inf"),
    ],
)
def test_words_that_make_no_run(
    arguments: list[str], words: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments, "--run_dir", run)
    assert code == 2
    assert words in error
    assert not run.exists()


@pytest.mark.slow
def test_a_store_without_a_count_works_until_words_are_asked_for(
    tiny_config: Path, corpus_file: Path, cache_dir: Path, tmp_path: Path, bertlab: Command
) -> None:
    store = tmp_path / "store"
    shutil.copytree(data(corpus_file, cache_dir)[1].path, store)
    for name in ("store.json", "report.json"):  # as an older bertlab wrote them
        content = json.loads((store / name).read_text("utf-8"))
        del content["words"]
        content.pop("sha256", None)
        (store / name).write_text(json.dumps(content), "utf-8")
    assert TokenStore.open(store).metadata.words is None
    given = ("--config", tiny_config, "--data.corpus", store, "--trainer.max_steps", 1)
    code, printed, error = bertlab("fit", *given, "--run_dir", tmp_path / "run")
    assert code == 0, error
    assert "words of the text" not in printed
    given = (*given, "--checkpoint_words", "[1e3]")
    code, _, error = bertlab("fit", *given, "--run_dir", tmp_path / "other")
    assert code == 2
    assert f"checkpoint_words: found a token store without a count of words, {store}" in error
    assert not (tmp_path / "other").exists()


def weights(file: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(file, weights_only=True)["state_dict"]
    return state


def equal(one: Path, other: Path) -> bool:
    ours, theirs = weights(one), weights(other)
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.fixture
def at_steps(corpus_file: Path, cache_dir: Path) -> dict[int, str]:
    """Names of the checkpoints whose words are seen after steps 1, 3 and 6."""
    a_step = data(corpus_file, cache_dir)[0].words_per_step("k")
    return {step: words_checkpoint_name(step * a_step) for step in (1, 3, 6)}


def asked(at_steps: dict[int, str]) -> str:
    numbers = [name.removeprefix("words-").removesuffix(".ckpt") for name in at_steps.values()]
    return f"[{', '.join(numbers)}, 1e9]"  # 1e9: beyond the end


@pytest.mark.slow
def test_a_checkpoint_at_each_number_of_words(
    tiny_config: Path, tmp_path: Path, at_steps: dict[int, str], bertlab: Command
) -> None:
    run = tmp_path / "run"
    given = ("--config", tiny_config, *SETTINGS, "--checkpoint_words", asked(at_steps))
    code, _, error = bertlab("fit", *given, "--run_dir", run)
    assert code == 0, error
    files = run / "checkpoints"
    assert {file.name for file in files.glob("words-*")} == set(at_steps.values())
    for step, name in at_steps.items():
        assert torch.load(files / name, weights_only=True)["global_step"] == step
    # the last step is in both: a run goes on from last.ckpt
    assert equal(files / at_steps[6], files / "last.ckpt")
    assert not equal(files / at_steps[3], files / "last.ckpt")

    first, middle, last = (files / at_steps[step] for step in (1, 3, 6))
    kept = {file: file.stat().st_mtime_ns for file in (first, last)}
    expected = weights(middle)
    # as if it had been killed when step 3 was saved, before its words were
    stop = tmp_path / "stop.ckpt"
    shutil.copy(middle, stop)
    shutil.move(stop, files / "step-3.ckpt")
    middle.unlink()
    code, _, error = bertlab("fit", "--ckpt_path", files / "step-3.ckpt")
    assert code == 0, error
    found = weights(middle)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert {file: file.stat().st_mtime_ns for file in kept} == kept  # none a second time


@pytest.mark.nightly
def test_checkpoints_after_a_resumption_are_those_of_an_undisturbed_run(
    tiny_config: Path, tmp_path: Path, at_steps: dict[int, str], bertlab: Command
) -> None:
    whole, resumed = tmp_path / "whole", tmp_path / "resumed"
    given = ("--config", tiny_config, *SETTINGS, "--checkpoint_words", asked(at_steps))
    dropout = ("--model.encoder.hidden_dropout_prob", 0.1)
    assert bertlab("fit", *given, *dropout, "--run_dir", whole)[0] == 0
    shutil.copytree(whole, resumed)
    files = resumed / "checkpoints"
    for file in files.iterdir():
        if file.name != at_steps[3]:
            file.unlink()
    # it can be gone on with as any checkpoint
    code, _, error = bertlab("fit", "--ckpt_path", files / at_steps[3])
    assert code == 0, error
    assert equal(files / at_steps[6], whole / "checkpoints" / at_steps[6])
    assert not (files / at_steps[1]).exists()


@pytest.mark.slow
def test_a_run_that_breaks_off_does_not_take_them_for_its_last(
    tiny_config: Path,
    tmp_path: Path,
    at_steps: dict[int, str],
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from bertlab_evaluations import word_checkpoints

    save = word_checkpoints.WordCheckpoints._save

    def break_off(self: Callback, trainer: object) -> None:
        save(self, trainer)  # type: ignore[arg-type]
        raise RuntimeError("broken")

    monkeypatch.setattr(word_checkpoints.WordCheckpoints, "_save", break_off)
    run = tmp_path / "run"
    given = ("--config", tiny_config, *SETTINGS, "--checkpoint_words", asked(at_steps))
    code, printed, error = bertlab("fit", *given, "--run_dir", run)
    assert code == 1
    assert (run / "checkpoints" / at_steps[1]).is_file()
    assert "continue with" not in printed + error  # there is no last.ckpt


def test_several_numbers_may_fall_on_one_step(corpus_file: Path, cache_dir: Path) -> None:
    own, _ = data(corpus_file, cache_dir)
    a_step = own.words_per_step("k")
    found = steps_at_words([2.1 * a_step, 1.9 * a_step, 0.2 * a_step], own, math.inf)
    assert found == {2: [2.1 * a_step, 1.9 * a_step], 1: [0.2 * a_step]}


def test_words_of_steps_that_grow(corpus_file: Path, cache_dir: Path) -> None:
    own, _ = data(corpus_file, cache_dir, batch_size={"from": 4, "to": 12})
    words = 100 * own.words_per_step("k", 100)
    # steps grow from 4 to 12: half of the words are read after 0.62 of the steps
    ((half, _), (end, _)) = steps_at_words([words / 2, words], own, 100).items()
    assert half == pytest.approx(62, abs=1)
    assert end == 100


def test_the_step_nearest_to_a_number_of_sequences() -> None:
    sizes = StepSizes(GROWS, 8)  # ends 4, 9, 15, 22, 30, 39, 49, 60
    assert [nearest_step(sizes, n) for n in (0, 4, 11, 13, 58.9, 62)] == [0, 1, 2, 3, 8, 8]
    assert nearest_step(sizes, 1000) == 9  # never reached
    assert nearest_step(StepSizes(4), 11) == 3


@pytest.mark.parametrize(
    ("words", "name"),
    [(1e6, "1M"), (100e6, "100M"), (2.5e6, "2500K"), (1e5, "100K"), (1234, "1234"), (99.6, "100")],
)
def test_names_of_checkpoints(words: float, name: str) -> None:
    assert words_checkpoint_name(words) == f"words-{name}.ckpt"


@pytest.mark.slow
def test_all_of_them_are_exported_under_babylm_names(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    (run / "checkpoints").mkdir(parents=True)
    for name in ("last", "words-10M", "words-2M", "words-900K", "words-x"):
        shutil.copy(tiny_run / "checkpoints" / "last.ckpt", run / "checkpoints" / f"{name}.ckpt")
    names = ["chck_900K", "chck_2M", "chck_10M"]
    assert list(words_checkpoints(run)) == [900_000, 2_000_000, 10_000_000]
    out = tmp_path / "out"
    code, printed, error = bertlab("export", run, out, "--words_checkpoints", "true")
    assert code == 0, error
    assert [line.split(":")[0] for line in printed.splitlines()] == [str(out / n) for n in names]
    assert sorted(path.name for path in out.iterdir()) == sorted(names)
    assert all((out / name / "model.safetensors").is_file() for name in names)


def test_a_run_without_them_cannot_export_them(tiny_run: Path) -> None:
    with pytest.raises(CheckpointError, match="expected a run with checkpoint_words"):
        words_checkpoints(tiny_run)
