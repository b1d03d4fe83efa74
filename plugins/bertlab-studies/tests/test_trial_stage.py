"""A study that is tuned: trials are run first, the best is chosen, the study goes on with it."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from bertlab.errors import CommandError
from bertlab.plugins import index
from bertlab_studies import run_study
from bertlab_studies.choice import TUNED
from bertlab_studies.errors import StudyError
from bertlab_studies.execute import local
from bertlab_studies.execute.executor import StudyExecutor
from bertlab_studies.execute.run_state import (
    Attempt,
    Outcome,
    State,
    is_done,
    own_state,
    write_attempts,
)
from bertlab_studies.execute.schedule import OnChange, StudyStopped, Summary
from bertlab_studies.plan.plan import Plan, PlannedRun
from bertlab_studies.plan.tuning import Rows
from bertlab_studies.reuse import Reusable
from bertlab_studies.study import Study
from bertlab_studies.study import study as open_study
from small_study import opened
from tests.plugins.strange_packages import install

ROWS = 60
SINGLE = [""] * ROWS  # no clusters
PASSAGES = [f"context:{row // 5}" for row in range(ROWS)]
RATES = [1.0e-4, 1.0e-3, 1.0e-2]
TUNE: dict[str, Any] = {
    "space": {"evaluate.optimizer.learning_rate": RATES},
    "search": "grid",
}
EVALUATED: dict[str, Any] = {"evaluate": {"x": "task.yaml"}}


def right_rows(run: PlannedRun) -> list[bool]:
    """Which rows a fine-tuning gets right: 1e-3 is best where rows choose, 1e-2 where they decide.

    A run whose rate is not tuned is as bad as those of 1e-4.
    """
    rate = rate_of(run)
    place = RATES.index(float(rate)) if rate else 0
    quality = {True: (0.3, 0.9, 0.5), False: (0.3, 0.5, 0.9)}
    chooses = Rows.CHOOSE.of(SINGLE)
    return [
        (row * 7 + run.seed) % 10 < 10 * quality[bool(each)][place]
        for row, each in enumerate(chooses)
    ]


class FakeExecutor:
    """Leaves what runs leave; those whose id has a text in it fail, or stop all."""

    def __init__(self, failing: str = " ", stopping: str = " ") -> None:
        self.failing, self.stopping = failing, stopping
        self.ran: list[str] = []
        self.clusters = SINGLE

    def __call__(
        self, plan: Sequence[PlannedRun], study_dir: Path, *, on_change: OnChange, **given: object
    ) -> Summary:
        del on_change, given
        summary = Summary()
        for run in plan:
            if is_done(run.directory(study_dir)):
                summary.done.append(run.id)
            elif self.stopping in run.id or summary.stopped_by is not None:
                summary.stopped_by = 15
                summary.left.append(run.id)
            elif self.failing in run.id:
                failed = Attempt(1.0, resumed=False, outcome=Outcome.FAILED, exit_code=1)
                write_attempts(run, study_dir, [failed])
                summary.failed[run.id] = "out of paper"
            else:
                self._finish(run, run.directory(study_dir))
                summary.done.append(run.id)
        return summary

    def _finish(self, run: PlannedRun, directory: Path) -> None:
        self.ran.append(run.id)
        directory.mkdir(parents=True)
        results = {"mlm/loss": 3.0, "loss": 3.0}
        if "--keep_predictions=true" in run.arguments:  # a fine-tuning
            right = right_rows(run)
            lines = [
                {"label": "ab"[each], "gold": {"label": "b"}, "cluster": cluster}
                for each, cluster in zip(right, self.clusters, strict=True)
            ]
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (directory / "predictions.jsonl").write_text(text, "utf-8")
            results = {"single_sentence/accuracy": sum(right) / ROWS}
        (directory / "manifest.json").write_text("{}", "utf-8")
        (directory / "results.json").write_text(json.dumps(results), "utf-8")


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    found = FakeExecutor()
    monkeypatch.setattr(local, "run_local", found)
    return found


def tuned(folder: Path, tune: dict[str, Any] = TUNE, **content: Any) -> Study:
    return opened(folder, **EVALUATED, tune=tune, **content)


def rate_of(run: PlannedRun) -> str:
    rates = [each.rpartition("=")[2] for each in run.arguments if "learning_rate" in each]
    return rates[-1] if rates else ""


def mean_right(run: PlannedRun, rows: Rows, clusters: Sequence[str] = SINGLE) -> float:
    kept = rows.of(clusters)
    right = [each for each, counts in zip(right_rows(run), kept, strict=True) if counts]
    return sum(right) / len(right)


@pytest.mark.slow
def test_the_best_trial_on_half_of_the_rows_is_run_and_decided_on_the_other(
    tmp_path: Path, fake: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tuned(tmp_path)
    planned = study.plan()
    assert planned.title.endswith("study: 8 runs after 8 runs of trials")
    assert len(planned.rows) == 16
    assert "chosen when its trials are over" in planned.note
    with pytest.raises(CommandError, match=r"run-one .*/study/tuning --run ID"):
        study.run_one(study.runs[0].id)
    summary = study.run()
    # trials: a pre-training of each variant, three fine-tunings of it; then 2 variants x 2 seeds
    assert len(fake.ran) == 8 + 8
    assert len(summary.done) == 8
    fine_tunings = [run for run in study.runs if run.stage == "x"]
    assert {rate_of(run) for run in fine_tunings} == {"0.001"}
    assert {run.seed for run in fine_tunings} == {1, 2}
    assert "chosen for both: trial 2, {evaluate.model.optimizer.learning_rate: 0.001}" in (
        capsys.readouterr().out
    )
    scores = study.scores()
    assert scores.tuning is not None
    assert scores.tuning.chosen == {"both": 1, "mlm": 1}
    trial = study.stage.study.runs[1] if study.stage is not None else fine_tunings[0]
    assert scores.tuning.trials["both"][0].value == pytest.approx(mean_right(trial, Rows.CHOOSE))
    cell = scores.cell("both", scores.measures[0])
    run = study.planned.run_of("both", "x", 1)
    assert cell.values[1] == pytest.approx(mean_right(run, Rows.DECIDE))
    assert len(cell.examples[1]) == Rows.DECIDE.of(SINGLE).sum()
    report = study.report()
    assert "tuning_trials.csv" in [path.name for path in report.files]
    assert not any("changed" in line for line in scores.remarks)
    analysis = json.loads((study.study_dir / "analysis.json").read_text("utf-8"))["analysis"]
    assert analysis["tune"]["trials"] == 3
    again = open_study(study.study_dir)
    assert [run.id for run in again.runs] == [run.id for run in study.runs]
    again.run()
    assert len(fake.ran) == 16


@pytest.mark.slow
def test_rows_of_a_passage_choose_or_decide_together(tmp_path: Path, fake: FakeExecutor) -> None:
    fake.clusters = PASSAGES
    study = tuned(tmp_path)
    study.run()
    run = study.planned.run_of("both", "x", 1)
    scores = study.scores()
    cell = scores.cell("both", scores.measures[0])
    assert cell.values[1] == pytest.approx(mean_right(run, Rows.DECIDE, PASSAGES))
    assert cell.clusters is not None
    assert cell.clusters.sizes.tolist() == [5.0] * 6
    assert scores.tuning is not None
    assert scores.tuning.rows == Rows.CHOOSE
    # chosen before passages stayed whole: the rows that did not choose decide still
    file = study.study_dir / TUNED
    choice = json.loads(file.read_text("utf-8"))
    file.write_text(json.dumps({**choice, "halves": None}), "utf-8")
    scores = open_study(study.study_dir).scores()
    cell = scores.cell("both", scores.measures[0])
    assert cell.values[1] == pytest.approx(mean_right(run, Rows.DECIDE))
    assert scores.tuning is not None
    assert scores.tuning.rows == Rows.CHOOSE_SINGLY


@pytest.mark.slow
def test_a_trial_that_fails_counts_and_the_choice_stays(
    tmp_path: Path, fake: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.failing = "both-trial-2-x"
    study = tuned(tmp_path)
    study.run()
    assert "failed: both-trial-2-x-seed-0" in capsys.readouterr().out
    found = study.scores().tuning
    assert found is not None
    assert found.chosen == {"both": 2, "mlm": 1}
    assert [each.value is None for each in found.trials["both"]] == [False, True, False]
    fake.failing = " "
    again = open_study(study.study_dir)
    again.run()
    assert again.stage is not None
    assert again.stage.chosen == {"both": 2, "mlm": 1}
    # without the file, the failed trial is tried again and chosen, which changes the study
    (study.study_dir / TUNED).unlink()
    anew = open_study(study.study_dir)
    with pytest.raises(StudyError, match="the study changed since it was begun"):
        anew.run()


@pytest.mark.slow
def test_a_study_that_is_stopped_goes_on_with_the_same_trials(
    tmp_path: Path, fake: FakeExecutor
) -> None:
    fake.stopping = "mlm-trial-2"
    random = {"trials": 3, "space": {"evaluate.optimizer.learning_rate": RATES}}
    with pytest.raises(StudyStopped, match=r"continue with: bertlab study run .*/study$"):
        tuned(tmp_path, random).run()
    begun = list(fake.ran)
    fake.stopping = " "
    study = open_study(tmp_path / "study")
    assert study.stage is not None
    states = {run.id: own_state(run, study.stage.study.study_dir) for run in study.stage.study.runs}
    assert [run for run, state in states.items() if state is State.DONE] == begun
    study.run()
    assert sorted(set(fake.ran)) == sorted(fake.ran)  # none twice
    assert set(states) < set(fake.ran)


@pytest.mark.slow
def test_no_choice_without_a_value(tmp_path: Path, fake: FakeExecutor) -> None:
    fake.failing = "mlm-trial"
    with pytest.raises(StudyError, match=r"none of the 3 trials of the variant 'mlm' has a value"):
        tuned(tmp_path).run()
    assert not (tmp_path / "study" / TUNED).exists()


class Strange(StudyExecutor):
    """Executes the runs of a study somehow.

    Args:
        queue: where they wait.
    """

    fake = FakeExecutor()
    asked: ClassVar[list[tuple[Path, Path, str | None]]] = []

    def __init__(self, queue: str | None = None) -> None:
        self.queue = queue

    def execute(
        self, plan: Sequence[PlannedRun], study_dir: Path, *, kept_in: Path, on_change: OnChange
    ) -> Summary:
        self.asked.append((study_dir, kept_in, self.queue))
        return self.fake(plan, study_dir, on_change=on_change)


@pytest.mark.slow
def test_trials_and_the_study_are_run_by_the_same_executor_of_a_stranger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry_points = {index.GROUPS["executor"]: {"strange": "strange_executor:Strange"}}
    install(tmp_path / "site", "bertlab-strange", entry_points, {})
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    monkeypatch.setitem(sys.modules, "strange_executor", sys.modules[__name__])
    index.forget_installed()
    study = tuned(tmp_path)
    Strange.fake.stopping = "mlm-trial"
    go_on = r"study run .*/study --executor strange$"
    with pytest.raises(StudyStopped, match=go_on) as stopped:
        study.run(executor="strange", queue="long")
    assert stopped.value.study_dir == study.study_dir / "tuning"
    Strange.fake.stopping = " "
    open_study(study.study_dir).run(executor="strange")
    places = [study.study_dir / "tuning", study.study_dir / "tuning", study.study_dir]
    assert [place for place, _, _ in Strange.asked] == places
    assert {kept_in for _, kept_in, _ in Strange.asked} == {study.study_dir}
    assert [queue for _, _, queue in Strange.asked] == ["long", None, None]
    monkeypatch.undo()
    index.forget_installed()


@pytest.mark.slow
def test_pretrainings_of_trials_are_taken_over_from_another_study(
    tmp_path: Path, fake: FakeExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[Path, list[Path]]] = []

    def note(plan: Plan, study_dir: Path, others: Sequence[Path]) -> list[Reusable]:
        del plan
        found.append((study_dir, list(others)))
        return []

    monkeypatch.setattr(run_study, "find_reusable", note)
    study = tuned(tmp_path)
    study.run(reuse=tmp_path / "other")
    others = [tmp_path / "other"]
    assert found == [(study.study_dir / "tuning", others), (study.study_dir, others)]


@pytest.mark.slow
def test_pretraining_is_tuned_by_its_loss_without_evaluations(
    tmp_path: Path, fake: FakeExecutor
) -> None:
    tune = {"trials": 2, "space": {"optimizer.learning_rate": [0.1, 0.2]}, "by": "mlm loss"}
    study = tuned(tmp_path, tune)
    study.run()
    assert [run for run in fake.ran if "trial" in run and "-x-" in run] == []
    found = study.scores()
    assert found.tuning is not None
    assert found.tuning.rows == Rows.ALL
    assert len(found.cell("both", found.measures[0]).examples[1]) == ROWS


@pytest.mark.slow
def test_fine_tunings_are_tuned_by_half_of_their_rows(tmp_path: Path, fake: FakeExecutor) -> None:
    study = opened(
        tmp_path,
        base="task.yaml",
        variants={"a": {}, "b": {"data.batch_size": 4}},
        tune={"space": {"optimizer.learning_rate": RATES}, "search": "grid"},
    )
    study.run()
    assert len(fake.ran) == 2 * 3 + 2 * 2
    assert {rate_of(run) for run in study.runs} == {"0.001"}
    scores = study.scores()
    run = study.planned.run_of("a", "base", 2)
    value = scores.cell("a", scores.measures[0]).values[2]
    assert value == pytest.approx(mean_right(run, Rows.DECIDE))


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("tune", "content", "message"),
    [
        (
            {"space": {"optimizer.lr": [1, 2]}, "trials": 2},
            EVALUATED,
            r"study study: tune: variant both trial 1: .*optimizer\.lr",
        ),
        (
            {**TUNE, "by": "y"},
            EVALUATED,
            r"tune\.by: found 'y'.*, expected one of x, mlm ",
        ),
        (TUNE, {"evaluate": ["task.yaml", "other.yaml"]}, r"tune\.by: missing.*task, other"),
        ({**TUNE, "by": "mlm loss"}, EVALUATED, r"evaluate\.model\.optimizer\.learning_rate"),
        (
            {"trials": 2, "space": {"objectives.mlm.rate": [0.1, 0.2]}, "by": "mlm loss"},
            EVALUATED,
            r"'mlm loss', which is not of the same thing in all trials of 'both'.*objectives",
        ),
        (
            {"trials": 2, "space": {"optimizer.learning_rate": [0.1, 0.2]}, "by": "nsp loss"},
            EVALUATED,
            r"'nsp loss', but the variant 'mlm' has no such objective",
        ),
        (
            {"trials": 2, "space": {"optimizer.learning_rate": [0.1, 0.2]}, "by": "mlm loss"},
            {"variants": {"a": {}, "b": {"data.batch_size": 4}}},
            r"mlm loss decides the study as well.*tune\.same_rows: true",
        ),
        (
            TUNE,
            {"evaluate": {"x": {"config": "task.yaml", "step": "best"}}},
            r"evaluate\.x\.step: found best",
        ),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    tmp_path: Path, tune: dict[str, Any], content: dict[str, Any], message: str
) -> None:
    with pytest.raises(StudyError, match=message):
        opened(tmp_path, tune=tune, seeds=1, **content)


@pytest.mark.slow
def test_rows_may_choose_and_decide_if_that_is_said(tmp_path: Path, fake: FakeExecutor) -> None:
    study = tuned(tmp_path, {**TUNE, "same_rows": True})
    study.run()
    found = study.scores()
    assert found.tuning is not None
    assert found.tuning.rows == Rows.ALL
    assert len(found.cell("both", found.measures[0]).examples[1]) == ROWS
    assert any("which is optimistic" in line for line in found.remarks)


@pytest.mark.slow
def test_the_study_of_the_trials_is_an_ordinary_one(tmp_path: Path, fake: FakeExecutor) -> None:
    tuned(tmp_path).run()
    trials = open_study(tmp_path / "study" / "tuning")
    assert [variant.name for variant in trials.config.variants][:2] == [
        "both trial 1",
        "both trial 2",
    ]
    assert trials.config.seeds == (0,)
    content = yaml.safe_load((trials.study_dir / "study.yaml").read_text("utf-8"))
    assert "tune" not in content


def test_trials_that_an_untrained_evaluation_chooses_leave_settings_of_the_others_out(
    tmp_path: Path,
) -> None:
    evaluate = {
        "x": "task.yaml",
        "blimp": {"evaluation": "minimal_pairs", "data": "nowhere.jsonl"},
    }
    tune = {"space": {"optimizer.learning_rate": RATES}, "search": "grid", "by": "blimp"}
    # two that differ in a fine-tuning alone, which no trial has
    variants = {"a": {}, "b": {"evaluate.head.dropout": 0.2}}
    more = {"evaluate_settings": {"trainer.max_epochs": 1}, "seeds": 1}
    study = opened(tmp_path, evaluate=evaluate, tune=tune, variants=variants, **more)
    assert study.stage is not None
    trials = study.stage.study
    assert {run.stage for run in trials.runs} == {"base", "blimp"}
    assert len(trials.runs) == 2 * len(RATES)
    assert {run.stage for run in study.runs} == {"base", "x", "blimp"}
    assert study.planned.configs["b", "x"]["model"]["head"]["dropout"] == 0.2
    assert study.planned.configs["a", "x"]["trainer"]["max_epochs"] == 1
