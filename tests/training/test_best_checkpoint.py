"""The better end of every metric is known, and the best file is of a step that was evaluated."""

import json
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch
from jsonargparse import Namespace
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint

from bertlab.checkpoints.run_checkpoint import last_checkpoint
from bertlab.checkpoints.tensor_files import load_torch_file
from bertlab.config.run_config import AUTO
from bertlab.errors import ConfigError, DamagedCheckpointError
from bertlab.model.evaluation import end_of
from bertlab.training.best_checkpoint import (
    BestCheckpoint,
    check_checkpoints,
    check_chosen_files,
    choose_monitor,
    direct_callbacks,
)
from bertlab.training.results import read_curves
from tests.conftest import Command

Rows = tuple[object, ...]


def files(run: Path) -> list[str]:
    return sorted(each.name for each in (run / "checkpoints").iterdir())


@pytest.fixture
def rows(tiny_run: Path, tmp_path: Path) -> Rows:
    """Arguments of a fine-tuning whose accuracy begins low and rises."""
    words = ("red", "blue", "green")
    lines = "".join(f"value {n} is {words[n % 3]},{n % 3}\n" for n in range(36))
    (tmp_path / "rows.csv").write_text(f"text,label\n{lines}")
    return (
        *("fit", "--config", "finetune/single-sentence", "--model.init_from", tiny_run),
        *("--data.source", tmp_path / "rows.csv", "--data.max_seq_length", 16),
        *(
            "--data.batch_size",
            9,
            "--data.validation_fraction",
            0.5,
            "--trainer.max_steps",
            40,
            "--trainer.max_epochs",
            -1,
        ),
        *("--trainer.val_check_interval", 4, "--model.optimizer.learning_rate", 1e-2),
        *("--trainer.accelerator", "cpu", "--seed_everything", 1),
    )


def scores(run: Path, metric: str) -> dict[int, float]:
    content = torch.load(run / "checkpoints/last.ckpt", weights_only=True)["bertlab"]["history"]
    return {step: values[f"val/single_sentence/{metric}"] for step, values in content.items()}


@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("metric", "better"),
    [("accuracy", max), ("loss", min), pytest.param("macro_f1", max, marks=pytest.mark.slow)],
)
def test_the_better_end_of_a_named_metric(
    rows: Rows, tmp_path: Path, bertlab: Command, metric: str, better: type[max]
) -> None:
    run = tmp_path / "run"
    monitor = ("--checkpoint.monitor", f"val/single_sentence/{metric}")
    code, _, error = bertlab(*rows, *monitor, "--run_dir", run)
    assert code == 0, error
    best, found = json.loads((run / "best.json").read_text()), scores(run, metric)
    assert found[best["step"]] == better(found.values())
    assert best["checkpoint"] == f"step-{best['step']}.ckpt"


@pytest.mark.first_slow
@pytest.mark.parametrize("monitor", ["val/loss", "train/loss", "train/mlm/loss"])
def test_the_best_by_any_logged_figure_is_told(
    tiny_config: Path, tmp_path: Path, bertlab: Command, monitor: str
) -> None:
    run = tmp_path / "run"
    given = ("--checkpoint.monitor", monitor, "--checkpoint.mode", "min")
    code, printed, error = bertlab("fit", "--config", tiny_config, *given, "--run_dir", run)
    assert code == 0, error
    best = json.loads((run / "best.json").read_text())
    logged = dict(zip(*read_curves(run)[monitor], strict=True))
    values = {step: logged[step - 1] for step in (3, 6)}  # Lightning logs the first as 0
    assert best["step"] == min(values, key=lambda step: values[step])
    assert best["monitor"] == monitor
    assert f"best {monitor}: {values[best['step']]:.4f} at step {best['step']}" in printed


@pytest.mark.parametrize("monitor", [AUTO, "tone", "val/tone/f1"])
def test_a_mode_against_the_better_end_is_refused(monitor: str) -> None:
    model = Mock(heads={"tone": Mock(monitor=("f1", "max"))})
    model.metric_names.return_value = ["val/tone/f1"]
    model.evaluations.monitor_of.return_value = "val/tone/f1"
    model.evaluations.better_end.return_value = "max"
    for mode in (AUTO, "max"):
        assert choose_monitor(monitor, model, mode) == ("val/tone/f1", "max")
    with pytest.raises(ConfigError, match=r"checkpoint.mode: found min, but of val/tone/f1 the be"):
        choose_monitor(monitor, model, "min")


@pytest.mark.slow
def test_a_metric_without_a_better_end_needs_a_mode(
    rows: Rows, tmp_path: Path, bertlab: Command
) -> None:
    monitor = ("--checkpoint.monitor", "val/single_sentence/predicted_classes")
    code, _, error = bertlab(*rows, *monitor, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "of which nothing tells the better end; expected checkpoint.mode beside it" in error
    mode = ("--checkpoint.mode", "max")
    assert bertlab(*rows, *monitor, *mode, "--run_dir", tmp_path / "run")[0] == 0
    best = json.loads((tmp_path / "run" / "best.json").read_text())
    found = scores(tmp_path / "run", "predicted_classes")
    assert found[best["step"]] == max(found.values())


def test_a_mode_that_contradicts_the_metric(rows: Rows, tmp_path: Path, bertlab: Command) -> None:
    arguments = ("--checkpoint.monitor", "val/single_sentence/accuracy", "--checkpoint.mode", "min")
    code, _, error = bertlab(*rows, *arguments, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "of val/single_sentence/accuracy the better end is max" in error


def test_names_of_files_have_figures_that_there_are(
    rows: Rows, tmp_path: Path, bertlab: Command
) -> None:
    name = ("--checkpoint.filename", "best-{epoch}-{val_loss:.2f}")
    code, _, error = bertlab(*rows, *name, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "checkpoint.filename: found {val_loss}; did you mean 'val/loss'?" in error


@pytest.mark.slow
def test_early_stopping_stops_where_a_score_no_longer_rises(
    rows: Rows, tmp_path: Path, bertlab: Command
) -> None:
    stopping = (
        *("--trainer.callbacks", "EarlyStopping", "--trainer.callbacks.patience", 3),
        *("--trainer.callbacks.monitor", "val/single_sentence/accuracy"),
    )
    code, _, error = bertlab(*rows, *stopping, "--run_dir", tmp_path / "run")
    assert code == 0, error
    found = list(scores(tmp_path / "run", "accuracy").values())
    best = found.index(max(found))
    assert best > 0, found
    assert len(found) > 3  # by the loss's end it had stopped when the score first rose
    assert len(found) <= best + 4


def model_of(better: dict[str, str | None]) -> Mock:
    model = Mock(heads={})
    model.optimizer_config.schedule.monitor = None
    model.metric_names.return_value = list(better)
    model.evaluations.better_end.side_effect = better.get
    return model


def test_callbacks_of_the_user_take_the_better_end() -> None:
    model = model_of({"val/a/las": "max", "val/a/odd": None, "val/loss": "min"})
    stop, keep = EarlyStopping("val/a/las", min_delta=0.1), ModelCheckpoint(monitor="val/a/las")
    trainer = Mock(callbacks=[stop, keep])
    direct_callbacks(trainer, model, None)
    assert (stop.mode, keep.mode) == ("max", "max")
    fresh = EarlyStopping("val/a/las", min_delta=0.1, mode="max")
    assert (stop.min_delta, stop.best_score) == (fresh.min_delta, fresh.best_score)
    assert keep.kth_value == -torch.inf
    stop = EarlyStopping("val/a/odd", mode="max")
    with pytest.raises(ConfigError, match="nothing tells the better end"):
        direct_callbacks(Mock(callbacks=[stop]), model, None)
    own = {"monitor": "val/a/odd", "mode": "max"}
    for given in (
        [{"class_path": "EarlyStopping", "init_args": own}],
        [Namespace(class_path="EarlyStopping", init_args=Namespace(own))],
        "{class_path: EarlyStopping, init_args: {monitor: val/a/odd, mode: max}}",
    ):
        direct_callbacks(Mock(callbacks=[stop]), model, given)
        assert stop.mode == "max"
    mixed = ModelCheckpoint(monitor="val/loss", every_n_train_steps=5)
    with pytest.raises(ConfigError, match="figures of another step"):
        direct_callbacks(Mock(callbacks=[mixed]), model, None)


def test_the_better_end_is_in_the_config_that_is_kept() -> None:
    stop = EarlyStopping("val/a/las")
    recorded = [
        {"class_path": "EarlyStopping", "init_args": {"monitor": "val/a/las", "mode": "min"}}
    ]
    direct_callbacks(Mock(callbacks=[stop]), model_of({"val/a/las": "max"}), None, recorded)
    assert recorded[0]["init_args"] == {"monitor": "val/a/las", "mode": "max"}
    # where the figures are new, so that the checkpoint behind them has what it made of them
    assert stop._check_on_train_epoch_end is False
    stop = EarlyStopping("train/loss")  # which is new without an evaluation, too
    direct_callbacks(Mock(callbacks=[stop]), model_of({"train/loss": "min"}), None)
    assert stop._check_on_train_epoch_end is None
    with pytest.raises(RuntimeError, match="not available"):
        stop._validate_condition_metric({})


def test_an_epoch_may_end_before_the_first_evaluation() -> None:
    stop = EarlyStopping("val/a/las", check_on_train_epoch_end=True)
    direct_callbacks(Mock(callbacks=[stop]), model_of({"val/a/las": "max"}), None)
    trainer = Mock(callback_metrics={"train/loss": torch.tensor(1.0)}, fast_dev_run=False)
    stop.on_train_epoch_end(trainer, Mock())
    assert stop._check_on_train_epoch_end is True
    assert stop.wait_count == 0


@pytest.mark.slow
def test_a_run_that_early_stopping_ended_stays_at_its_end(
    rows: Rows, tmp_path: Path, bertlab: Command
) -> None:
    stopping = (
        *("--trainer.callbacks", "EarlyStopping", "--trainer.callbacks.patience", 1),
        *("--trainer.callbacks.monitor", "val/single_sentence/loss"),
        *("--trainer.callbacks.min_delta", 100.0, "--checkpoint.save_top_k", -1),
    )
    run = tmp_path / "run"
    assert bertlab(*rows, *stopping, "--run_dir", run)[0] == 0
    before = (files(run), (run / "results.json").read_bytes())
    assert "step-8.ckpt" in before[0]
    assert "step-12.ckpt" not in before[0]
    again = ("fit", "--ckpt_path", run, "--config", run / "config.yaml")
    code, _, error = bertlab(*again)
    assert code == 0, error
    assert (files(run), (run / "results.json").read_bytes()) == before


def test_a_run_that_was_moved_keeps_its_choice(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    for folder in (there, here):
        folder.mkdir()
        (folder / "step-4.ckpt").touch()
    chosen = str(there / "step-4.ckpt")
    state = {
        "dirpath": str(there),
        "best_model_path": chosen,
        "best_model_score": torch.tensor(0.5),
        "best_k_models": {chosen: torch.tensor(0.5)},
        "kth_best_model_path": chosen,
        "kth_value": torch.tensor(0.5),
        "last_model_path": "",
        "monitor": "val/loss",
    }
    moved = BestCheckpoint(dirpath=here, monitor="val/loss")
    moved.load_state_dict(state)
    assert moved.best_model_path == str(here / "step-4.ckpt")
    assert [*moved.best_k_models] == [str(here / "step-4.ckpt")]
    (here / "step-4.ckpt").unlink()  # a run that goes on elsewhere chooses among its own
    elsewhere = BestCheckpoint(dirpath=here, monitor="val/loss")
    with pytest.warns(UserWarning, match="dirpath has changed"):
        elsewhere.load_state_dict(state)
    assert not elsewhere.best_k_models


def test_names_of_sets_and_types() -> None:
    ends = {"f1": "max", "loss": "min"}
    assert end_of("dev/f1/PER", ends) == "max"
    assert end_of("best_f1_threshold", ends) is None
    assert choose_monitor(None, Mock()) == (None, "min")


@pytest.mark.parametrize(
    ("monitor", "meant"),
    [
        ("f1", "val/topic/f1"),
        ("eval_f1", "val/topic/f1"),
        ("eval_macro_f1", "val/topic/macro_f1"),
        ("val/accuracy", "val/topic/accuracy"),
        ("val_loss", "val/loss"),
        ("val/topic/acuracy", "val/topic/accuracy"),
    ],
)
def test_a_monitor_as_others_call_it_is_told_by_its_name(monitor: str, meant: str) -> None:
    figures = [f"val/topic/{name}" for name in ("accuracy", "f1", "loss", "macro_f1")]
    model = Mock(heads={})
    model.metric_names.return_value = ["train/loss", "train/topic/loss", "val/loss", *figures]
    with pytest.raises(ConfigError) as caught:
        choose_monitor(monitor, model)
    assert f"found {monitor!r}; did you mean {meant!r}? (there are: train/loss, " in str(
        caught.value
    )


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"every_n_train_steps": 1, "save_top_k": 1}, ["last.ckpt", "step-6.ckpt"]),
        ({"every_n_train_steps": 2, "save_top_k": 2}, ["last.ckpt", "step-3.ckpt", "step-6.ckpt"]),
        ({"every_n_train_steps": 2, "save_top_k": -1}, None),  # 2, 3, 4 and 6
        (
            {"every_n_train_steps": 4, "save_top_k": -1, "monitor": "null"},
            ["last.ckpt", "step-4.ckpt"],
        ),
        ({"save_top_k": 0}, ["last.ckpt"]),
    ],
)
def test_what_is_kept_of_steps_and_evaluations(
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    settings: dict[str, object],
    kept: list[str] | None,
) -> None:
    """The loss falls; evaluations are at steps 3 and 6."""
    arguments = [
        str(each) for key, value in settings.items() for each in (f"--checkpoint.{key}", value)
    ]
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments, "--run_dir", run)
    assert code == 0, error
    assert files(run) == (kept or ["last.ckpt", *(f"step-{n}.ckpt" for n in (2, 3, 4, 6))])


@pytest.mark.nightly
def test_a_step_of_an_accumulated_batch_is_not_saved_halfway(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    every = ("--checkpoint.every_n_train_steps", 2, "--checkpoint.save_top_k", -1)
    parts = ("--trainer.accumulate_grad_batches", 2, "--trainer.val_check_interval", 6)
    fit = ("fit", "--config", tiny_config, *every, *parts, "--run_dir")
    assert bertlab(*fit, tmp_path / "whole")[0] == 0
    run = tmp_path / "run"
    assert bertlab(*fit, run)[0] == 0
    (run / "results.json").unlink()
    again = ("--ckpt_path", run / "checkpoints/step-2.ckpt")
    code, _, error = bertlab("fit", *again)
    assert code == 0, error
    found, expected = (
        torch.load(each / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        for each in (run, tmp_path / "whole")
    )
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize("settings", [{"filename": "best", "save_top_k": 3}, {"filename": "last"}])
def test_files_that_would_replace_each_other_are_refused(settings: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"checkpoint\.filename"):
        check_checkpoints({"save_top_k": 1, "save_last": True, **settings})


@pytest.mark.nightly
def test_without_last_the_newest_whole_checkpoint_goes_on(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    """A kill may fall between the two files of an evaluation."""
    run = tmp_path / "run"
    fit = ("fit", "--config", tiny_config, "--run_dir", run, "--checkpoint.save_top_k", -1)
    assert bertlab(*fit)[0] == 0
    folder = run / "checkpoints"
    results = (run / "results.json").read_bytes()
    (run / "results.json").unlink()
    (folder / "last.ckpt").unlink()
    (folder / "step-6.ckpt").write_bytes(b"half of a file")
    (folder / "words-1K.ckpt").write_bytes((folder / "step-3.ckpt").read_bytes())
    code, printed, error = bertlab(*fit, "--ckpt_path", "last")
    assert code == 0, error
    assert f"continues from {folder / 'step-3.ckpt'}" in printed
    assert (run / "results.json").read_bytes() == results
    sessions = json.loads((run / "manifest.json").read_text())["sessions"]
    assert [each["step"] for each in sessions] == [0, 3]
    (folder / "step-6.ckpt").touch()  # as of a run that was copied: newer, of no later step
    (folder / "step-3.ckpt").touch()
    assert last_checkpoint(run) == folder / "last.ckpt"
    # killed between the two files of its last step
    (folder / "last.ckpt").write_bytes((folder / "step-3.ckpt").read_bytes())
    (folder / ".last.ckpt.host.1.0.partial").write_bytes(b"half of a file")
    (folder / "step-6.ckpt").touch()
    (run / "results.json").unlink()
    code, printed, error = bertlab(*fit, "--ckpt_path", "last")
    assert code == 0, error
    assert f"continues from {folder / 'step-6.ckpt'}" in printed
    assert (run / "results.json").read_bytes() == results
    assert load_torch_file(folder / "last.ckpt")["global_step"] == 6
    assert not list(folder.glob(".*"))


@pytest.mark.parametrize("name", ["{}/last.ckpt", "{}/val/loss=2.ckpt", "/elsewhere/a.ckpt", None])
def test_files_of_a_checkpoint_callback_are_in_its_folder(name: str | None, tmp_path: Path) -> None:
    chosen = name and name.format(tmp_path)
    check_chosen_files({"best_model_path": chosen}, ModelCheckpoint(tmp_path), "a.ckpt")


@pytest.mark.parametrize("key", ["best_model_path", "last_model_path", "best_k_models"])
@pytest.mark.parametrize(
    "name",
    [
        "{}/../precious.ckpt",
        "{}/link/precious.ckpt",
        "{}/thesis",  # a folder of the user's, which Lightning would delete with all in it
        "s3://precious/a.ckpt",
        "simplecache::/../precious.ckpt",  # fsspec's: Lightning takes it for a file elsewhere
    ],
)
def test_no_other_file_is_deleted_for_a_checkpoint(key: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / "link").symlink_to(tmp_path)
    chosen = name.format(folder)
    state = {key: {chosen: torch.tensor(1.0)} if key == "best_k_models" else chosen}
    with pytest.raises(DamagedCheckpointError, match=r"a.ckpt: .*expected a file in the run's"):
        check_chosen_files(state, ModelCheckpoint(folder), "a.ckpt")
