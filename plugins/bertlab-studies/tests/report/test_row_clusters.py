"""Rows in clusters: what tests, bootstraps, designs and reports make of them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bertlab.errors import DataError
from bertlab_evaluations.clusters import Clusters
from bertlab_studies.plan.tuning import Rows
from bertlab_studies.report.design import pilot_deviations
from bertlab_studies.report.multibootstrap import drawn_scores
from bertlab_studies.report.over_tasks import over_tasks
from bertlab_studies.report.report import report_of
from bertlab_studies.report.row_noise import row_noise, row_warnings
from bertlab_studies.report.row_scores import keep_common_rows, row_clusters
from bertlab_studies.report.statistics import compare_study
from bertlab_studies.report.values import report_json
from bertlab_studies.report.variance_shares import variance_shares
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

SEEDS = 4
QUESTIONS = Measure("squad", "exact_match")


def passages(rng: np.random.Generator, count: int = 60) -> Clusters:
    """Return passages with 1 to 9 questions."""
    return Clusters("context", np.repeat(np.arange(count), rng.integers(1, 10, count)))


def right_answers(
    rng: np.random.Generator, clusters: Clusters, variants: int = 2, together: float = 1.5
) -> list[np.ndarray]:
    """Return ``(seeds, rows)`` scores of variants that are good at other passages."""
    ease = rng.normal(size=(variants, 1, len(clusters)))[..., clusters.numbers]
    noise = rng.normal(size=(variants, SEEDS, len(clusters.numbers)))
    return list((together * ease + noise > -0.5).astype(np.float64))


def study_of(rng: np.random.Generator, clusters: Clusters | None, rows: list) -> StudyScores:
    variants = {
        name: VariantScores(
            cells={
                QUESTIONS.name: Cell(
                    dict(enumerate(each.mean(1).tolist())),
                    examples=dict(enumerate(each)),
                    clusters=clusters,
                )
            }
        )
        for name, each in zip("ab", rows, strict=True)
    }
    return StudyScores("s", "a", list(range(SEEDS)), [QUESTIONS], variants)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.mark.parametrize("paired", [True, False])
def test_variance_over_clusters_is_that_of_direct_sums(paired: bool, rng: np.random.Generator):
    clusters = passages(rng)
    before, after = right_answers(rng, clusters)
    count, number = len(clusters.numbers), len(clusters)

    def of_clusters(rows: np.ndarray) -> np.ndarray:
        """Return each cluster's part in the mean's distance, so that their mean is 0."""
        residuals = rows - rows.mean()
        sums = [residuals[clusters.numbers == each].sum() for each in range(number)]
        return np.array(sums) * number / count

    runs = [after - before] if paired else [-before, after]
    expected = 0.0
    for part in runs:
        table = np.array([of_clusters(run) for run in part])
        rest = table - table.mean(0)
        expected -= (rest**2).sum() / ((SEEDS - 1) * (number - 1)) / SEEDS
    difference = of_clusters((after - before).mean(0))
    expected = (expected + (difference**2).sum() / (number - 1)) / number
    sides = [dict(enumerate(each)) for each in (before, after)]
    found = row_noise(sides, (-1, 1), paired, clusters)
    assert found is not None
    assert found.variance == pytest.approx(expected, rel=1e-12)
    assert (found.rows, found.clusters, found.kind) == (count, number, "context")
    assert found.freedom < number - 1  # the sizes differ
    alone = row_noise(sides, (-1, 1), paired)
    assert alone is not None
    assert found.variance > 2 * alone.variance
    each_row = row_noise(sides, (-1, 1), paired, Clusters("id", np.arange(count)))
    assert each_row == alone


@pytest.mark.parametrize("paired", [True, False])
def test_the_bootstrap_draws_whole_clusters(paired: bool, rng: np.random.Generator):
    clusters = passages(rng, 12)
    before, after = right_answers(rng, clusters)
    found = drawn_scores(before, after, paired, draws=40, seed=5, clusters=clusters)
    drawing = np.random.RandomState(5)
    members = [np.flatnonzero(clusters.numbers == each) for each in range(12)]
    for draw in found:
        first = drawing.choice(SEEDS, size=SEEDS, replace=True)
        second = first if paired else drawing.choice(SEEDS, size=SEEDS, replace=True)
        chosen = np.concatenate([members[g] for g in drawing.choice(12, size=12, replace=True)])
        expected = [
            np.mean([side[seed, row] for seed in seeds for row in chosen])
            for side, seeds in ((before, first), (after, second))
        ]
        assert draw == pytest.approx(expected, abs=1e-13)


def test_a_comparison_takes_its_rows_by_clusters(rng: np.random.Generator):
    clusters = passages(rng)
    rows = right_answers(rng, clusters)
    found = compare_study(study_of(rng, clusters, rows))["b", QUESTIONS.name]
    alone = compare_study(study_of(rng, None, rows))["b", QUESTIONS.name]
    count = len(clusters.numbers)
    assert (found.rows, found.clusters, found.cluster) == (count, 60, "context")
    assert (alone.rows, alone.clusters, alone.cluster) == (count, count, "")
    assert found.difference == alone.difference
    assert found.error > 1.3 * alone.error
    assert found.bootstrap.high - found.bootstrap.low > alone.bootstrap.high - alone.bootstrap.low


def test_the_report_says_what_is_drawn(rng: np.random.Generator):
    clusters = passages(rng)
    study = study_of(rng, clusters, right_answers(rng, clusters))
    report = report_of(study)
    said = str(report)
    assert f"60 passages ({len(clusters.numbers)} rows) are" in said
    assert "Multi-Bootstrap over seeds and passages" in said
    assert not list(row_warnings(study))
    (compared,) = json.loads(report_json(report))["studies"][0]["comparisons"]
    assert (compared["cluster"], compared["clusters"]) == ("context", 60)
    assert compared["rows"] == len(clusters.numbers)


def test_a_star_names_what_it_is_over(rng: np.random.Generator):
    clusters = passages(rng)
    before, _ = right_answers(rng, clusters)
    noise = rng.normal(0, 0.01, (SEEDS, 1))
    report = report_of(study_of(rng, clusters, [before, before + 0.3 + noise]))
    assert "differs from the baseline (5 %, over seeds and passages)" in report.legend
    unknown = report_of(study_of(rng, None, [before, before + 0.3 + noise]))
    assert "over seeds and rows" in unknown.legend


def test_warnings_of_few_clusters_and_of_ones_that_nobody_named(rng: np.random.Generator):
    clusters = passages(rng)
    rows = right_answers(rng, clusters)
    (line,) = row_warnings(study_of(rng, None, rows))
    assert "correlate by 0." in line
    assert "data.cluster of a fine-tuning, or cluster of an evaluation" in line
    assert line in report_of(study_of(rng, None, rows)).warnings
    few = passages(rng, 12)
    (line,) = row_warnings(study_of(rng, few, right_answers(rng, few)))
    assert line.startswith(f"squad exact_match: 12 passages ({len(few.numbers)} rows): so few")
    independent = Clusters("context", np.arange(300))
    assert not list(row_warnings(study_of(rng, None, right_answers(rng, independent))))


def test_variants_of_other_clusters_are_refused(rng: np.random.Generator):
    clusters = passages(rng)
    study = study_of(rng, clusters, right_answers(rng, clusters))
    cell = study.variants["b"].cells[QUESTIONS.name]
    cell.clusters = Clusters("title", clusters.numbers // 2)
    with pytest.raises(DataError, match=r"60 passages .* here and in 30 titles .* there"):
        compare_study(study)
    cell.clusters = None  # its runs are of before there were clusters
    assert compare_study(study)["b", QUESTIONS.name].clusters == 60


def test_a_design_counts_clusters(rng: np.random.Generator):
    clusters = Clusters("context", np.repeat(np.arange(60), 5))
    study = study_of(rng, clusters, right_answers(rng, clusters))
    found = pilot_deviations(study, QUESTIONS)
    one = compare_study(study)["b", QUESTIONS.name]
    assert found is not None
    assert found.over_rows() == pytest.approx(one.row_share * one.error**2)
    assert (found.rows, found.clusters, found.row_size) == (300, 60, 5)
    assert found.counted_rows == "60 passages (300 rows)"
    more = found.with_rows(1200)
    assert more.counted_rows == "240 passages (1,200 rows)"
    assert more.over_rows() == pytest.approx(found.over_rows() / 4)


def test_shares_of_variance_are_over_clusters(rng: np.random.Generator):
    clusters = passages(rng)
    cell = Cell(examples=dict(enumerate(right_answers(rng, clusters)[0])), clusters=clusters)
    cell.repeats = {1: {1: 0.5, 2: 0.6}, 2: {1: 0.4, 2: 0.7}}
    found, alone = variance_shares([cell]), variance_shares([replace(cell, clusters=None)])
    scores = clusters.scores(np.mean(list(cell.examples.values()), axis=0))
    assert found.rows == pytest.approx(scores.var(ddof=1) / len(clusters))
    assert found.rows > alone.rows


def test_other_tasks_are_drawn_as_rows_are(rng: np.random.Generator):
    tasks = [Measure(f"task{number}", "accuracy") for number in range(6)]
    tables = {name: 0.7 + rng.normal(0, 0.02, (SEEDS, 6)) for name in "ab"}
    tables["b"] += rng.normal(0, 0.05, 6)  # better at some tasks
    variants = {
        name: VariantScores(
            cells={
                task.name: Cell(dict(enumerate(column.tolist())))
                for task, column in zip(tasks, table.T, strict=True)
            }
        )
        for name, table in tables.items()
    }
    found = over_tasks(StudyScores("s", "a", list(range(SEEDS)), tasks, variants), draws=10)["b"]
    assert found.other_tasks is not None
    assert found.comparison is not None
    part = row_noise([dict(enumerate(tables[name])) for name in "ab"], (-1, 1), False)
    assert part is not None
    assert found.other_tasks.error**2 == pytest.approx(found.comparison.error**2 + part.variance)
    assert found.other_tasks.difference == pytest.approx(found.comparison.difference)


def written(folder: Path, *clusters: str | None) -> Path:
    path = folder / "x.rows.jsonl"
    rows = ({"score": 1.0} | ({} if each is None else {"cluster": each}) for each in clusters)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def test_clusters_are_read_beside_scores(tmp_path: Path):
    names = [f"paradigm:{number // 3}" for number in range(30)]
    found = row_clusters(written(tmp_path, *names))
    assert found is not None
    assert (found.kind, found.numbers.tolist()) == ("paradigm", [n // 3 for n in range(30)])
    half = row_clusters(tmp_path / "x.rows.jsonl", Rows.CHOOSE)
    assert half is not None
    assert half.sizes.tolist() == [3.0] * 5  # whole paradigms
    assert row_clusters(written(tmp_path, None, None)) is None  # of before there were clusters
    assert row_clusters(tmp_path / "none") is None


def test_rows_that_are_left_out_leave_their_clusters(rng: np.random.Generator):
    scores = np.array([1.0, np.nan, 0.0, 1.0])
    cells = [Cell(examples={1: scores}, clusters=Clusters("paradigm", np.array([0, 1, 1, 2])))]
    cells.append(Cell(examples={1: np.array([0.0, 1.0, np.nan, 1.0])}))
    keep_common_rows(cells)
    assert cells[0].examples[1].tolist() == [1.0, 1.0]
    assert cells[0].clusters.numbers.tolist() == [0, 1]
