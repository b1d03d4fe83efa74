"""``Study`` as Python and a notebook use it."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import yaml

from bertlab.errors import BertlabError, CommandError, OutputError
from bertlab_studies.errors import StudyChangedError, StudyError
from bertlab_studies.execute import local
from bertlab_studies.execute.local import run_local
from bertlab_studies.execute.run_state import State, own_state
from bertlab_studies.execute.schedule import Change, OnChange, StudyStopped, Summary
from bertlab_studies.plan.plan import PlannedRun
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.study import Study, compare
from bertlab_studies.study import study as open_study
from fake_fit import FAKE, fake_run
from small_study import finish, opened, write_study

EVALUATE = {"evaluate": {"x": "task.yaml"}}


def finish_all(study: Study, better: float = 0.0) -> None:
    """Leave all runs as if they were done; the second variant is better."""
    study.claim()
    for run in study.runs:
        reached = 0.5 + better * (run.variant == "mlm") + 0.01 * run.seed
        key = "mlm" if run.stage == BASE else "single_sentence"
        finish(study, run, {f"{key}/accuracy": reached, "loss": 1.0})


def html_text(html: str) -> str:
    """Return what a notebook shows of HTML; nothing in it may be code."""
    words: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            assert tag not in ("script", "img", "iframe")

        def handle_data(self, data: str) -> None:
            words.append(data)

    Reader().feed(html)
    return " ".join(words)


def test_a_mapping_is_the_study_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_study(tmp_path, **EVALUATE)
    monkeypatch.chdir(tmp_path)
    content = {"name": "study", **yaml.safe_load(path.read_text())}
    before = yaml.safe_dump(content)
    changed = {"optimizer.learning_rate": 0.1}
    from_file = open_study(path, settings=changed, evaluate_settings={"x.trainer.max_epochs": 7})
    found = open_study(content, settings=changed, evaluate_settings={"x.trainer.max_epochs": 7})
    assert found == from_file
    assert found.study_dir == Path("runs/studies/study")
    assert found.planned.configs["mlm", "x"]["trainer"]["max_epochs"] == 7
    assert yaml.safe_dump(content) == before
    with pytest.raises(StudyError, match="name: found None"):
        open_study({key: value for key, value in content.items() if key != "name"})


def test_plan_and_status_are_tables(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    plan = study.plan()
    assert [row["run"] for row in plan.records()] == [run.id for run in study.runs]
    assert [row["state"] for row in plan.records()].count("waiting") == 4
    assert "8 runs" in html_text(plan._repr_html_())
    assert "FLOPs, and what is known" in html_text(plan._repr_html_())
    assert not study.study_dir.exists()
    finish_all(study)
    assert {row["state"] for row in study.status().records()} == {"done"}


def test_a_notebook_shows_what_variants_differ_in_and_then_what_they_reached(
    tmp_path: Path,
) -> None:
    named = {"<b>both</b>": {}, "mlm": {"objectives": {"nsp": None}}}
    study = opened(tmp_path, variants=named, **EVALUATE)
    text = html_text(study._repr_html_())
    assert "<b>both</b> (baseline)" in text
    assert "model.objectives" in text
    assert "accuracy" not in text
    finish_all(study)
    text = html_text(study._repr_html_())
    assert "<b>both</b> (baseline)" in text
    assert "51.50 ± 0.71" in text
    assert "Findings" in text


@pytest.mark.slow
def test_a_report_has_figures_words_and_files(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds=3, **EVALUATE)
    finish_all(study, better=0.2)
    assert study.report(write=False).files == ()
    assert not (study.study_dir / "report").exists()
    report = study.report()
    assert report.files[0] == study.study_dir / "report" / "report.html"
    assert report.files[0].is_file()
    rows = {(row["variant"], row["measure"]): row for row in report.records()}
    assert rows["both", "x accuracy"]["mean"] == pytest.approx(0.52)
    assert rows["both", "x accuracy"]["deviation"] == pytest.approx(0.01)
    assert rows["both", "x accuracy"]["difference"] is None
    assert rows["mlm", "x accuracy"]["difference"] == pytest.approx(0.2)
    frame = report.frame()
    assert isinstance(frame, pd.DataFrame)
    assert list(frame["variant"]) == [row["variant"] for row in report.records()]
    assert str(report).splitlines()[0] == report.findings[0]
    assert report.findings[0] in html_text(report._repr_html_())
    joined = compare([study, study], tmp_path / "both")
    assert len(joined.records()) == 2 * len(report.records())
    with pytest.raises(CommandError, match="two or more"):
        compare([study], tmp_path / "one")


def test_more_seeds_are_a_study_to_run(tmp_path: Path) -> None:
    study = opened(tmp_path)
    with pytest.raises(CommandError, match="no study was run there yet"):
        study.add_seeds(3)
    study.claim()
    assert study.add_seeds(3).config.seeds == (1, 2, 3)
    assert open_study(study.study_dir).config.seeds == (1, 2, 3)
    with pytest.raises(CommandError, match="expected the study's own"):
        open_study(study.study_dir).add_seeds([7])


@pytest.mark.slow
@pytest.mark.usefixtures("fake")
def test_seeds_that_were_added_stay_when_the_file_is_run_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened(tmp_path).claim()
    open_study(tmp_path / "study").add_seeds(3)
    open_study(tmp_path / "study").add_seeds(5)
    study = opened(tmp_path)
    finish_all(study)
    assert study.config.seeds == (1, 2, 3, 4, 5)
    study.run(retries=0)
    out = capsys.readouterr().out
    assert out.count("kept: seeds [1, 2, 3, 4, 5], with those that were added") == 1
    assert "changed" not in out
    assert open_study(study.study_dir).runs == study.runs
    assert opened(tmp_path, seeds=4).config.seeds == (1, 2, 3, 4, 5)
    assert opened(tmp_path, seeds=4).kept_seeds == [1, 2, 3, 4, 5]
    opened(tmp_path, seeds=6).claim()
    assert opened(tmp_path, seeds=6).kept_seeds is None


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runs of a study be those of the fake program."""

    def run_fake(
        plan: list[PlannedRun], study_dir: Path, *, on_change: OnChange, **settings: int
    ) -> Summary:
        del plan
        plan = [fake_run("a", fail_at=0, failures=9), fake_run("b")]
        return run_local(plan, study_dir, on_change=on_change, program=FAKE, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(local, "run_local", run_fake)


@pytest.mark.slow
@pytest.mark.usefixtures("fake")
def test_a_run_that_fails_is_in_the_summary(tmp_path: Path) -> None:
    study = opened(tmp_path)
    summary = study.run(workers=2, retries=0)
    assert summary.done == ["b"]
    assert summary.failed == {"a": "exit code 7: out of paper"}
    with pytest.raises(CommandError, match="workers: found 0, expected 1 or more"):
        study.run(workers=0)
    numbers: list[tuple[dict[str, Any], str]] = [
        ({"workers": 10**6}, "--workers: found 1000000, expected at most"),
        ({"threads": 10**6}, "threads: found 1000000, expected at most 4,096"),
        ({"threads": 4000}, "--threads: found 4000, expected at most"),
        ({"worker": 2}, "worker: the executor local has no such option; did you mean 'workers'"),
        ({"executor": "locla"}, "no executor is called 'locla'; did you mean 'local'"),
    ]
    for number, told in numbers:
        with pytest.raises(BertlabError, match=told):
            study.run(**number)
    finish_all(study)
    with pytest.raises(StudyChangedError, match="the study changed"):
        opened(tmp_path, settings={"optimizer.learning_rate": 0.1}).run()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs signals")
def test_ctrl_c_stops_a_study_and_leaves_it_to_go_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [fake_run("a", steps=3, seconds=0.2), fake_run("b", steps=3)]
    interrupted: list[Change] = []

    def run_fake(
        plan: list[PlannedRun], study_dir: Path, *, on_change: OnChange, **settings: int
    ) -> Summary:
        del plan

        def note(change: Change) -> None:
            on_change(change)
            if not interrupted:
                interrupted.append(change)
                os.kill(os.getpid(), signal.SIGINT)  # while the first run is at work

        return run_local(runs, study_dir, on_change=note, program=FAKE, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(local, "run_local", run_fake)
    study = opened(tmp_path)
    with pytest.raises(
        KeyboardInterrupt, match="stopped; continue with: bertlab study run"
    ) as caught:
        study.run()
    assert isinstance(caught.value, StudyStopped)
    assert caught.value.summary.left == ["a", "b"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert own_state(runs[0], study.study_dir) is not State.RUNNING
    assert study.run().done == ["a", "b"]


@pytest.mark.first_fast
@pytest.mark.parametrize("name", ["report", "runs", "attempts", "locks/both-s1.lock", "logs"])
def test_a_study_from_elsewhere_is_not_written_through_its_links(tmp_path: Path, name: str) -> None:
    study, home = opened(tmp_path), tmp_path / "home"
    finish_all(study, 0.1)
    home.mkdir()
    link = study.study_dir / name
    if link.is_dir():
        shutil.rmtree(link)
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(home)
    writing: list[Callable[[], object]] = [
        study.claim,
        study.report,
        lambda: study.add_seeds(3),
        lambda: study.run_one(study.runs[0].id),
    ]
    for write in writing:
        with pytest.raises(OutputError, match=f"{name}: is a link that leads out of"):
            write()
    assert not list(home.iterdir())


@pytest.mark.slow
def test_importing_the_commands_and_their_help_takes_no_torch() -> None:
    code = """
import sys
from bertlab_studies import ablate_command, study_command
study_command.main(["run", "--help"])
study_command.main([])
ablate_command.main(["--help"])
assert not {"torch", "lightning", "matplotlib"} & set(sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for word in ("--accept_changes", "add-seeds", "--vary", "--retries"):
        assert word in done.stdout
