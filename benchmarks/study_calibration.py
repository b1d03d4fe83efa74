"""Whether the statistics of studies keep their promises, on simulated ones.

    python benchmarks/study_calibration.py [--studies 2000] [--seed 0]

Prints a Markdown table. Each figure is a share of the simulated studies, with its exact (Clopper
and Pearson's) 95 % binomial interval and what was promised; as promised is what has that inside.
The two sides of a seed share a part of their noise, as the same data order makes them do.

- **false alarm**: the same variant twice; a difference is shown.
- **coverage**: the 95 % interval holds the planted difference.
- **power**: a planted difference is shown that is as large as `minimum_detectable_effect` says,
  given the true deviation.
- **any of 8, Holm** and **any of 8, p alone**: four variants that are all the baseline, in two
  measures; at least one difference is shown, with the correction and without.
- **power, 1 of 8**: of these, one is different by `minimum_detectable_effect` at 5 % / 8, and
  is shown.
- **rows**: the bootstrap's interval holds the difference of three pairs of models that stay as they
  are over all the rows there could be; each study is another test set.

Noise of a run: `normal`; `heavy` (Student's t, 3 degrees of freedom); `discrete` (an accuracy over
277 rows with a deviation of about one row, so that runs tie); `collapse` (one run in ten ends ten
deviations lower, as fine-tuning on small sets can).
"""

import argparse
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from bertlab.api.study_scores import Cell, Measure, StudyScores, VariantScores
from bertlab.studies.report.row_scores import compare_examples
from bertlab.studies.report.statistics import (
    LEVEL,
    POWER,
    compare,
    compare_study,
    minimum_detectable_effect,
)

Array = NDArray[np.float64]
Found = tuple[str, float, int]  # figure, what is promised, studies in which it came true

NOISES = ("normal", "heavy", "discrete", "collapse")
SEEDS = (3, 5, 10)
DEVIATION = 0.004  # of a run, in accuracy; and of what both sides of a seed share
TEST_ROWS = 277  # RTE's development set
ROWS = (100, 400, 1700)
DRAWS = 2000  # of a bootstrap
MEASURES = [Measure("one", "accuracy"), Measure("other", "accuracy")]
VARIANTS = 4


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    rng = np.random.default_rng(arguments.seed)
    print(f"{arguments.studies:,} studies for each figure, seed {arguments.seed}\n")
    print("| noise | seeds | figure | promised | found | 95 % interval of found | found is |")
    print("| --- | ---: | --- | ---: | ---: | --- | --- |")
    for noise in NOISES:
        for seeds in SEEDS:
            for found in two_variants(noise, seeds, arguments.studies, rng):
                print_line(noise, seeds, found, arguments.studies)
            for found in many_variants(noise, seeds, arguments.studies, rng):
                print_line(noise, seeds, found, arguments.studies)
    for rows in ROWS:
        print_line("rows", 3, test_sets(rows, arguments.studies, rng), arguments.studies)


def two_variants(noise: str, seeds: int, studies: int, rng: np.random.Generator) -> Iterator[Found]:
    """Yield the figures of one comparison."""
    same = [compare(*by_seed(accuracies(noise, [0, 0], seeds, rng))) for _ in range(studies)]
    yield "false alarm", LEVEL, sum(one.significant for one in same)
    planted = minimum_detectable_effect(seeds, deviation_of_differences(noise, rng))
    other = [compare(*by_seed(accuracies(noise, [0, planted], seeds, rng))) for _ in range(studies)]
    held = [one.low is not None and one.low <= planted <= (one.high or 0.0) for one in other]
    yield "coverage", 1 - LEVEL, sum(held)
    yield "power", POWER, sum(one.significant for one in other)


def many_variants(
    noise: str, seeds: int, studies: int, rng: np.random.Generator
) -> Iterator[Found]:
    """Yield the figures of studies with several comparisons."""
    holm = alone = power = 0
    family = VARIANTS * len(MEASURES)
    planted = minimum_detectable_effect(seeds, deviation_of_differences(noise, rng), LEVEL / family)
    for _ in range(studies):
        same = compare_study(study(noise, 0.0, seeds, rng)).values()
        holm += any(one.significant for one in same)
        alone += any(one.p is not None and one.p <= LEVEL for one in same)
        power += compare_study(study(noise, planted, seeds, rng))["1", MEASURES[0].name].significant
    yield f"any of {family}, Holm", LEVEL, holm
    yield f"any of {family}, p alone", LEVEL, alone
    yield f"power, 1 of {family}", POWER, power


def study(noise: str, planted: float, seeds: int, rng: np.random.Generator) -> StudyScores:
    """Return a study whose variant 1 differs in the first measure, if it is planted to."""
    names = [str(number) for number in range(VARIANTS + 1)]
    variants = {name: VariantScores() for name in names}
    scores = StudyScores("A/A", "0", list(range(seeds)), MEASURES, variants)
    for measure in MEASURES:
        effects = [0.0] * len(names)
        effects[1] = planted if measure is MEASURES[0] else 0.0
        values = by_seed(accuracies(noise, effects, seeds, rng))
        for name, found in zip(names, values, strict=True):
            variants[name].cells[measure.name] = Cell(dict(found))
    return scores


def accuracies(noise: str, effects: list[float], seeds: int, rng: np.random.Generator) -> Array:
    """Return ``(variants, seeds)`` accuracies."""
    shape = (len(effects), seeds)
    own = rng.standard_t(3, shape) / 3**0.5 if noise == "heavy" else rng.standard_normal(shape)
    if noise == "collapse":
        own -= 10 * (rng.random(shape) < 0.1)
    values = 0.7 + np.array(effects)[:, None] + DEVIATION * (own + rng.standard_normal(seeds))
    return np.round(values * TEST_ROWS) / TEST_ROWS if noise == "discrete" else values


def by_seed(values: Array) -> list[Mapping[int, float]]:
    """Return each variant's values as cells hold them."""
    return [dict(enumerate(row.tolist())) for row in values]


def deviation_of_differences(noise: str, rng: np.random.Generator) -> float:
    """Return the true deviation, to three digits."""
    one, other = accuracies(noise, [0, 0], 1_000_000, rng)
    return float((other - one).std())


def test_sets(rows: int, studies: int, rng: np.random.Generator) -> Found:
    """Return how often the bootstrap's interval held the models' true difference."""
    seeds = range(3)

    def chances(number: int) -> tuple[Array, Array]:
        ease = rng.normal(1.2, 2.0, number)  # of a row; what one model gets right, others often do
        return special.expit(ease), special.expit(ease + 0.2)

    one, other = chances(10_000_000)
    truth, held = float((other - one).mean()), 0
    for number in range(studies):
        one, other = chances(rows)
        found = compare_examples(
            {seed: (rng.random(rows) < one).astype(np.float64) for seed in seeds},
            {seed: (rng.random(rows) < other).astype(np.float64) for seed in seeds},
            draws=DRAWS,
            seed=number,
        )
        held += found is not None and found.low <= truth <= found.high
    return f"coverage over {rows:,} rows", 1 - LEVEL, held


def print_line(noise: str, seeds: int, found: Found, studies: int) -> None:
    """Print one line of the table."""
    figure, promised, hits = found
    low, high = stats.binomtest(hits, studies).proportion_ci(1 - LEVEL)
    place = "as promised" if low <= promised <= high else "below" if high < promised else "above"
    print(
        f"| {noise} | {seeds} | {figure} | {promised:.0%} | {hits / studies:.1%}"
        f" | {low:.1%} … {high:.1%} | {place} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
