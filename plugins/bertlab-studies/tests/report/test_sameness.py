"""Runs that should have the same data, versions and machine, and have not."""

import math
from pathlib import Path
from typing import Any

import fsspec
import pytest

from bertlab.data.corpus.corpus import Corpus
from bertlab.errors import CorpusError
from bertlab.files import UnreadableError
from bertlab_studies.errors import MixtureError
from bertlab_studies.execute import local
from bertlab_studies.execute.executor import Local
from bertlab_studies.execute.run_state import State
from bertlab_studies.execute.schedule import Change, OnChange, Summary
from bertlab_studies.plan.plan import PlannedRun
from bertlab_studies.plan.study_file import BASE
from bertlab_studies.report.render import write_report
from bertlab_studies.report.sameness import compare_runs
from bertlab_studies.study import Study, compare
from bertlab_studies.study import study as open_study
from small_study import BASE as SMALL
from small_study import finish, opened, write_yaml
from tests.data.corpus.stores import texts, write

EVALUATE: dict[str, Any] = {"evaluate": {"x": "task.yaml"}}
PACKAGES = {"bertlab": "1.0", "torch": "2.11"}
ONE, OTHER = "1" * 64, "2" * 64


def manifest_of(run: PlannedRun, **changes: Any) -> dict[str, Any]:
    facts = {"tokenizer": "t" * 64, "threads": 1, "device": "cpu", "packages": PACKAGES}
    if run.stage == BASE:
        return {**facts, "corpus": ONE, **changes}
    rows = {name: {"rows": 9, "fingerprint": name * 9} for name in ("train", "validation")}
    return {**facts, "data": rows, **changes}


def leave(study: Study, run: PlannedRun, **changes: Any) -> None:
    key = "mlm/loss" if run.stage == BASE else "single_sentence/accuracy"
    finish(
        study, run, {key: 0.5 + 0.01 * run.seed, "loss": 1.0}, manifest=manifest_of(run, **changes)
    )


def leave_all(study: Study, **of_last: Any) -> PlannedRun:
    """Leave all runs as if they were done; changes are those of the last pre-training."""
    last = [run for run in study.runs if run.stage == BASE][-1]
    for run in study.runs:
        leave(study, run, **(of_last if run is last else {}))
    return last


@pytest.mark.parametrize(
    "wrong",
    [
        {"packages": [1]},
        {"plugin_contents": {"a": 5}},
        {"data": 7},
        {"corpus": ["a"]},
        {"corpus": math.nan},
        {"tokenizer": 5},
        {"sessions": [{"kernels": [1]}]},
        {"sessions": [{"kernels": 5}]},
    ],
)
def test_a_manifest_that_no_run_writes_is_named(tmp_path: Path, wrong: dict[str, Any]) -> None:
    study = opened(tmp_path, **EVALUATE)
    for run in study.runs:
        leave(study, run, **wrong)
    with pytest.raises(UnreadableError) as caught:
        study.report()
    files = [str(run.directory(study.study_dir) / "manifest.json") for run in study.runs]
    assert caught.value.filename in files


def test_kernels_are_shown_whatever_they_are(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    leave_all(study, sessions=[{"kernels": {"attention": {"a": [1]}}}])
    assert study.report()


def test_runs_that_are_the_same(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    leave_all(study)
    same = compare_runs(study.planned, study.study_dir)
    assert (same.mixtures, same.variants, same.remarks) == ((), frozenset(), ())
    report = study.report()
    assert "‡" not in report.legend
    assert not [line for line in report.warnings if "data" in line]


@pytest.mark.slow
def test_a_corpus_that_was_replaced_is_refused_or_marked(tmp_path: Path) -> None:
    study = opened(tmp_path, seeds=3, **EVALUATE)
    last = leave_all(study, corpus=OTHER)
    child = next(run for run in study.runs if run.parent == last.id)
    with pytest.raises(MixtureError) as caught:
        study.report()
    message = str(caught.value)
    assert "corpus: 111111111111… in " in message
    assert f"222222222222… in 2 runs ({last.id}, {child.id})" in message
    assert "--accept_mixture true" in message
    assert not (study.study_dir / "report").exists()
    with pytest.raises(MixtureError):
        compare([study, study], tmp_path / "both")
    report = study.report(accept_mixture=True)
    assert [row[0] for row in report.scores.rows] == ["both‡ (baseline)", "mlm‡"]
    assert {row[0] for row in report.differences.rows} == {"mlm‡"}
    assert {row[0] for row in report.runs_of(report.studies[0]).rows} == {"both‡", "mlm‡"}
    assert "‡ its runs are not of the same data" in report.legend
    assert report.warnings[0].startswith("mixed data: corpus: 1111")
    assert "‡" in report._repr_html_()
    (tmp_path / "files").mkdir()
    for path in write_report(report, tmp_path / "files"):
        if path.suffix in (".md", ".html"):
            assert "both‡" in path.read_text("utf-8")
    assert "‡" in study._repr_html_()  # a notebook shows what there is


@pytest.mark.parametrize(
    ("stage", "changes", "line"),
    [
        (BASE, {"tokenizer": "u" * 64}, "tokenizer: tttttttttttt… in 7 runs ("),
        ("x", {"data": {"train": {"fingerprint": "other"}}}, "rows of x, train: traintrain"),
        ("x", {"data": {"validation": {"fingerprint": "o"}}}, "rows of x, validation: "),
    ],
)
def test_rows_and_vocabularies(
    stage: str, changes: dict[str, Any], line: str, tmp_path: Path
) -> None:
    study = opened(tmp_path, **EVALUATE)
    odd = next(run for run in study.runs if run.stage == stage)
    for run in study.runs:
        leave(study, run, **(changes if run is odd else {}))
    (found,) = compare_runs(study.planned, study.study_dir).mixtures
    assert found.startswith(line)
    assert odd.id in found


def test_rows_of_an_evaluation_that_trains_nothing(tmp_path: Path) -> None:
    pairs = {"evaluation": "minimal_pairs", "data": "blimp"}
    study = opened(tmp_path, evaluate={"b": pairs})
    scored = [run for run in study.runs if run.stage == "b"]
    for run in study.runs:
        leave(study, run, rows={"b": OTHER if run is scored[0] else ONE})
    (found,) = compare_runs(study.planned, study.study_dir).mixtures
    assert found.startswith("rows of b: 1111")


def test_weights_that_pre_training_goes_on_from(tmp_path: Path) -> None:
    base = {**SMALL, "model": {**SMALL["model"], "init_from": "somewhere"}}
    write_yaml(tmp_path / "base.yaml", base)
    study = opened(tmp_path, **EVALUATE)
    odd = next(run for run in study.runs if run.stage == BASE)
    for run in study.runs:  # a fine-tuning's own start is another for each seed
        weights = {} if run.stage == BASE else {"init_weights": run.id}
        leave(study, run, **weights or {"init_weights": "b" if run is odd else "a"})
    (found,) = compare_runs(study.planned, study.study_dir).mixtures
    assert found.startswith("weights of model.init_from: a in ")
    assert odd.id in found


def test_weights_that_the_first_stage_goes_on_from(tmp_path: Path) -> None:
    base = {**SMALL, "model": {**SMALL["model"], "init_from": "somewhere"}}
    write_yaml(tmp_path / "base.yaml", base)
    stages = {"first": {"share": 0.5}, "last": {"share": 0.5}}
    study = opened(tmp_path, variants={"one": {}, "two": {"stages": stages}}, **EVALUATE)
    for run in study.runs:
        staged = run.variant == "two" and run.stage == BASE
        leave(study, run, init_weights=run.id if staged else "a")
    firsts = [run.directory(study.study_dir) / "stages" / "first" for run in study.runs]
    staged_ones = [each for each in firsts if "two-base" in str(each)]
    for place in staged_ones:
        place.mkdir(parents=True)
        (place / "manifest.json").write_text('{"init_weights": "a"}')
    assert compare_runs(study.planned, study.study_dir).mixtures == ()
    (staged_ones[0] / "manifest.json").write_text('{"init_weights": "b"}')
    (found,) = compare_runs(study.planned, study.study_dir).mixtures
    assert found.startswith("weights of model.init_from: a in ")


def test_what_a_config_says_may_differ(tmp_path: Path) -> None:
    variants = {"one": {}, "two": {"data.corpus": "other.txt", "data.vocab_size": 200}}
    study = opened(tmp_path, variants=variants, **EVALUATE)
    for run in study.runs:
        leave(study, run, corpus=run.variant, tokenizer=run.variant * 30)
    same = compare_runs(study.planned, study.study_dir)
    assert same.mixtures == ()


@pytest.mark.slow
def test_variants_of_other_kinds_of_tokenizer_may_differ(tmp_path: Path) -> None:
    study = opened(tmp_path, variants={"one": {}, "two": {"data.tokenizer_kind": "bpe"}})
    for run in study.runs:
        leave(study, run, tokenizer=run.variant * 30)
    assert compare_runs(study.planned, study.study_dir).mixtures == ()


def test_variants_of_one_text_are_compared_as_well(tmp_path: Path) -> None:
    study = opened(tmp_path)
    for run in study.runs:
        leave(study, run, corpus=run.variant * 30)
    same = compare_runs(study.planned, study.study_dir)
    assert len(same.mixtures) == 1
    assert same.variants == {"both", "mlm"}


def test_versions_and_machines_that_differ_are_one_remark(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    newer = {"packages": {**PACKAGES, "torch": "2.13"}, "threads": 4}
    last = leave_all(study, **newer)
    (remark,) = compare_runs(study.planned, study.study_dir).remarks
    assert "torch 2.11 in 7 runs" in remark
    assert f"2.13 in 1 run ({last.id})" in remark
    assert "threads 1 in 7 runs" in remark
    assert "bertlab" not in remark
    assert remark in study.report().warnings


FLASH = {"attention": "packed, flash", "steps": "launched kernel by kernel"}
PADDED = {**FLASH, "attention": "padded, matrix products"}


def test_a_comparison_whose_variants_take_other_kernels_is_marked(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    for run in study.runs:
        path = PADDED if (run.variant, run.stage) == ("mlm", BASE) else FLASH
        leave(study, run, sessions=[{"kernels": path}])
    (line,) = study.scores().remarks
    assert line == (
        "mlm against both, base: other kernels, so that results differ by rounding as well, and "
        "steps in a given time by speed: attention padded, matrix products, not packed, flash"
    )


def test_runs_of_a_variant_that_took_other_kernels_are_named(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    *others, last = study.runs
    for run in others:
        leave(study, run, sessions=[{"kernels": FLASH}, {"kernels": FLASH}])
    leave(study, last, sessions=[{"kernels": FLASH}, {"kernels": PADDED}])
    kernels, made = sorted(study.scores().remarks)
    assert "attention packed, flash or padded, matrix products, not packed, flash" in kernels
    assert f"packed, flash, then padded, matrix products in 1 run ({last.id})" in made


def test_plugins_with_other_files_and_runs_that_changed_theirs_are_told(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    plugin = {"plugins": {"theirs": "0.1"}, "plugin_contents": {"theirs": ONE}}
    changed = {"started": "later", "step": 3, "plugin_contents": {"theirs": OTHER}}
    upgraded = {"started": "later still", "step": 5, "plugins": {"theirs": "0.2"}}
    last = [run for run in study.runs if run.stage == BASE][-1]
    for run in study.runs:
        leave(
            study,
            run,
            **plugin,
            **({"sessions": [{"step": 0}, changed, upgraded]} if run is last else {}),
        )
    (remark,) = compare_runs(study.planned, study.study_dir).remarks
    assert "theirs 0.1 in 7 runs" in remark
    assert f"0.1, then 0.2 in 1 run ({last.id})" in remark
    assert f"files of theirs {ONE[:12]} in 7 runs" in remark
    assert f"{ONE[:12]}, then {OTHER[:12]} in 1 run ({last.id})" in remark


def test_runs_that_do_not_tell_are_never_refused(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    for run in study.runs:
        finish(study, run, {"single_sentence/accuracy": 0.5, "mlm/loss": 1.0, "loss": 1.0})
    same = compare_runs(study.planned, study.study_dir)
    assert same.mixtures == ()
    (remark,) = same.remarks
    assert remark.startswith("8 runs of an older bertlab (")
    assert study.report().warnings[0] == remark


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let the runs of a study be done at once, on another corpus; yields those that were."""
    done: list[str] = []

    def run_fake(
        plan: list[PlannedRun], study_dir: Path, *, on_change: OnChange, **settings: int
    ) -> Summary:
        study = open_study(study_dir)
        for run in plan:
            if not run.directory(study_dir).exists():
                done.append(run.id)
                leave(study, run, corpus=OTHER)
                on_change(Change(run, State.DONE, "done"))
        return Summary(done=[run.id for run in plan])

    monkeypatch.setattr(local, "run_local", run_fake)
    return done


@pytest.mark.slow
def test_the_first_new_run_on_other_data_ends_the_study(tmp_path: Path, runs: list[str]) -> None:
    study = opened(tmp_path, settings={"data.corpus": "python-english"})  # a run alone can tell
    study.claim()
    leave(study, study.runs[0])
    with pytest.raises(MixtureError, match="2222"):
        study.run()
    assert len(runs) == 1
    with pytest.raises(MixtureError):
        study.run()
    assert len(runs) == 1
    assert len(study.run(accept_mixture=True).done) == 4
    assert len(runs) == 3


def test_a_replaced_file_is_noticed_before_anything_runs(tmp_path: Path, runs: list[str]) -> None:
    text = tmp_path / "text.txt"
    text.write_text("One sentence.\nAnother.\n", "utf-8")
    study = opened(tmp_path, settings={"data.corpus": str(text)})
    study.claim()
    leave(study, study.runs[0], corpus=Corpus([str(text)]).fingerprint)
    begun = study.add_seeds(3)
    text.write_text("One other sentence.\nAnother.\n", "utf-8")
    with pytest.raises(MixtureError) as caught:
        begun.run()
    assert f"in 1 run ({study.runs[0].id})" in str(caught.value)
    assert "in what would be run now" in str(caught.value)
    text.unlink()
    with pytest.raises(CorpusError, match=r"text\.txt"):
        begun.run()
    assert runs == []


def test_a_text_that_other_machines_alone_have_is_left_to_the_runs(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = opened(tmp_path, seeds=1, settings={"data.corpus": str(tmp_path / "text.txt")})
    study.claim()
    leave(study, study.runs[0], corpus=OTHER)
    with pytest.raises(CorpusError, match=r"text\.txt"):
        study.run()
    assert runs == []
    monkeypatch.setattr(Local, "elsewhere", True)
    assert study.run().exit_code == 0
    assert runs == [study.runs[1].id]


def test_a_store_behind_a_url_is_looked_at_by_the_cache_of_the_config(
    tmp_path: Path, runs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BERTLAB_CACHE", str(tmp_path / "default"))
    store = write(tmp_path / "store", texts(20), 200)
    system = fsspec.filesystem("memory")
    system.put(f"{store.path}/", "/sameness/store", recursive=True)
    place = {"data.corpus": "memory://sameness/store", "data.cache_dir": str(tmp_path / "own")}
    study = opened(tmp_path, seeds=1, settings=place)
    study.claim()
    leave(study, study.runs[0], corpus=OTHER)
    with pytest.raises(MixtureError, match="in what would be run now"):
        study.run()
    system.rm("/sameness", recursive=True)
    assert [path.name for path in tmp_path.glob("*/remote/*/store.json")] == ["store.json"]
    assert (tmp_path / "own").is_dir()
    assert not (tmp_path / "default").exists()
