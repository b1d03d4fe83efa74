"""A study's figures for other programs: each run's value as CSV, and the whole report as JSON.

JSON is strict: numbers that are not finite are null. The same study gives the same bytes.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, fields
from itertools import product
from typing import Any

from bertlab_pages.spreadsheets import spreadsheet_csv
from bertlab_studies.report.comparison import Comparison
from bertlab_studies.report.failed_runs import failed_runs
from bertlab_studies.report.report import Report
from bertlab_studies.study_scores import StudyScores

SCHEMA = 2  # raised when a key goes or gets another meaning; new keys do not raise it
# of a comparison, in the order of report.json
_COMPARED = (
    *("difference", "error", "freedom", "low", "high", "p", "p_adjusted", "significant"),
    *("detectable", "detectable_range", "effect_size", "paired", "rows", "clusters"),
    *("cluster", "row_share"),
    *("margin", "p_equivalent", "equivalent"),
)


@dataclass(frozen=True)
class RunValue:
    """What one run reached in one measure.

    Attributes:
        variant: of the study.
        measure: name of it.
        seed: of the run, or of the pre-training where seeds are nested.
        finetune_seed: None where seeds are not nested, and of metrics of pre-training.
        value: in the measure's own units, shares in 0 … 1; None if there is none, maybe yet.
        failed: whether the report counts the seed as failed: degenerate, not finite, or in the
            lower of two groups that lie far apart. Fine-tunings of one pre-training fail together.
        degenerate: what is wrong with a run that learned nothing.
    """

    variant: str
    measure: str
    seed: int
    finetune_seed: int | None
    value: float | None
    failed: bool
    degenerate: str


def run_values(study: StudyScores) -> Iterator[RunValue]:
    """Yield the value of each variant, measure, seed and fine-tuning seed, the missing ones too."""
    for measure in study.measures:
        failed = failed_runs(study, measure)
        cells = {variant: study.cell(variant, measure) for variant in study.variants}
        nested = any(cell.repeats for cell in cells.values())
        for (variant, cell), seed in product(cells.items(), study.seeds):
            repeats = cell.repeats.get(seed, {})
            found: Mapping[int | None, float | None] = (
                {finetune: repeats.get(finetune) for finetune in study.finetune_seeds}
                if nested
                else {None: cell.values.get(seed)}
            )
            lost, of_repeats = seed in failed[variant], cell.degenerate_repeats.get(seed, {})
            for finetune, value in found.items():
                # of its own; a cell says of a pre-training what is wrong with any fine-tuning
                own = cell.degenerate.get(seed) if finetune is None else of_repeats.get(finetune)
                why = own or ""
                yield RunValue(variant, measure.name, seed, finetune, value, lost, why)


def values_csv(studies: Sequence[StudyScores]) -> str:
    """Return a line for each of :func:`run_values`; numbers that are not finite as they are."""
    headings = ("study", *(each.name for each in fields(RunValue)))
    rows = ((study.name, *astuple(each)) for study in studies for each in run_values(study))
    return spreadsheet_csv(headings, rows)


def report_json(report: Report) -> str:
    """Return values, comparisons, findings and warnings, by docs/studies.md."""
    content = {
        "schema": SCHEMA,
        "studies": [
            _study(study, compared)
            for study, compared in zip(report.studies, report.comparisons, strict=True)
        ],
        "findings": report.findings,
        "warnings": report.warnings,
    }
    return json.dumps(_strict(content), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _study(study: StudyScores, compared: Mapping[tuple[str, str], Comparison]) -> dict[str, Any]:
    return {
        "name": study.name,
        "analysis_sha256": study.analysis_sha256 or None,
        "looks": study.looks,
        "earlier_noise": {name: asdict(each) for name, each in study.earlier.items()},
        "baseline": study.baseline,
        "seeds": study.seeds,
        "finetune_seeds": study.finetune_seeds,
        "measures": [{"name": each.name, **asdict(each)} for each in study.measures],
        "variants": [
            {
                "name": name,
                "levels": each.levels,
                "tokens": each.tokens,
                "flops": each.flops,
                "is_mixed": each.is_mixed,
                "failures": each.failures,
            }
            for name, each in study.variants.items()
        ],
        "values": [asdict(each) for each in run_values(study)],
        "comparisons": [
            {
                "variant": variant,
                "measure": measure,
                "runs": found.runs,
                **{name: getattr(found, name) for name in _COMPARED},
                "of_learned": found.of_learned,
                "learned": _learned(found),
            }
            for (variant, measure), found in compared.items()
        ],
    }


def _learned(found: Comparison) -> dict[str, Any] | None:
    """Return failures of both sides and the comparison without them; None if no run failed."""
    failures, rest = found.failures, found.without_failed
    if failures is None or rest is None:
        return None
    compared = {name: getattr(rest, name) for name in _COMPARED if name != "significant"}
    rates = {"failed": failures.failed, "p_rates": failures.p_adjusted}
    return {"runs": rest.runs, **compared, **rates}


def _strict(value: object) -> object:
    """Return what JSON can hold: null in place of NaN and infinity, at any depth."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _strict(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(each) for each in value]
    return value
