"""The frozen analysis and the looks: what is written, what a change says, what a look costs."""

import hashlib
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from bertlab_studies.errors import StudyError
from bertlab_studies.report.analysis import ANALYSIS, LOOKS
from bertlab_studies.report.comparison import LEVEL
from bertlab_studies.report.contrast_noise import draw_test
from bertlab_studies.report.report import report_of
from bertlab_studies.report.statistics import compare_study, with_looks
from bertlab_studies.study import Study
from bertlab_studies.study import study as open_study
from made_up_scores import made_up_study
from small_study import finish, opened

EVALUATE = {"evaluate": {"x": "task.yaml"}}


def finish_new(study: Study) -> Study:
    """Claim a study, and leave the runs that are not there as if they were done."""
    study.claim()
    for run in study.runs:
        if not run.directory(study.study_dir).exists():
            key = "mlm" if run.stage == "base" else "single_sentence"
            reached = 0.5 + 0.01 * (run.seed % 7) + 0.002 * (run.variant == "mlm")
            finish(study, run, {f"{key}/accuracy": reached, f"{key}/loss": 1.0})
    return study


def change(study: Study, **content: Any) -> Study:
    """Return a study after its file in the directory was edited."""
    path = study.study_dir / "study.yaml"
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **content}), "utf-8")
    return open_study(study.study_dir)


def with_seeds(study: Study, seeds: int) -> Study:
    return finish_new(study.add_seeds(seeds))


def warned(study: Study, words: str) -> list[str]:
    return [line for line in study.report().warnings if words in line]


def test_the_analysis_is_written_before_the_first_run(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    study.claim()
    content = json.loads((study.study_dir / ANALYSIS).read_text("utf-8"))
    frozen = content["analysis"]
    assert content["runs_done"] == 0
    assert frozen["variants"] == ["both", "mlm"]
    assert frozen["baseline"] == "both"
    assert frozen["measures"] == {"x accuracy": {"better": "higher", "margin": None}}
    assert (frozen["seeds"], frozen["finetune_seeds"], frozen["level"]) == ([1, 2], [], 0.05)
    text = json.dumps(frozen, sort_keys=True)
    assert content["sha256"] == hashlib.sha256(text.encode()).hexdigest()


def test_an_unchanged_analysis_is_named_and_nothing_is_warned_of(tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, seeds=3, **EVALUATE))
    sha = json.loads((study.study_dir / ANALYSIS).read_text("utf-8"))["sha256"]
    assert not warned(study, "analysis")
    assert not warned(study, "look")
    for name in ("report.md", "report.html"):
        text = (study.study_dir / "report" / name).read_text("utf-8")
        assert f"{sha[:12]}, written down before a run was done" in text


def test_results_do_not_change_the_analysis(tmp_path: Path) -> None:
    study = opened(tmp_path, decide=["mlm loss"], variants={"a": {}, "b": {"data.batch_size": 4}})
    before = study.analysis()
    assert list(before["measures"]) == ["mlm loss"]
    finish_new(study)
    assert study.analysis() == before


@pytest.mark.slow
def test_a_change_before_the_first_run_is_none(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    study.claim()
    changed = finish_new(change(study, baseline="mlm"))
    assert not warned(changed, "analysis")


@pytest.mark.slow
def test_a_change_after_runs_is_named(tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, **EVALUATE))
    before = (study.study_dir / ANALYSIS).read_text("utf-8")
    metric = {"config": str(tmp_path / "task.yaml"), "metric": {"name": "loss", "better": "lower"}}
    changed = finish_new(change(study, baseline="mlm", evaluate={"x": metric}))
    assert (study.study_dir / ANALYSIS).read_text("utf-8") == before
    [line] = warned(changed, "analysis")
    assert "was changed after data had been seen (8 runs are done" in line
    assert "baseline: 'mlm' here, 'both' there" in line
    assert "measures.x loss.better: 'lower' here, None there" in line


@pytest.mark.slow
def test_a_study_without_one_says_that_data_were_there(tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, **EVALUATE))
    (study.study_dir / ANALYSIS).unlink()
    assert "analysis" not in study.scores().manifest
    study.claim()
    assert study.scores().manifest["analysis"].endswith("written down after 8 runs were done")


@pytest.mark.slow
def test_an_edited_file_is_told(tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, **EVALUATE))
    path = study.study_dir / ANALYSIS
    path.write_text(path.read_text("utf-8").replace('"level": 0.05', '"level": 0.1'), "utf-8")
    assert warned(study, "analysis.json was edited")


@pytest.mark.first_fast
@pytest.mark.parametrize("name", [ANALYSIS, LOOKS])
@pytest.mark.parametrize("text", ["{", "3"])
def test_damaged_files(name: str, text: str, tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, **EVALUATE))
    (study.study_dir / name).write_text(text, "utf-8")
    with pytest.raises(StudyError, match=f"{name}: damaged"):
        study.report()


@pytest.mark.slow
def test_looking_again_is_told(tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, **EVALUATE))
    assert not warned(study, "look")
    assert not warned(study, "look")  # the same report again is no other look
    third = with_seeds(study, 3)
    [line] = warned(third, "look 2")
    assert "does not keep the 5 %" in line
    assert "up to 8 %" in line
    assert "up to 11 %" in warned(with_seeds(third, 4), "look 3")[0]
    looks = json.loads((study.study_dir / LOOKS).read_text("utf-8"))
    assert [each["seeds"] for each in looks] == [[1, 2], [1, 2, 3], [1, 2, 3, 4]]


@pytest.mark.slow
def test_seeds_that_are_added_before_a_look_are_no_look(tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, **EVALUATE))
    found = with_seeds(study, 3)
    assert not warned(found, "look")
    assert "seeds: [1, 2, 3] here, [1, 2] there" in warned(found, "analysis")[0]


def test_a_report_of_a_part_is_no_look(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    study.claim()
    study.report()
    assert not (study.study_dir / LOOKS).exists()


@pytest.mark.nightly
def test_planned_looks_keep_the_level(tmp_path: Path) -> None:
    study = finish_new(opened(tmp_path, looks=2, seeds=3, **EVALUATE))
    [line] = warned(study, "look")
    assert line.startswith("look 1 of 2 that were planned")
    found = study.scores()
    plain = compare_study(found)["mlm", "x accuracy"]
    tested = study.report(write=False).comparisons[0]["mlm", "x accuracy"]
    assert plain.p_adjusted is not None
    assert tested.p_adjusted == pytest.approx(min(1.0, 2 * plain.p_adjusted))
    second = with_seeds(study, 5)
    assert warned(second, "look")[0].startswith("look 2 of 2")
    assert not warned(second, "analysis was changed")
    [line] = warned(with_seeds(second, 6), "look")
    assert "look 3 where 2 were planned" in line
    assert "keeps 5 % over 2 looks, and over 3 at most 7.5 %" in line  # at 2.5 % each


@pytest.mark.parametrize("looks", [0, -1, True, "two", 1.5])
def test_looks_are_a_number(looks: object, tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"looks: found .*, expected a whole number above 0"):
        opened(tmp_path, looks=looks, **EVALUATE)


def test_two_looks_are_tested_at_half_the_level() -> None:
    plain = compare_study(made_up_study(), draws=0)
    tested = with_looks(plain, 2)
    for key, one in plain.items():
        if one.p_adjusted is None or one.noise is None:
            assert tested[key].p_adjusted is None
            continue
        assert tested[key].significant == (one.p_adjusted <= LEVEL / 2)
        level = LEVEL / (2 * one.family)
        assert tested[key].detectable == draw_test(one.noise, level).detectable
    assert with_looks(plain, 1) == plain


def test_the_false_alarms_that_are_told() -> None:
    # tests of a normal mean after each of k equal parts of the data
    rng = np.random.default_rng(1)
    sums = rng.normal(size=(40_000, 5)).cumsum(1)
    alarms = np.abs(sums) / np.arange(1, 6) ** 0.5 > 1.959964
    rates = [100 * alarms[:, :looks].any(1).mean() for looks in range(2, 6)]
    assert rates == pytest.approx([8.3, 10.7, 12.6, 14.2], abs=0.5)


@pytest.mark.slow
def test_what_is_registered_has_a_date_and_changes_are_amendments(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE, looks=2)
    assert study.freeze()
    assert not study.freeze()  # nothing changed
    path = study.study_dir / ANALYSIS
    first = json.loads(path.read_text("utf-8"))
    text = json.dumps(first["analysis"], sort_keys=True)
    assert first["sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert datetime.fromisoformat(first["date"]).tzinfo is not None
    assert len(first["plan_sha256"]) == 64

    evaluate = {"x": {"config": str(tmp_path / "task.yaml"), "margin": 0.01}}
    changed = change(study, evaluate=evaluate)
    assert changed.freeze("a margin was forgotten")
    finish_new(changed)
    content = json.loads(path.read_text("utf-8"))
    assert content["analysis"] == first["analysis"]
    assert [each["runs_done"] for each in content["amendments"]] == [0]
    (line,) = warned(changed, "was amended on")
    assert "before a run was done, as 'a margin was forgotten' says" in line
    assert "measures.x accuracy.margin" in line
    assert not warned(changed, "changed after data had been seen")
    assert "on 20" in report_of(changed.scores()).studies[0].manifest["analysis"]


@pytest.mark.slow
def test_a_run_amends_what_was_registered(tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    study.freeze()
    finish_new(study)
    more = with_seeds(study, 3)  # which looks did not plan
    (line,) = warned(more, "was amended on")
    assert "after 8 runs were done" in line
    path = more.study_dir / ANALYSIS
    content = json.loads(path.read_text("utf-8"))
    content["amendments"][0]["analysis"]["level"] = 0.1
    path.write_text(json.dumps(content), "utf-8")
    assert warned(more, "(edited since)")
    content["amendments"] = [3]
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(StudyError, match="damaged"):
        more.report()


DATED = {"date": "2026-01-01T00:00:00+00:00", "plan_sha256": "0" * 64}


def registered(study: Study, amendments: object) -> Study:
    """Leave an analysis with a date, and what was put where its amendments are."""
    study.claim()
    path = study.study_dir / ANALYSIS
    content = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**content, **DATED, "amendments": amendments}), "utf-8")
    return study


def test_amendments_that_are_null_are_none(tmp_path: Path) -> None:
    study = registered(opened(tmp_path, **EVALUATE), None)
    assert not [line for line in study.scores().remarks if "amended" in line]
    assert study.freeze("now")  # the digest of the runs is another
    content = json.loads((study.study_dir / ANALYSIS).read_text("utf-8"))
    assert [each["reason"] for each in content["amendments"]] == ["now"]
    assert [line for line in study.scores().remarks if "amended on 20" in line]


@pytest.mark.parametrize("key", ["date", "changes", "sha256", "runs_done"])
def test_an_amendment_that_lacks_a_key_is_a_damage(key: str, tmp_path: Path) -> None:
    study = opened(tmp_path, **EVALUATE)
    whole: dict[str, Any] = {**DATED, "runs_done": 0, "changes": ["x"], "sha256": "0" * 64}
    whole["analysis"] = study.analysis()
    registered(study, [whole])
    assert [line for line in study.scores().remarks if "amended on 2026" in line]
    registered(study, [{name: each for name, each in whole.items() if name != key}])
    with pytest.raises(StudyError, match=r"analysis\.json: damaged"):
        study.scores()


@pytest.mark.parametrize("amendments", [{"date": "2026"}, "2026", 3, [3], [None]], ids=repr)
def test_amendments_that_are_no_list_of_mappings_are_a_damage(
    amendments: object, tmp_path: Path
) -> None:
    study = registered(opened(tmp_path, **EVALUATE), amendments)
    for use in (study.scores, study.freeze):
        with pytest.raises(StudyError, match=r"analysis\.json: damaged"):
            use()
