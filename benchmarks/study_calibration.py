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
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bertlab_evaluations.clusters import Clusters
from bertlab_studies.report.comparison import LEVEL
from bertlab_studies.report.row_noise import row_warnings
from bertlab_studies.report.statistics import compare_study, holm
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

Array = NDArray[np.float64]

DEVIATION = 0.004  # of a run, in accuracy
CENTER = 0.7
TEST_ROWS = 277  # RTE's development set
NOISY = 3.0
EFFECT = 4.0  # deviations, at three seeds
DESIGNS = ((2, 1), (6, 2), (8, 4))  # variants, tasks
SEEDS = (3, 5, 10, 25)
ROWS = (100, 277, 1000, 5000)
UNNAMED = ", unnamed"
HEAD = """{studies:,} studies a line, seed {seed}

| noise | variants × tasks | seeds | false alarm | as promised | paired t, Holm |\
 coverage | as promised | power | paired t, Holm |
| --- | ---: | ---: | --- | --- | ---: | --- | --- | ---: | ---: |"""


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
    given = parser.parse_args()
    head = HEAD.format(studies=given.studies, seed=given.seed)
    done = given.table.read_text("utf-8") if given.table and given.table.exists() else ""
    if done and not done.startswith(head):
        parser.error(f"--table: {given.table} is of another number of studies, or seed")
    with given.table.open("a", encoding="utf-8") if given.table else nullcontext() as file:

        def show(text: str) -> None:
            for each in filter(None, (sys.stdout, file)):
                print(text, file=each, flush=True)

        if not done:
            show(head)
        for line in lines():
            asked = not given.lines or line.noise.partition(",")[0] in given.lines
            if asked and line.label not in done:
                show(table_line(line, given.studies, given.seed))


def lines() -> Iterator[Line]:
    """Yield the lines of the table."""
    for noise in NOISES:
        for variants, tasks in DESIGNS:
            for seeds in SEEDS:
                if (variants, tasks) == DESIGNS[-1] and noise not in ("normal", "spread"):
                    continue
                yield Line(noise, variants, tasks, seeds)
    for rows in ROWS:
        for seeds in (3, 10) if rows > 1000 else SEEDS:
            yield Line("rows", 2, 1, seeds, rows)
    yield Line("rows", 6, 2, 5, TEST_ROWS)
    for noise, (rows, _, _) in GROUPS.items():
        for named in ("", UNNAMED):
            for seeds in (3, 10):
                yield Line(noise + named, 2, 1, seeds, rows)


def table_line(line: Line, studies: int, seed: int) -> str:
    """Simulate the studies of a line, and return it."""
    rng = np.random.default_rng([seed, *map(ord, line.noise), line.variants, line.seeds, line.rows])
    planted = EFFECT * DEVIATION * (3 / line.seeds) ** 0.5
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
    return float(values[-1].mean() - values[0].mean())


def make_study(line: Line, planted: float, rng: np.random.Generator) -> StudyScores:
    """Return a study whose last variant differs in the last measure by what is planted."""
    measures = [Measure(f"task{number}", "accuracy") for number in range(line.tasks)]
    names = [str(number) for number in range(line.variants)]
    found = {name: VariantScores() for name in names}
    study = StudyScores("simulated", "0", list(range(line.seeds)), measures, found)
    for measure in measures:
        effects = np.zeros(line.variants)
        effects[-1] = planted if measure is measures[-1] else 0.0
        if line.rows:
            cells = _scored_rows(line, effects, rng)
        else:
            values = _values(line.noise, effects, line.seeds, rng)
            cells = [Cell(dict(enumerate(of_variant))) for of_variant in values.tolist()]
        for name, cell in zip(names, cells, strict=True):
            found[name].cells[measure.name] = cell
    return study


def _values(noise: str, effects: Array, seeds: int, rng: np.random.Generator) -> Array:
    """Return ``(variants, seeds)`` values."""
    values = CENTER + effects[:, None] + DEVIATION * NOISES[noise]((len(effects), seeds), rng)
    if noise == "discrete":
        return np.round(values * TEST_ROWS) / TEST_ROWS
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


def _noisy(which: int, make: Noise) -> Noise:
    def draw(shape: tuple[int, int], rng: np.random.Generator) -> Array:
        values = make(shape, rng)
        values[which] *= NOISY
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


def former_test(study: StudyScores) -> dict[tuple[str, str], float]:
    """Return the p-values of a paired t-test for each comparison, corrected by Holm."""
    names = list(study.variants)
    keys = [(name, measure.name) for name in names[1:] for measure in study.measures]
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
