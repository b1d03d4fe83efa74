"""``Report``: what a study found, as tables and sentences in plain text.

Each format only escapes the text and lays it out.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bertlab import nearest
from bertlab.api import ReportSection
from bertlab.extend import hook_results
from bertlab_evaluations.clusters import units
from bertlab_pages.escaping import html_templates
from bertlab_pages.tables import Grid, TitledGrid
from bertlab_studies.errors import StudyError
from bertlab_studies.report import findings
from bertlab_studies.report.axes import axis_tables
from bertlab_studies.report.columns import (
    DEGENERATE,
    LEARNED,
    LOWER,
    MIXED,
    NOTHING,
    SHOWN,
    Column,
    columns_of,
)
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.conditions import conditions
from bertlab_studies.report.controls import control_findings
from bertlab_studies.report.crossed_seeds import crossed_tables
from bertlab_studies.report.difference_table import DIFFERENCE, LEGEND, OF_LEARNED, difference_rows
from bertlab_studies.report.group_report import group_tables
from bertlab_studies.report.over_tasks import over_tasks_tables
from bertlab_studies.report.repeats import seed_warnings
from bertlab_studies.report.resolution import resolution_tables
from bertlab_studies.report.row_noise import row_warnings
from bertlab_studies.report.statistics import (
    Comparisons,
    compare_pair,
    compare_study,
    summarize,
    with_looks,
)
from bertlab_studies.report.steps import step_tables
from bertlab_studies.report.tuning_report import tuning_tables
from bertlab_studies.report.variance_shares import variance_tables
from bertlab_studies.report.variant_tables import mean_rows, runs_of, settings_of
from bertlab_studies.study_scores import Measure, StudyScores

if TYPE_CHECKING:
    import pandas

HTML = html_templates("bertlab_studies.report")


@dataclass(frozen=True)
class Report:
    """Tables and sentences on one study, or on several joined.

    Attributes:
        studies: in order; with more than one, tables have a column for them.
        scores: variants by measures: ``81.2 ± 0.4``, with ``(n=3)`` where other seeds have no
            value, `SHOWN` where it differs from the baseline and `DEGENERATE` where a run is.
        legend: explains what marks there are.
        differences: to the baseline, in the primary measures.
        findings: sentences, the most important first.
        warnings: on what makes the figures less than they seem.
        comparisons: of each study.
        sections: that plugins add.
        files: that it was written to.
    """

    studies: tuple[StudyScores, ...]
    scores: Grid
    legend: str
    differences: Grid
    findings: tuple[str, ...]
    warnings: tuple[str, ...]
    comparisons: tuple[Comparisons, ...]
    sections: tuple[ReportSection, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def title(self) -> str:
        """The names of the studies."""
        return ", ".join(study.name for study in self.studies)

    @property
    def differences_legend(self) -> str:
        """What the columns of the differences mean, and their marks."""
        marked = any(LEARNED in cell for row in self.differences.rows for cell in row)
        return LEGEND + OF_LEARNED * marked

    def settings_of(self, study: StudyScores) -> Grid:
        """Return the settings and costs of a study's variants."""
        return settings_of(study)

    def runs_of(self, study: StudyScores) -> Grid:
        """Return what each run of a study reached."""
        return runs_of(study)

    def grid_of(self, section: ReportSection) -> Grid:
        """Return the table of a section that a plugin adds."""
        return Grid(tuple((heading,) for heading in section.headings), section.rows)

    def tables_of(self, study: StudyScores) -> list[TitledGrid]:
        """Return what is known of a study beside its comparisons with the baseline.

        That are the settings that were chosen by tuning, what each step adds to the variant that it
        builds on, the effects of its axes, one figure over all tasks, the shares of variance, what
        each measure can see, and scores by group as heat maps show them.
        """
        return self._tables[id(study)]

    @cached_property
    def _tables(self) -> dict[int, list[TitledGrid]]:
        """Made once for all forms of the report: they draw thousands of bootstrap samples."""
        return {
            id(study): [
                *tuning_tables(study),
                *step_tables(study),
                *axis_tables(study),
                *over_tasks_tables(study),
                *variance_tables(study),
                *resolution_tables(study),
                *crossed_tables(study),
                *group_tables(study),
            ]
            for study in self.studies
        }

    def pair(self, one: str, other: str) -> dict[str, Comparison]:
        """Compare any two variants of a study: ``other`` − ``one``, in each primary measure.

        Nothing is corrected for many comparisons: a pair that is picked out of many, because it
        looks different, looks more certain than it is.

        Args:
            one: a variant, in the place of the baseline.
            other: another of the same study.

        Returns:
            By name of the measure.

        Raises:
            StudyError: if no study has both.
        """
        for study in self.studies:
            if one != other and {one, other} <= study.variants.keys():
                return compare_pair(study, one, other)
        known = [name for study in self.studies for name in study.variants]
        wrong = next((each for each in (one, other) if each not in known), other)
        raise StudyError(
            f"report {self.title}: found {wrong!r}{nearest(wrong, known)}, expected two variants "
            f"of one study (there are: {', '.join(known)})"
        )

    def comparisons_of_pairs(self) -> dict[tuple[str, str], dict[str, Comparison]]:
        """Return :meth:`pair` of all pairs in each study, by ``(one, other)``, not corrected."""
        return {
            (one, other): self.pair(one, other)
            for study in self.studies
            for one, other in combinations(study.variants, 2)
        }

    @property
    def sentences(self) -> list[tuple[str, tuple[str, ...]]]:
        """Findings and warnings with their heading, if there are any."""
        both = (("Findings", self.findings), ("Warnings", self.warnings))
        return [(heading, lines) for heading, lines in both if lines]

    def records(self) -> list[dict[str, Any]]:
        """Return a row for each study, variant and measure: its figures, as ``pandas`` takes them.

        ``mean`` and ``deviation`` are over the ``n`` seeds with a value; ``difference``, its
        interval ``low`` … ``high``, ``p`` (after Holm), ``p_equivalent`` (where there is a margin)
        and ``significant`` are those of the comparison with the baseline. All are in the measure's
        own units, shares in 0 … 1. Where runs failed, ``mean`` is of all runs, and the comparison
        of those that learned.
        """
        return [
            _record(study, compared, variant, measure)
            for study, compared in zip(self.studies, self.comparisons, strict=True)
            for variant in study.variants
            for measure in study.measures
        ]

    def frame(self) -> "pandas.DataFrame":
        """Return :meth:`records` as a table of pandas, which has to be installed."""
        import pandas  # noqa: PLC0415  not needed for anything else

        return pandas.DataFrame(self.records())

    def __str__(self) -> str:
        """Return the findings and warnings, a line each."""
        return "\n".join(line for _, lines in self.sentences for line in lines)

    def _repr_html_(self) -> str:
        return HTML.get_template("summary.html").render(report=self)


def report_of(*studies: StudyScores) -> Report:
    """Compare variants with their baseline, and put what was found in tables and words.

    With several studies, variants are compared with the baseline of their own study only: nothing
    says that the runs of two studies pair, even where the numbers of their seeds are the same.

    Raises:
        DataError: predictions of a variant and of its baseline are of different rows.
    """
    comparisons = tuple(with_looks(compare_study(study), study.looks) for study in studies)
    columns = columns_of(*studies)
    both = list(zip(studies, comparisons, strict=True))
    joined = len(studies) > 1
    study_heading = (("study",),) if joined else ()
    rows = [(study.name, row) for study, found in both for row in mean_rows(study, found, columns)]
    changes = [(study.name, row) for study, found in both for row in difference_rows(study, found)]
    said = [(study.name, line) for study, found in both for line in _findings(study, found)]
    warned = [
        (study.name, line)
        for study, found in both
        for line in (
            *study.remarks,
            *seed_warnings(study),
            *findings.warnings(study),
            *row_warnings(study),
            *conditions(study, found),
        )
    ]
    return Report(
        studies=studies,
        scores=Grid(
            (*study_heading, ("variant",), *(column.heading for column in columns)),
            tuple((name, *row) if joined else row for name, row in rows),
            figures=len(columns),
        ),
        legend=" ".join(_legend(studies, columns, [row for _, row in rows], comparisons)),
        differences=Grid(
            (*study_heading, *DIFFERENCE),
            tuple((name, *row) if joined else row for name, row in changes),
            figures=len(DIFFERENCE) - 2,
        ),
        findings=tuple(f"{name}: {line}" if joined else line for name, line in said),
        warnings=tuple(f"{name}: {line}" if joined else line for name, line in warned),
        comparisons=comparisons,
        sections=tuple(
            section
            for study in studies
            for found in hook_results("bertlab_report_sections", scores=study)
            for section in found
        ),
    )


def _record(
    study: StudyScores, compared: Comparisons, variant: str, measure: Measure
) -> dict[str, Any]:
    """Return the figures of a variant in a measure."""
    found = summarize(study.cell(variant, measure).values.values())
    one = compared.get((variant, measure.name))  # None for the baseline
    against = None if one is None else one.decided
    return {
        "study": study.name,
        "variant": variant,
        "measure": measure.name,
        "mean": found.mean,
        "deviation": found.deviation,
        "n": found.n,
        "difference": None if against is None else against.difference,
        "low": None if against is None else against.low,
        "high": None if against is None else against.high,
        "p": None if against is None else against.p_adjusted,
        "p_equivalent": None if against is None else against.p_equivalent,
        "significant": None if one is None else one.significant,
    }


def _legend(
    studies: Sequence[StudyScores],
    columns: Sequence[Column],
    rows: Sequence[tuple[str, ...]],
    comparisons: Sequence[Comparisons],
) -> Iterable[str]:
    counts = sorted({len(study.seeds) for study in studies})
    cells = [cell for _, *cells in rows for cell in cells]
    if counts == [1]:
        yield "Values of one seed."
    else:
        seeds = " or ".join(map(str, counts))
        crossed = " (crossed: no independent ones)" * any(each.is_crossed for each in studies)
        partial = "; n where fewer have a value" if any("(n=" in cell for cell in cells) else ""
        yield f"Mean ± standard deviation over {seeds} seeds{crossed}{partial}."
    if any(study.finetune_seeds for study in studies):
        yield "Seeds are of pre-training; of fine-tunings, a seed's value is their mean."
    several = any(one.family > 1 for found in comparisons for one in found.values())
    holm = ", after Holm" * several
    meanings = {
        SHOWN: f"differs from the baseline (5 %, over {_drawn(comparisons)}{holm}).",
        LEARNED: "in the runs that learned; others failed, and are in the mean.",
        DEGENERATE: "includes a degenerate run.",
    }
    for mark, meaning in meanings.items():
        if any(mark in cell for cell in cells):
            yield f"{mark} {meaning}"
    if any(variant.is_mixed for study in studies for variant in study.variants.values()):
        yield f"{MIXED} its runs are not of the same data (see the warnings)."
    if any(cell.startswith(NOTHING) for cell in cells):
        yield f"{NOTHING} no value."
    if any(not column.measure.higher_is_better for column in columns):
        yield f"{LOWER} lower is better."
    described = [column.measure.name for column in columns if not column.measure.is_primary]
    if described:
        reasons = dict.fromkeys(study.why_described for study in studies if study.why_described)
        why = f" ({'; '.join(reasons)})" if reasons else ""
        yield f"Described, not tested: {', '.join(described)}{why}."
    if len(studies) > 1:
        yield "Each study is compared with its own baseline; nothing is tested across studies."


def _drawn(comparisons: Sequence[Comparisons]) -> str:
    """Return what stars are over: seeds, and what rows or clusters are in the tests."""
    tested = [one.decided for found in comparisons for one in found.values() if one.family]
    kinds = dict.fromkeys(units(one.cluster or "row") for one in tested if one.rows)
    if not kinds:
        return "seeds"
    where = "" if all(one.rows for one in tested) else ", where they have scores,"
    return f"seeds and{where} {' and '.join(kinds)}"


def _findings(scores: StudyScores, compared: Comparisons) -> Iterable[str]:
    yield findings.conclude(scores, compared)
    measures = {measure.name: measure for measure in scores.measures}
    for (variant, name), found in compared.items():
        measure = measures[name]
        if measure.is_primary:
            yield f"{variant}, {name}: {findings.describe(found, measure)}."
            if found.decided.rows is not None:
                yield f"{variant}, {name}: {findings.describe_rows(found.decided, measure)}."
            if found.failures is not None:
                failures = findings.describe_failures(found, measure, scores.baseline)
                yield f"{variant}, {name}: {failures}."
    yield from control_findings(scores, compared)
    yield from findings.describe_earlier(scores, compared)
    pairing = findings.describe_pairing(scores, compared)
    if pairing is not None:
        yield pairing
