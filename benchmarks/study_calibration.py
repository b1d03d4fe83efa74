"""Whether the statistics of studies keep their promises, on simulated ones.

    python benchmarks/study_calibration.py [--studies 2000] [--seed 0] [--lines normal …]
        [--table FILE]

Prints a Markdown table, a line for each kind of noise and design. With ``--table`` each line is
added to FILE as well, and lines that FILE has are not run again. Each figure is a share of the
simulated studies, with its exact (Clopper and Pearson's) 95 % binomial interval; *as promised* is
what has the promise inside, or errs on the careful side. In each study variants are compared with
the first one by `compare_study`, as a report does.

- **false alarm**: all variants are equal; a star anywhere.
- **paired t, Holm**: the same by the test that bertlab had before: a t-test over the differences of
  each seed, for each comparison on its own, corrected by Holm.
- **coverage**: the 95 % interval of the last variant holds its true difference.
- **power**: the last variant is better by four deviations of a run over the square root of (seeds
  / 3), so that more seeds face a smaller effect; it has a star. Beside it that of the former test.

Noise of a run: `normal`; `one noisy` and `baseline noisy` (three times the deviation); `spread`
(the variants' deviations are drawn, a factor of 1.6 up or down); `heavy` (Student's t, 3 degrees
of freedom); `skewed` (exponential); `skewed, noisy` (and one variant three times as noisy);
`discrete` (accuracies over 277 rows, a deviation of about one row); `ceiling` (at most 100 %, of
which the mean is one deviation below); `together` (60 % of the variance is the seed's, the same for
all variants); `fails` (one variant ends ten deviations lower in a tenth of its runs).
`rows`: variants that are equally good in the population but better at different rows, whose scores
are kept. `nested`: each pre-training is fine-tuned five times, and half the variance is of either.
`two humps N`: half of all runs are N deviations lower, in every variant. `baseline noisy 5`: five
times the deviation. `2 against 10`, `10 against 2`, …: runs of the baseline, and of the others;
`, few noisy`: those of which there are few are three times as noisy; `, many noisy`:
the others are.
`earlier same`, `half`, `twice`, `of 12` or `100`: the study takes a variance from a record of
earlier ones with so many degrees of freedom, whose deviation is the same, half or twice its own.
`fails RATE by N` and `one fails RATE by N`: that share of the runs of all variants, or of the
second one, is N deviations lower. These lines are a table of their own (``--failures``), since what
a star is about depends on what is found:

- **found**: failed runs that the report counts as failed; **good lost**: good ones that it does.
- **false star**: a star anywhere that is not true: of runs that learned, or (of equal variants) of
  all runs. **star on all runs**: one on the variant that fails, about the mean of all its runs,
  which differs.
- **rate shown**: Fisher's test after Holm shows that the second variant fails more often.
- **power**: of the last variant, better by four deviations over the square root of (seeds / 3), and
  of Welch's t-test of all runs, corrected by Holm.

`fives 0`, `0.3`, `0.6`: rows in groups of five, and that share of how a variant takes to a row is
the group's; `uneven 0.6`: groups of 1 to about 30; `paradigms`: 67 groups, as
BLiMP has, and 0.6; `few`, `few uneven`: 12 groups. In lines with `unnamed` the study is not told of
the groups; *warned* is the share of its reports that find neighbouring rows alike.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bertlab_evaluations.clusters import Clusters
from bertlab_studies.report.comparison import LEVEL
from bertlab_studies.report.failed_runs import failed_runs
from bertlab_studies.report.row_noise import row_warnings
from bertlab_studies.report.seed_noise import EarlierNoise
from bertlab_studies.report.statistics import compare_study, holm
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

Array = NDArray[np.float64]

DEVIATION = 0.004  # of a run, in accuracy
CENTER = 0.7
TEST_ROWS = 277  # RTE's development set
NOISY = 3.0
EFFECT = 4.0  # deviations, at three seeds
DESIGNS = ((2, 1), (6, 2), (8, 4))  # variants, tasks
FAILING = (0.1, 0.3, 0.5, 0.7)  # shares of the runs
DEPTHS = (3, 6, 10, 30)  # deviations
MORE_DESIGNS = ((3, 1), (3, 2), (6, 1), (6, 2))
EARLIER_DESIGNS = ((2, 1), (3, 1), (6, 2))
SEEDS = (3, 5, 10, 25)
ROWS = (100, 277, 1000, 5000)
UNNAMED = ", unnamed"
_NAME = "task0 accuracy"  # of the measure in the table of failed runs
HEAD = """{studies:,} studies a line, seed {seed}

| noise | variants × tasks | seeds | false alarm | as promised | paired t, Holm |\
 coverage | as promised | power | paired t, Holm |
| --- | ---: | ---: | --- | --- | ---: | --- | --- | ---: | ---: |"""


FAILURES_HEAD = """{studies:,} studies a line, seed {seed}

| noise | variants × tasks | seeds | found | good lost | false star | as promised |\
 star on all runs | rate shown | power | Welch, Holm |
| --- | ---: | ---: | ---: | ---: | --- | --- | ---: | ---: | ---: | ---: |"""


@dataclass(frozen=True)
class Line:
    """One line of the table.

    Attributes:
        noise: its name.
        variants: of the study, the baseline among them.
        tasks: that decide.
        seeds: of each variant.
        rows: whose scores are kept, in groups if ``noise`` is one of ``GROUPS``; 0: none.
    """

    noise: str
    variants: int
    tasks: int
    seeds: int
    rows: int = 0

    @property
    def label(self) -> str:
        """The first cells of its line."""
        rows = f", {self.rows} rows" if self.rows else ""
        return f"| {self.noise}{rows} | {self.variants} × {self.tasks} | {self.seeds} |"


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--lines", nargs="*", help="kinds of noise; all if not given")
    parser.add_argument("--table", type=Path, help="file that lines are added to")
    parser.add_argument("--failures", action="store_true", help="the table of failed runs")
    given = parser.parse_args()
    head = FAILURES_HEAD if given.failures else HEAD
    head = head.format(studies=given.studies, seed=given.seed)
    done = given.table.read_text("utf-8") if given.table and given.table.exists() else ""
    if done and not done.startswith(head):
        parser.error(f"--table: {given.table} is of another number of studies, or seed")
    with given.table.open("a", encoding="utf-8") if given.table else nullcontext() as file:

        def show(text: str) -> None:
            for each in filter(None, (sys.stdout, file)):
                print(text, file=each, flush=True)

        if not done:
            show(head)
        make = failures_line if given.failures else table_line
        for line in failing_lines() if given.failures else lines():
            asked = not given.lines or {line.noise, line.noise.partition(",")[0]} & {*given.lines}
            if asked and line.label not in done:
                show(make(line, given.studies, given.seed))


def lines() -> Iterator[Line]:
    """Yield the lines of the table."""
    for noise, (variants, tasks), seeds in product(NOISES, DESIGNS, SEEDS):
        if (variants, tasks) != DESIGNS[-1] or noise in ("normal", "spread"):
            yield Line(noise, variants, tasks, seeds)
    more = (*NOISY_BASELINES, *HUMPS)
    for noise, (variants, tasks), seeds in product(more, MORE_DESIGNS, SEEDS[:2]):
        yield Line(noise, variants, tasks, seeds)
    for noise in NOISY_BASELINES:
        yield Line(noise, 8, 9, 3)
    for noise, (variants, tasks) in product(UNEQUAL, ((2, 1), (6, 1))):
        yield Line(noise, variants, tasks, 10)
    for noise, (variants, tasks), seeds in product(EARLIER, EARLIER_DESIGNS, SEEDS[:2]):
        yield Line(noise, variants, tasks, seeds)
    for rows in ROWS:
        for seeds in (3, 10) if rows > 1000 else SEEDS:
            yield Line("rows", 2, 1, seeds, rows)
    yield Line("rows", 6, 2, 5, TEST_ROWS)
    for (noise, (rows, _, _)), named, seeds in product(GROUPS.items(), ("", UNNAMED), (3, 10)):
        yield Line(noise + named, 2, 1, seeds, rows)


def failing_lines() -> Iterator[Line]:
    """Yield the lines of the table of failed runs."""
    designs = ((2, (5, 10, 25)), (6, (3, 5, 10)))
    for which, rate, depth, (variants, all_seeds) in product(
        ("fails", "one fails"), FAILING, DEPTHS, designs
    ):
        for seeds in all_seeds:
            if depth == 10 or seeds == 10:
                yield Line(f"{which} {rate} by {depth}", variants, 1, seeds)


def failures_line(line: Line, studies: int, seed: int) -> str:
    """Simulate the studies of a line of the table of failed runs, and return it."""
    rng = np.random.default_rng([seed, *map(ord, line.noise), line.variants, line.seeds])
    planted = EFFECT * DEVIATION * (3 / line.seeds) ** 0.5
    failing = failing_noise(line.noise)
    found = lost = fell = good = stars = true_stars = rates = shown = welch = 0
    for _ in range(studies):
        drawn = failing((line.variants, line.seeds), rng)
        study = _study_of(line, CENTER + DEVIATION * drawn.values)
        called = failed_runs(study, study.measures[0])
        marked = np.array([[s in called[v] for s in range(line.seeds)] for v in study.variants])
        found, fell = found + (marked & drawn.failed).sum(), fell + drawn.failed.sum()
        lost, good = lost + (marked & ~drawn.failed).sum(), good + (~drawn.failed).sum()
        compared = compare_study(study, draws=0)
        starred = [key[0] for key, one in compared.items() if one.significant]
        of_all = (
            "1" in starred and line.noise.startswith("one") and not compared["1", _NAME].of_learned
        )
        true_stars += of_all
        stars += len(starred) > of_all
        failures = compared["1", _NAME].failures
        rates += failures is not None and (failures.p_adjusted or 0.0) <= LEVEL
        effects = np.zeros((line.variants, 1))
        effects[-1] = planted
        drawn = failing((line.variants, line.seeds), rng)
        other = _study_of(line, CENTER + effects + DEVIATION * drawn.values)
        key = (list(other.variants)[-1], _NAME)
        shown += compare_study(other, draws=0)[key].significant
        welch += welch_test(other)[key] <= LEVEL
    return (
        f"{line.label} {found / max(fell, 1):.0%} | {lost / max(good, 1):.1%} |"
        f" {stars / studies:.1%} {interval(stars, studies)} | {verdict(stars, studies, LEVEL)} |"
        f" {true_stars / studies:.0%} | {rates / studies:.0%} | {shown / studies:.0%} |"
        f" {welch / studies:.0%} |"
    )


def _study_of(line: Line, values: Array) -> StudyScores:
    """Return a study of one task with these ``(variants, seeds)`` values."""
    variants = {
        str(number): VariantScores({_NAME: Cell(dict(enumerate(each)))})
        for number, each in enumerate(values.tolist())
    }
    measure = Measure("task0", "accuracy")
    return StudyScores("simulated", "0", list(range(line.seeds)), [measure], variants)


def table_line(line: Line, studies: int, seed: int) -> str:
    """Simulate the studies of a line, and return it."""
    rng = np.random.default_rng([seed, *map(ord, line.noise), line.variants, line.seeds, line.rows])
    runs = min(UNEQUAL.get(line.noise, (line.seeds,))[:2])
    planted = EFFECT * DEVIATION * (3 / runs) ** 0.5
    truth = planted if line.rows else true_difference(line, planted, rng)
    alarms = former_alarms = held = shown = former_shown = warned = 0
    for _ in range(studies):
        same = make_study(line, 0.0, rng)
        found = compare_study(same, draws=0).values()
        alarms += any(one.significant for one in found)
        former_alarms += any(p <= LEVEL for p in former_test(same).values())
        warned += line.noise.endswith(UNNAMED) and any(row_warnings(same))
        other = make_study(line, planted, rng)
        key = (list(other.variants)[-1], other.measures[-1].name)
        one = compare_study(other, draws=0)[key]
        held += one.low is not None and one.low <= truth <= (one.high or 0.0)
        shown += one.significant
        former_shown += former_test(other)[key] <= LEVEL
    told = f", warned {warned / studies:.0%}" if line.noise.endswith(UNNAMED) else ""
    share = f"{alarms / studies:.1%} {interval(alarms, studies)}"
    covered = f"{held / studies:.1%} {interval(held, studies)}"
    return (
        f"{line.label} {share} |"
        f" {verdict(alarms, studies, LEVEL)}{told} | {former_alarms / studies:.1%} | {covered} |"
        f" {verdict(studies - held, studies, LEVEL)} | {shown / studies:.0%} |"
        f" {former_shown / studies:.0%} |"
    )


def true_difference(line: Line, planted: float, rng: np.random.Generator) -> float:
    """Return the last variant's difference in the mean of very many runs, to three digits."""
    effects = np.zeros(line.variants)
    effects[-1] = planted
    values = _values(line.noise, effects, 300_000, rng)
    means = np.nanmean(values, axis=1) if line.noise not in UNEQUAL else CENTER + effects
    return float(means[-1] - means[0])


def make_study(line: Line, planted: float, rng: np.random.Generator) -> StudyScores:
    """Return a study whose last variant differs in the last measure by what is planted."""
    measures = [Measure(f"task{number}", "accuracy") for number in range(line.tasks)]
    names = [str(number) for number in range(line.variants)]
    found = {name: VariantScores() for name in names}
    study = StudyScores("simulated", "0", list(range(line.seeds)), measures, found)
    for measure in measures:
        if line.noise in EARLIER:
            times, freedom = EARLIER[line.noise]
            drawn = (times * DEVIATION) ** 2 * rng.chisquare(freedom) / freedom
            study.earlier[measure.name] = EarlierNoise(drawn, freedom)
        effects = np.zeros(line.variants)
        effects[-1] = planted if measure is measures[-1] else 0.0
        if line.rows:
            cells = _scored_rows(line, effects, rng)
        else:
            values = _values(line.noise, effects, line.seeds, rng)
            cells = [
                Cell({seed: each for seed, each in enumerate(of_variant) if np.isfinite(each)})
                for of_variant in values.tolist()
            ]
        for name, cell in zip(names, cells, strict=True):
            found[name].cells[measure.name] = cell
    return study


def _values(noise: str, effects: Array, seeds: int, rng: np.random.Generator) -> Array:
    """Return ``(variants, seeds)`` values."""
    values = (
        CENTER + effects[:, None] + DEVIATION * (NOISES | _MORE)[noise]((len(effects), seeds), rng)
    )
    if noise == "discrete":
        return np.round(values * TEST_ROWS) / TEST_ROWS
    if noise in UNEQUAL:
        baseline, others, _ = UNEQUAL[noise]
        values[0, baseline:] = np.nan
        values[1:, others:] = np.nan
    return np.minimum(values, CENTER + DEVIATION) if noise == "ceiling" else values


def _scored_rows(line: Line, effects: Array, rng: np.random.Generator) -> list[Cell]:
    """Return variants whose runs get rows right by the row's ease, its variant, and the seed."""
    clusters, share = _groups(line, rng)

    def draw(*shape: int) -> Array:
        """Return ``(…, rows)`` standard normal numbers, a share of whose variance is groups'."""
        if not share:
            return rng.normal(size=(*shape, line.rows))
        of_group = rng.normal(size=(*shape, len(clusters)))[..., clusters.numbers]
        return share**0.5 * of_group + (1 - share) ** 0.5 * rng.normal(size=(*shape, line.rows))

    ease = 1.0 + 1.5 * draw()
    # of a variant at a row: as large as what parts two recipes in practice
    taste = draw(line.variants, 1)
    seed = rng.normal(0.0, 0.05, (line.variants, line.seeds, 1))
    chance = special.expit(ease + taste + seed)
    if effects[-1]:
        chance[-1] = np.clip(chance[-1] + effects[-1], 0, 1)
    right = (rng.random((line.variants, line.seeds, line.rows)) < chance).astype(np.float64)
    return [
        Cell(
            dict(enumerate(each.mean(1).tolist())),
            examples=dict(enumerate(each)),
            clusters=None if line.noise.endswith(UNNAMED) else clusters,
        )
        for each in right
    ]


def _groups(line: Line, rng: np.random.Generator) -> tuple[Clusters, float]:
    """Return the groups of rows, and their share; each row on its own but for ``GROUPS``."""
    _, groups, share = GROUPS.get(line.noise.removesuffix(UNNAMED), (0, 0, 0.0))
    if not groups:
        return Clusters("row", np.arange(line.rows)), 0.0
    weights = np.ones(groups)
    if "uneven" in line.noise:
        weights = np.exp(rng.normal(0, 0.8, groups))
    # 7 rows, weights [1, 3] -> ends at 1.75 and 7 -> numbers [0, 0, 1, 1, 1, 1, 1]
    ends = line.rows * weights.cumsum() / weights.sum()
    _, numbers = np.unique(np.searchsorted(ends, np.arange(line.rows) + 0.5), return_inverse=True)
    return Clusters("group", numbers), share


Noise = Callable[[tuple[int, int], np.random.Generator], Array]


def _noisy(which: int | slice, make: Noise, times: float = NOISY) -> Noise:
    def draw(shape: tuple[int, int], rng: np.random.Generator) -> Array:
        values = make(shape, rng)
        values[which] *= times
        return values

    return draw


def _normal(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    return rng.standard_normal(shape)


def _spread(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    return rng.standard_normal(shape) * np.exp(rng.normal(0, 0.5, (shape[0], 1)))


def _heavy(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    return rng.standard_t(3, shape) / 3**0.5


def _skewed(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    return 1 - rng.exponential(size=shape)


def _together(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    return 0.6**0.5 * rng.standard_normal(shape[1]) + 0.4**0.5 * rng.standard_normal(shape)


def _fails(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    values = rng.standard_normal(shape)
    values[1] -= 10 * (rng.random(shape[1]) < 0.1)
    return values


def _nested(shape: tuple[int, int], rng: np.random.Generator) -> Array:
    tuned = rng.standard_normal((*shape, 5)).mean(-1)  # five fine-tunings of each pre-training
    return 0.5**0.5 * (rng.standard_normal(shape) + tuned)


@dataclass(frozen=True)
class Drawn:
    """``(variants, seeds)`` values in deviations, and whether each run failed."""

    values: Array
    failed: NDArray[np.bool_]


def failing_noise(name: str) -> Callable[[tuple[int, int], np.random.Generator], Drawn]:
    """Return what draws the noise of ``fails RATE by DEPTH`` or ``one fails RATE by DEPTH``."""
    *_, rate, _, depth = name.split()

    def draw(shape: tuple[int, int], rng: np.random.Generator) -> Drawn:
        failed = rng.random(shape) < float(rate)
        if name.startswith("one"):
            failed[[number for number in range(shape[0]) if number != 1]] = False
        return Drawn(rng.standard_normal(shape) - float(depth) * failed, failed)

    return draw


def _humps(depth: float) -> Noise:
    def draw(shape: tuple[int, int], rng: np.random.Generator) -> Array:
        return failing_noise(f"fails 0.5 by {depth}")(shape, rng).values

    return draw


# rows, groups, and their share of how a variant takes to a row
GROUPS: dict[str, tuple[int, int, float]] = {
    "fives 0": (1000, 200, 0.0),
    "fives 0.3": (1000, 200, 0.3),
    "fives 0.6": (1000, 200, 0.6),
    "uneven 0.6": (1000, 200, 0.6),
    "paradigms": (2010, 67, 0.6),
    "few": (240, 12, 0.6),
    "few uneven": (240, 12, 0.6),
}

# deviation of earlier studies in that of this one, and their degrees of freedom
EARLIER = {
    f"earlier {name} of {freedom}": (times, freedom)
    for name, times in (("same", 1.0), ("half", 0.5), ("twice", 2.0))
    for freedom in (12, 100)
}
HUMPS: dict[str, Noise] = {f"two humps {depth}": _humps(depth) for depth in (3, 4, 6, 10)}
NOISY_BASELINES: dict[str, Noise] = {
    f"baseline noisy {times}": _noisy(0, _normal, times) for times in (3, 5)
}
# runs of the baseline, of the others, and which of them are noisy
UNEQUAL: dict[str, tuple[int, int, int | slice | None]] = {
    "2 against 10": (2, 10, None),
    "2 against 10, few noisy": (2, 10, 0),
    "3 against 10": (3, 10, None),
    "3 against 10, few noisy": (3, 10, 0),
    "10 against 2": (10, 2, None),
    "10 against 2, few noisy": (10, 2, slice(1, None)),
    "10 against 3": (10, 3, None),
    "10 against 3, few noisy": (10, 3, slice(1, None)),
    "5 against 10": (5, 10, None),
    "5 against 10, few noisy": (5, 10, 0),
    "2 against 10, many noisy": (2, 10, slice(1, None)),
    "10 against 2, many noisy": (10, 2, 0),
    "3 against 10, many noisy": (3, 10, slice(1, None)),
    "10 against 3, many noisy": (10, 3, 0),
}
NOISES: dict[str, Noise] = {
    "normal": _normal,
    "one noisy": _noisy(1, _normal),
    "baseline noisy": _noisy(0, _normal),
    "spread": _spread,
    "heavy": _heavy,
    "skewed": _skewed,
    "skewed, noisy": _noisy(1, _skewed),
    "discrete": _normal,
    "ceiling": _normal,
    "together": _together,
    "fails": _fails,
    "nested": _nested,
}


# lines of designs of their own
_MORE = NOISY_BASELINES | HUMPS | dict.fromkeys(EARLIER, _normal)
_MORE |= {
    name: _normal if few is None else _noisy(few, _normal) for name, (*_, few) in UNEQUAL.items()
}


def welch_test(study: StudyScores) -> dict[tuple[str, str], float]:
    """Return the p-values of Welch's t-test over all runs, corrected by Holm."""
    base, *others = study.variants
    keys = [(name, measure.name) for name in others for measure in study.measures]
    sides = {
        (name, measure.name): list(study.cell(name, measure).values.values())
        for name in study.variants
        for measure in study.measures
    }
    p = [stats.ttest_ind(sides[key], sides[base, key[1]], equal_var=False).pvalue for key in keys]
    return dict(zip(keys, holm([float(each) for each in p]), strict=True))


def former_test(study: StudyScores) -> dict[tuple[str, str], float]:
    """Return the p-values of a paired t-test for each comparison, corrected by Holm."""
    names = list(study.variants)
    keys = [(name, measure.name) for name in names[1:] for measure in study.measures]
    if len({len(study.cell(name, study.measures[0]).values) for name in names}) > 1:
        return welch_test(study)  # runs do not pair
    # (variants, measures, seeds)
    values = np.array(
        [
            [list(study.cell(name, measure).values.values()) for measure in study.measures]
            for name in names
        ]
    )
    differences = (values[1:] - values[0]).reshape(len(keys), -1)
    seeds = differences.shape[1]
    error = differences.std(1, ddof=1) / seeds**0.5
    same = np.ptp(differences, axis=1) < 1e-12  # then it took the sign test
    t = np.abs(differences.mean(1)) / np.where(same, 1.0, error)
    sign = np.where(differences[:, 0] == 0, 1.0, 2.0 ** (1 - seeds))
    p = np.where(same, sign, 2 * special.stdtr(seeds - 1, -t))
    return dict(zip(keys, holm(p.tolist()), strict=True))


def interval(hits: int, of: int) -> str:
    """Return the exact binomial interval of a share."""
    low, high = stats.binomtest(hits, of).proportion_ci(1 - LEVEL)
    return f"({low:.1%} … {high:.1%})"


def verdict(misses: int, of: int, promised: float) -> str:
    """Return whether a share of misses is at most what is promised, within its interval."""
    low, _ = stats.binomtest(misses, of).proportion_ci(1 - LEVEL)
    return "yes" if low <= promised else "**no**"


if __name__ == "__main__":
    main()
