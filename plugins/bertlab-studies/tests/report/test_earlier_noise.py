"""The record of earlier studies' noise: what is written, taken, and tested by it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from bertlab_studies.errors import StudyError
from bertlab_studies.report.contrast_noise import PRIOR
from bertlab_studies.report.earlier_noise import Entry, Kind, read_record, record
from bertlab_studies.report.seed_noise import EarlierNoise
from bertlab_studies.report.statistics import compare_study
from bertlab_studies.study import Study
from bertlab_studies.study_command import main
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores
from small_study import finish, opened

EVALUATE = {"evaluate": {"x": "task.yaml"}}
MEASURE = "x accuracy"


def finished(folder: Path, first: int = 1, seeds: int = 3, **content: Any) -> Study:
    """Return a study that is done; values depend on variant and seed alone."""
    numbers = list(range(first, first + seeds))
    study = opened(folder, seeds=numbers, **EVALUATE, **content)
    study.claim()
    for run in study.runs:
        key = "mlm" if run.stage == "base" else "single_sentence"
        reached = value(run.variant, run.seed)
        finish(study, run, {f"{key}/accuracy": reached, f"{key}/loss": 1.0})
    return study


def value(variant: str, seed: int) -> float:
    return 0.5 + 0.01 * (seed * seed % 7) + 0.004 * (variant == "mlm") * (seed * 3 % 5)


def variances(seeds: range) -> list[float]:
    return [
        float(np.var([value(variant, seed) for seed in seeds], ddof=1))
        for variant in ("both", "mlm")
    ]


@pytest.mark.slow
def test_a_record_has_the_pooled_variance(tmp_path: Path) -> None:
    record = tmp_path / "noise.jsonl"
    study = finished(tmp_path / "a")
    study.report(record=record)
    (entry,) = read_record(record)
    assert entry.variance == pytest.approx(np.mean(variances(range(1, 4))), rel=1e-12)
    assert entry.freedom in (2, 4)  # 2 where seeds move both together
    kind = entry.kind
    assert (kind.measure, kind.seeds) == (MEASURE, "all")
    assert kind.encoder.startswith("bert tiny hidden_size 32")
    assert kind.data == "nowhere.txt, nowhere.jsonl"
    assert kind.length == "max_steps 6, max_epochs 2"
    assert len(entry.runs) == 6
    study.report(record=record)  # once more adds nothing
    assert len(read_record(record)) == 1


@pytest.mark.slow
def test_a_study_takes_others_of_its_kind_once(tmp_path: Path) -> None:
    record = tmp_path / "noise.jsonl"
    finished(tmp_path / "a").report(record=record)
    finished(tmp_path / "a_again").report(record=record)
    finished(tmp_path / "a_more", seeds=5).report(record=record)  # has the runs of the first
    finished(tmp_path / "b", first=11).report(record=record)
    finished(tmp_path / "longer", first=21, budget={"steps": 9}).report(record=record)
    entries = read_record(record)
    assert len(entries) == 4  # the second is the same as the first
    used = opened(tmp_path / "c", seeds=[31, 32], earlier_noise=str(record), **EVALUATE)
    found = used.analysis()["earlier_noise"]["measures"][MEASURE]
    more, other = entries[1], entries[2]
    total = more.freedom + other.freedom
    pooled = (more.freedom * more.variance + other.freedom * other.variance) / total
    assert found["variance"] == pytest.approx(pooled, rel=1e-12)
    assert found["freedom"] == total
    assert len(found["studies"]) == 2
    # a study with a run of the first takes that of others alone
    own = opened(tmp_path / "d", seeds=[3, 40], earlier_noise=str(record), **EVALUATE)
    assert own.analysis()["earlier_noise"]["measures"][MEASURE]["freedom"] == other.freedom
    sizes = {"small": {}, "wide": {"encoder.hidden_size": 64}}
    several = opened(tmp_path / "e", variants=sizes, earlier_noise=str(record), **EVALUATE)
    assert several.analysis()["earlier_noise"]["measures"][MEASURE]["variance"] is None


@pytest.mark.slow
def test_the_report_says_what_it_uses_and_it_stays_as_frozen(tmp_path: Path) -> None:
    record = tmp_path / "noise.jsonl"
    finished(tmp_path / "a").report(record=record)
    study = finished(tmp_path / "b", first=11, earlier_noise=str(record))
    (entry,) = read_record(record)
    report = study.report(record=record)
    (line,) = [each for each in report.findings if "earlier" in each]
    assert f"variance {entry.variance:.3g}, {entry.freedom} degrees of freedom" in line
    assert "the noise of 1 earlier study" in line
    assert not [each for each in report.warnings if "analysis was changed" in each]
    scores = study.scores()
    assert scores.earlier == {MEASURE: EarlierNoise(entry.variance, entry.freedom, 1)}
    used = json.loads((study.study_dir / "report" / "report.json").read_text("utf-8"))
    assert used["studies"][0]["earlier_noise"][MEASURE]["freedom"] == entry.freedom
    record.unlink()  # what was frozen is used
    assert study.scores().earlier == scores.earlier
    frozen = json.loads((study.study_dir / "analysis.json").read_text("utf-8"))["analysis"]
    assert frozen["earlier_noise"]["measures"][MEASURE]["variance"] == entry.variance


def test_a_study_that_is_not_whole_is_not_recorded(tmp_path: Path) -> None:
    study = opened(tmp_path / "a", **EVALUATE)
    with pytest.raises(StudyError, match=r"--record: .*8 of 8 runs are not done; expected a whole"):
        study.report(record=tmp_path / "noise.jsonl")
    assert not (tmp_path / "noise.jsonl").exists()


WRONG: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no mapping of freedom": lambda line: [line],
    "schema: found 2": lambda line: {**line, "schema": 2},
    "variance: found no number": lambda line: {**line, "variance": float("nan")},
    "found no number from": lambda line: {**line, "variance": 10**400},
    "number from 1e-30": lambda line: {**line, "variance": True},
    "freedom: found no whole": lambda line: {**line, "freedom": 2.5},
    "runs: found no list": lambda line: {**line, "runs": []},
    "runs: found no text": lambda line: {**line, "runs": [1]},
    "study: found no text": lambda line: {**line, "study": "x" * 1001},
    "kind: found no mapping": lambda line: {**line, "kind": {"measure": "f1"}},
    "kind.data: found no text": lambda line: {**line, "kind": {**line["kind"], "data": None}},
}


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("reason", WRONG)
def test_a_wrong_line_is_refused_by_name(reason: str, tmp_path: Path) -> None:
    kind = dict.fromkeys(("measure", "encoder", "data", "length", "seeds"), "x")
    line = {"schema": 1, "study": "s", "runs": ["ab"], "kind": kind, "variance": 1.0, "freedom": 2}
    record = tmp_path / "noise.jsonl"
    record.write_text(json.dumps(line) + "\n" + json.dumps(WRONG[reason](line)) + "\n", "utf-8")
    with pytest.raises(StudyError, match=f"noise.jsonl:2: .*{reason}.*expected a record"):
        read_record(record)
    with pytest.raises(StudyError, match=r"noise.jsonl:2: "):
        finished(tmp_path / "a").report(record=record)  # nothing is added to what is no record
    assert record.read_text("utf-8").count("\n") == 2


@pytest.mark.parametrize("end", ["\n", ""])
def test_a_record_may_end_without_a_line_feed(end: str, tmp_path: Path) -> None:
    kind = Kind("f1", "bert", "a.txt", "max_steps 6", "all")
    first, second = (Entry("s", (run,), kind, 1e-4, 2) for run in ("ab", "cd"))
    path = tmp_path / "noise.jsonl"
    path.write_text(json.dumps(first.plain()) + end, "utf-8")
    assert record(path, [first, second]) == 1
    assert read_record(path) == [first, second]
    assert path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize("content", [b"\xff\n", b"base: x\n", b"[" * 100_000, b"1" * 2**24 + b"1"])
def test_what_is_no_record_is_refused(content: bytes, tmp_path: Path) -> None:
    record = tmp_path / "noise.jsonl"
    record.write_bytes(content)
    with pytest.raises(StudyError, match=r"noise.jsonl.*expected a record"):
        opened(tmp_path / "a", earlier_noise=str(record), **EVALUATE)
    with pytest.raises(StudyError, match=r"none.jsonl: No such file"):
        opened(tmp_path / "a", earlier_noise="../none.jsonl", **EVALUATE)
    with pytest.raises(StudyError, match=r"earlier_noise: found 3, expected a file"):
        opened(tmp_path / "a", earlier_noise=3, **EVALUATE)


@pytest.mark.slow
def test_design_takes_the_deviation_of_a_record(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "noise.jsonl"
    recorded = finished(tmp_path / "a").study_dir
    assert main(["report", str(recorded), "--record", str(record)]) == 0
    assert "noise over seeds of 1 kind(s) of run, 1 new" in capsys.readouterr().out
    (entry,) = read_record(record)
    capsys.readouterr()
    new = opened(tmp_path / "b", seeds=[11, 12], **EVALUATE)
    path = str(new.study_dir.parent / "study.yaml")
    deviation = 100 * entry.variance**0.5
    assert main(["design", path, "--earlier", str(record)]) == 0
    printed = capsys.readouterr().out
    assert f"{deviation:.3g} points over seeds ({entry.freedom} degrees of freedom)" in printed
    assert main(["design", path, "--deviation", str(deviation)]) == 0
    alone = capsys.readouterr().out
    table = [line for line in alone.splitlines() if "%" in line and "4" not in line[:3]]
    assert table[0] in printed  # the same deviation shows the same
    with pytest.raises(Exception, match="found --earlier and --deviation"):
        main(["design", path, "--earlier", str(record), "--deviation", "1"])
    using = opened(tmp_path / "b", seeds=[11, 12], earlier_noise=str(record), **EVALUATE)
    assert using.analysis()["earlier_noise"]["measures"][MEASURE]["freedom"] == entry.freedom
    assert main(["design", path, "--earlier", str(record)]) == 0
    assert f"Earlier studies, {entry.freedom} degrees" in capsys.readouterr().out


def test_two_variants_against_direct_sums() -> None:
    """Two variants of three seeds, and earlier studies with 10 degrees of freedom."""
    rng = np.random.default_rng(5)
    a, b = rng.normal(0.7, 0.01, (2, 3))
    scores = study_of(np.array([[a], [b]]))
    scores.earlier = {"t0 accuracy": EarlierNoise(1e-4, 10)}
    found = compare_study(scores, draws=0)["1", "t0 accuracy"]
    own = np.array([a.var(ddof=1), b.var(ddof=1)])
    pooled = (2 * own.sum() + 10 * 1e-4) / 14
    moderated = np.maximum(own, (2 * own + PRIOR * pooled) / (2 + PRIOR))
    freedoms = 2 + PRIOR * pooled / np.maximum(own, pooled)
    parts = moderated / 3
    freedom = parts.sum() ** 2 / (parts**2 / freedoms).sum()
    t = (b.mean() - a.mean()) / parts.sum() ** 0.5
    assert not found.paired
    assert found.p == pytest.approx(2 * stats.t.sf(abs(t), freedom), rel=1e-9)


def study_of(values: np.ndarray) -> StudyScores:
    """Return a study of ``(variants, measures, seeds)`` values."""
    measures = [Measure(f"t{number}", "accuracy") for number in range(values.shape[1])]
    variants = {
        str(number): VariantScores(
            {
                measure.name: Cell(dict(enumerate(map(float, each))))
                for measure, each in zip(measures, of_variant, strict=True)
            }
        )
        for number, of_variant in enumerate(values)
    }
    return StudyScores("drawn", "0", list(range(values.shape[2])), measures, variants)


@pytest.mark.slow
def test_false_alarms_stay_at_five_per_cent_with_equal_spread() -> None:
    rng = np.random.default_rng(0)
    studies, alarms, plain = 400, 0, 0
    for _ in range(studies):
        scores = study_of(rng.normal(0.7, 0.004, (2, 1, 3)))
        plain += compare_study(scores, draws=0)["1", "t0 accuracy"].significant
        noise = EarlierNoise(float(rng.normal(0, 0.004, (6, 3)).var(1, ddof=1).mean()), 12)
        used = replace(scores, earlier={"t0 accuracy": noise})
        alarms += compare_study(used, draws=0)["1", "t0 accuracy"].significant
    assert stats.binomtest(alarms, studies).proportion_ci(0.99).low <= 0.05
    assert alarms <= 0.075 * studies
