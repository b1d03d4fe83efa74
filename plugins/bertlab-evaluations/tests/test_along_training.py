"""Evaluations along a run: same weights as without, curves, files, resumption, mistakes."""

import csv
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from jsonargparse import Namespace

from bertlab.api import TaskData
from bertlab.cli.main import main
from bertlab.config.run_config import check_stored
from bertlab.errors import CheckpointError, ConfigError
from bertlab.model.module import BertModule
from bertlab.plugins import index
from bertlab.plugins.index import forget_installed
from bertlab_evaluations.along_training import EvaluationsAlong, along_training
from bertlab_evaluations.entries import read_entries
from tests.plugins.strange_packages import install


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pairs") / "order.tsv"
    path.write_text("good\tbad\na statement is\tstatement is a\nthe name\tname the\n", "utf-8")
    return path


def fit(config: Path, run: Path, *arguments: str) -> int:
    return main(["fit", "--config", str(config), "--run_dir", str(run), *arguments])


def asked(data: Path) -> list[str]:
    content = f"{{order: {{evaluation: minimal_pairs, data: {data}}}}}"
    return ["--evaluations", content]


def weights(run: Path) -> dict[str, torch.Tensor]:
    content = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    state: dict[str, torch.Tensor] = content["state_dict"]
    return state


@pytest.mark.slow
def test_a_run_with_evaluations_has_the_weights_of_one_without(tiny_config, data, tmp_path):
    dropout = ["--model.encoder.hidden_dropout_prob", "0.1"]  # draws random numbers at each step
    assert fit(tiny_config, tmp_path / "without", *dropout) == 0
    assert fit(tiny_config, tmp_path / "with", *dropout, *asked(data)) == 0
    without, found = weights(tmp_path / "without"), weights(tmp_path / "with")
    assert all(torch.equal(found[name], value) for name, value in without.items())


@pytest.fixture(scope="module")
def evaluated(tiny_config, data, tmp_path_factory):
    """A run with an evaluation."""
    run = tmp_path_factory.mktemp("evaluated") / "run"
    assert fit(tiny_config, run, *asked(data)) == 0
    return run


@pytest.mark.slow
def test_figures_are_in_results_logs_and_files(evaluated):
    run = evaluated
    results = json.loads((run / "results.json").read_text("utf-8"))
    last = json.loads((run / "evaluations/step-6/results.json").read_text("utf-8"))
    assert results["order/accuracy"] == pytest.approx(last["order/accuracy"])
    assert sorted(each.name for each in (run / "evaluations").iterdir()) == ["step-3", "step-6"]
    (log,) = run.glob("csv/**/metrics.csv")
    with log.open(newline="") as file:
        logged = [row for row in csv.DictReader(file) if row.get("val/order/accuracy")]
    assert len(logged) == 2


def test_the_command_gives_the_same_figures_for_the_same_checkpoint(evaluated, data, tmp_path):
    out = tmp_path / "out"
    command = ["evaluate", "--ckpt_path", str(evaluated), "--name", "order"]
    command += ["--evaluation", "minimal_pairs", "--data", str(data), "--output", str(out)]
    assert main(command) == 0
    along = (evaluated / "evaluations/step-6/order.rows.jsonl").read_text("utf-8")
    assert (out / "order.rows.jsonl").read_text("utf-8") == along


@pytest.mark.slow
def test_checkpoints_by_words_make_a_curve(tiny_run, data, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(tiny_run, run)
    checkpoints = run / "checkpoints"
    early = checkpoints / "step-3.ckpt"
    shutil.copy(early, checkpoints / "words-900.ckpt")
    shutil.copy(checkpoints / "last.ckpt", checkpoints / "words-2K.ckpt")
    command = ["evaluate", "--evaluation", "minimal_pairs", "--name", "order", "--data", str(data)]
    for model, name in ((run, "along"), (early, "early")):
        more = ["--words_checkpoints", "true"] if name == "along" else []
        output = ["--output", str(tmp_path / name)]
        assert main([*command, "--ckpt_path", str(model), *output, *more]) == 0

    def groups(name: str, words: str | None = None) -> list[list[str]]:
        kind = "groups" if words is None else "words"
        with (tmp_path / name / f"order.{kind}.csv").open(newline="") as file:
            _, *rows = csv.reader(file)
        return rows if words is None else [row[1:] for row in rows if row[0] == words]

    assert groups("along", "2000") == groups("along")
    assert groups("along", "900") == groups("early")
    assert len(groups("along")) == 2  # all rows, and the one paradigm


@pytest.mark.parametrize(
    ("value", "message"),
    [("true", "expected a run with checkpoint_words"), ("yes", "expected true or false")],
)
def test_checkpoints_by_words_that_are_not_there(tiny_run, data, value, message, capsys):
    command = ["evaluate", "--ckpt_path", str(tiny_run), "--evaluation", "minimal_pairs"]
    assert main([*command, "--data", str(data), "--words_checkpoints", value]) == 2
    assert message in capsys.readouterr().err


def test_a_damaged_file_of_results_is_named_and_kept(tiny_run, data, tmp_path, capsys):
    file = tmp_path / "results.json"
    file.write_text("{", "utf-8")
    command = ["evaluate", "--ckpt_path", str(tiny_run), "--evaluation", "minimal_pairs"]
    assert main([*command, "--data", str(data), "--output", str(tmp_path)]) == 2
    assert f"{file}: damaged" in capsys.readouterr().err
    assert file.read_text("utf-8") == "{"


@pytest.mark.slow
def test_evaluate_every_chooses_the_steps_and_always_has_the_last(tiny_config, data, tmp_path):
    run = tmp_path / "run"
    every = ["--evaluate_every", "6", "--trainer.max_steps", "9"]
    assert fit(tiny_config, run, *asked(data), *every) == 0
    assert sorted(each.name for each in (run / "evaluations").iterdir()) == ["step-6", "step-9"]


@pytest.mark.slow
def test_evaluate_every_has_the_last_step_of_a_run_that_epochs_end(tiny_config, data, tmp_path):
    run = tmp_path / "run"
    every = ["--evaluate_every", "1000", "--trainer.max_epochs", "1", "--trainer.max_steps", "-1"]
    interval = ["--trainer.val_check_interval", "1"]
    assert fit(tiny_config, run, *asked(data), *every, *interval) == 0
    (folder,) = (run / "evaluations").iterdir()
    last = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"]
    assert folder.name == f"step-{last}"


class SixStepsAnEpoch:
    """Data that a run of two epochs reads in twelve steps."""

    def total_steps(self, trainer: Any) -> float:
        return 12.0

    def steps_per_epoch(self) -> int:
        return 6

    def sequences_per_step(self) -> int:
        return 8


def a_trainer(interval: float, parts: int, epochs: int = 1, limit: float = 1.0) -> Any:
    return SimpleNamespace(
        val_check_interval=interval,
        accumulate_grad_batches=parts,
        limit_train_batches=limit,
        check_val_every_n_epoch=None if isinstance(interval, int) else epochs,
    )


@pytest.mark.parametrize(
    ("interval", "parts", "epochs", "limit", "looks"),
    [
        (4, 2, 1, 1.0, 2),  # Lightning counts batches
        (3, 1, 1, 1.0, 3),
        (1.0, 1, 1, 1.0, 6),  # the default: each epoch
        (1.0, 2, 3, 1.0, 18),
        (0.5, 2, 1, 1.0, 3),
        (1.0, 1, 1, 2, 2),  # an epoch is shorter
        (1.0, 2, 2, 0.5, 6),
        (0.5, 1, 1, 4, 2),
    ],
)
def test_evaluate_every_is_a_multiple_of_the_steps_between_looks(
    data: Path, interval: float, parts: int, epochs: int, limit: float, looks: int
) -> None:
    trainer, rows = a_trainer(interval, parts, epochs, limit), cast("TaskData", SixStepsAnEpoch())
    entries = read_entries({"x": {"evaluation": "minimal_pairs", "data": str(data)}}, "evaluations")
    along = EvaluationsAlong(data.parent, entries, 2 * looks)
    along.prepare(trainer, rows)
    assert along.end == 12
    with pytest.raises(ConfigError, match=f"found {looks + 1}, expected a multiple of {looks},"):
        EvaluationsAlong(data.parent, [], looks + 1).prepare(trainer, rows)
    # has its own few batches, and a look at their end
    quick: Any = SimpleNamespace(**vars(trainer), fast_dev_run=2)
    assert EvaluationsAlong(data.parent, entries, looks + 1).prepare(quick, rows)


@pytest.mark.parametrize(("interval", "parts", "epochs"), [(0.7, 1, 1), (0.5, 1, 2), (0.25, 2, 1)])
def test_evaluate_every_is_refused_where_looks_are_at_other_steps_in_each_epoch(
    tmp_path: Path, interval: float, parts: int, epochs: int
) -> None:
    along = EvaluationsAlong(tmp_path, [], 3)
    with pytest.raises(ConfigError, match=f"found 3, and trainer.val_check_interval {interval}, a"):
        along.prepare(a_trainer(interval, parts, epochs), cast("TaskData", SixStepsAnEpoch()))


def test_a_last_step_that_was_looked_at_and_not_scored_is_looked_at_again(tmp_path: Path) -> None:
    along, module = EvaluationsAlong(tmp_path, [], 5), BertModule.__new__(BertModule)
    object.__setattr__(module, "evaluated_step", 6)
    trainer: Any = SimpleNamespace(global_step=6)
    along.on_train_end(trainer, module)  # which Lightning ended early
    assert module.evaluated_step == -1


@pytest.mark.parametrize(
    "model",
    [
        {"head": {"name": "order"}},
        {"objectives": {"order": {}}},
        {"objectives": {"mlm": {}}, "heads": {"order": {"name": "sentence_pair"}}},
    ],
)
def test_an_evaluation_is_not_called_like_a_task(
    tmp_path: Path, data: Path, model: dict[str, Any]
) -> None:
    evaluations = {"order": {"evaluation": "minimal_pairs", "data": str(data)}}
    values = Namespace(model=Namespace(model), evaluations=evaluations, evaluate_every=None)
    with pytest.raises(ConfigError, match=r"evaluations\.order: found the name of a head or obj"):
        along_training(tmp_path, values)


@pytest.mark.nightly
def test_a_resumed_run_goes_on_with_its_evaluations(tiny_config, data, tmp_path):
    run = tmp_path / "run"
    assert fit(tiny_config, run, *asked(data), "--trainer.max_steps", "3") == 0
    resumed = ["fit", "--ckpt_path", str(run), "--trainer.max_steps", "6"]
    assert main(resumed) == 2  # another length is another computation
    whole = tmp_path / "whole"
    assert fit(tiny_config, whole, *asked(data)) == 0
    step = whole / "checkpoints" / "step-3.ckpt"
    again = tmp_path / "again"
    assert main(["fit", "--ckpt_path", str(step), "--run_dir", str(again)]) == 0
    expected = (whole / "evaluations/step-6/order.rows.jsonl").read_text("utf-8")
    assert (again / "evaluations/step-6/order.rows.jsonl").read_text("utf-8") == expected


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--evaluate_every", "4"], "evaluate_every: found 4, expected a multiple of"),
        (
            ["--evaluations", "{mlm: {evaluation: minimal_pairs, data: y}}"],
            "evaluations.mlm: found the name of a head or objective",
        ),
        (
            ["--evaluations", "{x: {evaluation: minimal_pears, data: y}}"],
            "did you mean 'minimal_pairs'",
        ),
        (["--evaluations", "{x: {evaluation: minimal_pairs, data: /nowhere}}"], "/nowhere"),
        (["--evaluations", "{x: {evaluation: minimal_pairs}}"], "evaluations.x"),
    ],
)
def test_mistakes_leave_no_run(tiny_config, data, tmp_path, arguments, message, capsys):
    assert fit(tiny_config, tmp_path / "run", *asked(data), *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_stored_config_names_no_function_in_the_settings_of_an_evaluation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = (
        "from collections.abc import Callable\nfrom bertlab import Evaluation\n"
        "class Odd(Evaluation):\n"
        "    columns, monitor = (), ('x', 'max')\n"
        "    def __init__(self, by: Callable[[int], int] | None = None): ...\n"
        "    def evaluate(self, model, rows): ...\n"
    )
    install(tmp_path, "odd", {"bertlab.evaluations": {"odd": "odd_one:Odd"}}, {"odd_one": code})
    monkeypatch.syspath_prepend(tmp_path)
    # of strangers such a setting is refused already when the class is loaded
    monkeypatch.setattr(index, "FIRST_PARTY", index.FIRST_PARTY | {"odd"})
    forget_installed()
    config = {
        "evaluations": {"x": {"evaluation": "odd", "data": "y", "settings": {"by": "os.abc"}}}
    }
    with pytest.raises(
        CheckpointError, match=r"x\.ckpt: evaluations\.x: .* names a class or a func"
    ):
        check_stored(config, "x.ckpt")
    check_stored({"evaluations": None}, "x.ckpt")
    monkeypatch.undo()
    forget_installed()
