"""What the statistics of studies make of others' scores: 100 fine-tunings of BERT on MNLI.

    python benchmarks/public_scores.py berts_of_a_feather_accuracies_by_run.csv [--studies 2000]

The table is McCoy, Min and Linzen's (2020), BERTs of a feather do not generalize together: accuracy
of 100 runs, which differ in their seeds only, on MNLI's development set and on the six parts of
HANS. It is `berts_of_a_feather/berts_of_a_feather_accuracies_by_run.csv` of the repository
tommccoy1/hans (MIT licence); it is not copied here.

Prints mean and deviation as `bertlab study import` has them, to be held against the table's own
last lines, and a Markdown table of *false alarms on real noise*: runs of this one recipe are drawn
without replacement and called variants, so that there is nothing to find; the share of such studies
with a star anywhere, with its exact 95 % binomial interval.
"""

import argparse
import csv
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from bertlab_studies.imported_scores import import_scores
from bertlab_studies.report.report import report_of
from bertlab_studies.report.statistics import compare_study
from bertlab_studies.study_scores import Cell, Measure, StudyScores, VariantScores

MEASURES = {
    "MNLI dev acc.": "mnli accuracy",
    "Lexical (nonent)": "lexical_overlap accuracy",
    "Subseq (nonent)": "subsequence accuracy",
    "Constituent (nonent)": "constituent accuracy",
}
DESIGNS = ((2, 3), (2, 5), (2, 10), (2, 25), (6, 3), (6, 5), (6, 10))  # variants, seeds


def main() -> None:
    """Read the table, import it, draw studies of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("table", type=Path)
    parser.add_argument("--studies", type=int, default=2000)
    options = parser.parse_args()
    with options.table.open(encoding="utf-8-sig") as file:
        runs = [row for row in csv.DictReader(file) if row["Run"].startswith("Run ")]
    values = {name: np.array([float(run[key]) for run in runs]) for key, name in MEASURES.items()}
    _imported(values)
    print("\n| measure | variants | seeds | false alarm | Welch, Holm |")
    print("| --- | ---: | ---: | --- | ---: |")
    for name, own in values.items():
        for variants, seeds in DESIGNS:
            _line(name, own, variants, seeds, options.studies)


def _imported(values: dict[str, NDArray[np.float64]]) -> None:
    """Import HANS as one measure of three variants, and print what the report says."""
    parts = {name: own for name, own in values.items() if name != "mnli accuracy"}
    lines = ["variant,seed,hans accuracy"]
    for name in sorted(parts, key=lambda each: parts[each].mean()):
        lines += [f"{name.split()[0]},{n},{x}" for n, x in enumerate(parts[name], 1)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "hans.csv"
        path.write_text("\n".join(lines), "utf-8")
        report = report_of(import_scores(str(path)))
    for name, own in values.items():
        spread = f"{100 * own.mean():.2f} ± {100 * own.std(ddof=1):.2f}"
        print(f"{name}: {spread}, {own.min()} … {own.max()}")
    print(report)


def _line(name: str, own: NDArray[np.float64], variants: int, seeds: int, studies: int) -> None:
    rng = np.random.default_rng(0)
    measure = Measure(*name.split())
    stars = welch = 0
    for _ in range(studies):
        drawn = rng.choice(own, (variants, seeds), replace=False)
        study = StudyScores(
            name="drawn",
            baseline="0",
            seeds=list(range(seeds)),
            measures=[measure],
            variants={
                str(number): VariantScores({measure.name: Cell(dict(enumerate(each.tolist())))})
                for number, each in enumerate(drawn)
            },
        )
        stars += any(found.significant for found in compare_study(study).values())
        p = stats.ttest_ind(drawn[1:], drawn[0], axis=1, equal_var=False).pvalue
        welch += bool(p.min() * (variants - 1) <= 0.05)
    low, high = stats.binomtest(stars, studies).proportion_ci()
    print(
        f"| {name} | {variants} | {seeds} | {stars / studies:.1%} ({low:.1%} … {high:.1%}) "
        f"| {welch / studies:.1%} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
