"""Scores of runs that bertlab did not make, read from a table for the report of a study.

One row a score (long: ``variant, seed, measure, score``), or a column for each measure (wide:
``variant, seed, mnli accuracy, sst2 accuracy``). With a column ``row`` a long table has a score for
each row of the test set, whose mean is the run's. ``values.csv`` of a report is such a table.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bertlab import nearest
from bertlab.api import ConfigError, DataError, RawExamples
from bertlab.extend import (
    RowReading,
    choose_seed,
    ending_format,
    manifest,
    open_rows,
    without_secrets,
)
from bertlab_evaluations.clusters import Clusters, clusters_of
from bertlab_studies.errors import StudyError
from bertlab_studies.report.repeats import RunResult, add_results
from bertlab_studies.study_scores import LARGEST, Cell, Measure, StudyScores, VariantScores

_ROLES = ("variant", "seed", "finetune_seed", "measure", "score", "row", "cluster", "degenerate")
_ALSO = {"value": "score"}  # as values.csv calls it
_NOT_READ = ("study", "failed")  # of values.csv, whose other columns tell them
_FORMULA = ("'=", "'+", "'-", "'@")  # as our CSV files write names that look like formulas
# ends of names that are shares: a table of scores declares none
_SHARES = ("accuracy", "f1", "exact_match", "precision", "recall")
_LOWER = ("loss", "perplexity", "error", "nll")  # ends of names whose lower end is better
_DIGITS = 12  # hexadecimal, of the hash that the report shows

Key = tuple[str, str, str, str]  # variant, measure, seed, fine-tuning seed, as the table has them


@dataclass
class _Run:
    """The scores of one run in one measure, as they are read.

    Attributes:
        where: its first row, for messages.
        scores: one, or by row of the test set where the table has these.
        clusters: of these rows.
        degenerate: what the table says is wrong with it.
    """

    where: str
    scores: dict[str, float] = field(default_factory=dict)
    clusters: dict[str, str] = field(default_factory=dict)
    degenerate: str = ""


def import_scores(
    source: str,
    *,
    baseline: str | None = None,
    decide: Sequence[str] = (),
    lower: Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    delimiter: str | None = None,
) -> StudyScores:
    """Read a table of scores; what it does not tell is among the remarks.

    Args:
        source: a file: CSV, TSV, JSON lines, JSON or Parquet, packed or not.
        baseline: the variant that the others are compared with; the first if not given.
        decide: measures that variants are compared by; all if none is given.
        lower: measures whose lower end is better, beside those called loss, perplexity or error.
        columns: the table's own names of ``variant``, ``seed``, ``finetune_seed``, ``measure``,
            ``score``, ``row``, ``cluster``.
        delimiter: between cells; found out if not given.

    Raises:
        DataError: the file cannot be read, a cell is wrong, or a score is there twice; names file,
            row and column.
        StudyError: an option names what the table has not.
    """
    names = _column_names(columns or {})
    form = ending_format(source) or "csv"
    if form not in ("csv", "tsv", "jsonl", "json", "parquet", "arrow"):
        form = "csv"
    reading = RowReading(delimiter=delimiter, keys={"delimiter": "--delimiter"})
    raw = open_rows(source, form, lambda _: True, reading, names=list(names))
    roles = _roles(raw, names)
    measured = [] if "measure" in roles.values() or "score" in roles.values() else _wide(raw, roles)
    runs = _Table(raw, roles, measured).runs()
    study = _study(Path(source).name.split(".")[0] or "scores", runs, baseline, decide, lower)
    study.remarks += _unknown(raw, roles, measured, study)
    shown, file = without_secrets(source), Path(source)
    if file.is_file():  # a URL or a pipe is read once
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        shown = f"{source}, SHA-256 {digest[:_DIGITS]}"
    command = f"bertlab study import {without_secrets(source)}"
    study.manifest = {"command": command, "scores": shown, **manifest({})}
    return study


def _column_names(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the part that each column's name plays, by the name."""
    for role in columns:
        if role not in _ROLES:
            raise StudyError(
                f"--columns: no column is called {role!r}{nearest(role, _ROLES)} "
                f"(there are: {', '.join(_ROLES)})"
            )
    for name in columns.values():
        if len(same := [role for role in columns if columns[role] == name]) > 1:
            raise StudyError(f"--columns: {' and '.join(same)}: found {name!r} for both")
    own = {role: role for role in _ROLES if role not in columns}
    also = {name: role for name, role in _ALSO.items() if role not in columns}
    return own | also | {str(name): role for role, name in columns.items()}


def _roles(raw: RawExamples, names: Mapping[str, str]) -> dict[str, str]:
    """Return the part that each of the table's own columns plays, by its name."""
    found = {name: names[name] for name in raw.columns if name in names}
    if "variant" not in found.values():
        wanted = next(name for name, role in names.items() if role == "variant")
        raise DataError(
            f"{raw.name}: has no column {wanted!r}{nearest(wanted, raw.columns)} (it has: "
            f"{', '.join(raw.columns)}); --columns '{{variant: NAME}}' says which column it is"
        )
    for role in found.values():
        same = [name for name, each in found.items() if each == role]
        if len(same) > 1:
            raise DataError(f"{raw.name}: has columns {' and '.join(same)}, expected one of them")
    if "measure" in found.values() and "score" not in found.values():
        raise DataError(f"{raw.name}: has a column of measures, but none called score or value")
    if "row" in found.values() and "score" not in found.values():
        raise DataError(f"{raw.name}: has a column of rows, but none called score or value")
    return found


def _wide(raw: RawExamples, roles: Mapping[str, str]) -> list[str]:
    """Return the columns that are measures, of a table that has a column for each."""
    found = [name for name in raw.columns if name not in roles and name not in _NOT_READ]
    if not found:
        raise DataError(f"{raw.name}: has no column of scores: score, or one for each measure")
    return found


class _Table:
    """A table of scores, read row by row.

    Args:
        raw: its rows.
        roles: the part that each of its columns plays, by name.
        measured: columns that are measures, of a wide table.
    """

    def __init__(self, raw: RawExamples, roles: Mapping[str, str], measured: Sequence[str]) -> None:
        self.raw, self.measured = raw, measured
        self.column = {role: name for name, role in roles.items()}
        self._counts: Counter[tuple[str, str]] = Counter()

    def runs(self) -> dict[Key, _Run]:
        """Return the runs, in the order of the table; of cells that are empty, without scores."""
        runs: dict[Key, _Run] = {}
        studies: dict[str, str] = {}
        for where, values in self.raw.rows:
            cell = {role: _text(values.get(name)) for role, name in self.column.items()}
            for role in ("variant", "seed", "measure", "row"):
                if role in cell and not cell[role]:
                    raise DataError(f"{where}: {self.column[role]}: is empty, expected a {role}")
            first = studies.setdefault(_text(values.get("study")), where)
            if len(studies) > 1:
                raise DataError(f"{where}: study: is not that of {first}; import one study a file")
            for measure, column in self._measures(cell):
                seed = cell.get("seed") or self._next(cell["variant"], measure)
                key = (cell["variant"], measure, seed, cell.get("finetune_seed", ""))
                run = runs.setdefault(key, _Run(where))
                self._add(run, key, cell, where, _number(values.get(column), f"{where}: {column}"))
        if not any(run.scores for run in runs.values()):
            raise DataError(f"{self.raw.name}: holds no score")
        return runs

    def _measures(self, cell: Mapping[str, str]) -> list[tuple[str, str]]:
        """Return the measures of a row, each with the column of its score."""
        if self.measured:
            return [(name, name) for name in self.measured]
        return [(cell.get("measure", "score"), self.column["score"])]

    def _next(self, variant: str, measure: str) -> str:
        """Return the number of a run that has no seed, in the order of the rows."""
        self._counts[variant, measure] += 1
        return str(self._counts[variant, measure])

    def _add(
        self, run: _Run, key: Key, cell: Mapping[str, str], where: str, score: float | None
    ) -> None:
        row = cell.get("row", "")
        if row in run.scores or (run.where != where and "row" not in cell):
            variant, measure, seed, finetune = key
            of = f", fine-tuning {finetune}" * bool(finetune) + f", row {row}" * bool(row)
            raise DataError(
                f"{where}: the score of {variant}, {measure}, seed {seed}{of} is there twice "
                f"(first in {run.where})"
            )
        run.degenerate = cell.get("degenerate") or run.degenerate  # of rows, one may say so
        if score is not None:
            run.scores[row] = score
            run.clusters[row] = cell.get("cluster", "")


def _text(given: object) -> str:
    """Return what a cell says, without what a spreadsheet needs in front of it."""
    if isinstance(given, float) and given.is_integer():
        given = int(given)  # seeds, as Parquet and JSON may hold them
    text = "" if given is None else str(given).strip()
    return text[1:] if text.startswith(_FORMULA) else text


def _number(given: object, place: str) -> float | None:
    """Return a score; None of an empty cell, NaN of a run that has none."""
    text = "" if given is None else str(given).strip()
    if not text:
        return None
    try:
        if isinstance(given, bool):
            raise ValueError
        number = float(text)
        if LARGEST < abs(number) < math.inf:
            raise DataError(f"{place}: found {text[:80]}, expected a number below {LARGEST:g}")
        return number
    except ValueError:
        raise DataError(f"{place}: found {text[:80]!r}, expected a number, or nothing") from None


def _study(
    name: str,
    runs: Mapping[Key, _Run],
    baseline: str | None,
    decide: Sequence[str],
    lower: Sequence[str],
) -> StudyScores:
    variants = list(dict.fromkeys(variant for variant, _, _, _ in runs))
    measures = list(dict.fromkeys(measure for _, measure, _, _ in runs))
    if baseline is not None and baseline not in variants:
        raise StudyError(
            f"--baseline: found {baseline!r}{nearest(baseline, variants)} (there are: "
            f"{', '.join(variants)})"
        )
    for option, given in (("--decide", decide), ("--lower", lower)):
        for each in given:
            if each not in measures:
                raise StudyError(
                    f"{option}: found {each!r}{nearest(each, measures)} (there are: "
                    f"{', '.join(measures)})"
                )
    numbers = _numbers(seed for _, _, seed, _ in runs)
    repeats = _numbers(each for _, _, _, each in runs if each)
    by_name = {
        each: _measure(name, each, runs, not decide or each in decide, lower) for each in measures
    }
    study = StudyScores(
        name=name,
        baseline=baseline or variants[0],
        seeds=sorted(set(numbers.values())),
        measures=sorted(by_name.values(), key=lambda each: not each.is_primary),
        variants={each: VariantScores() for each in variants},
        finetune_seeds=sorted(set(repeats.values())),
        why_described=f"{' and '.join(decide)} decide{'s' * (len(decide) == 1)}" if decide else "",
    )
    rows = {each: _rows(runs, each) for each in measures}
    found: dict[tuple[str, str, int], dict[int | None, RunResult]] = {}
    for key, run in runs.items():
        variant, measure, seed, finetune = key
        if run.scores:
            of_seed = found.setdefault((variant, measure, numbers[seed]), {})
            of_seed[repeats.get(finetune)] = _result(run, rows[measure], f"{variant}, {measure}")
    for (variant, measure, number), of_seed in found.items():
        cells = study.variants[variant].cells
        cell = cells.setdefault(by_name[measure].name, Cell())
        add_results(cell, number, of_seed, f"{variant}, {measure}")
        cell.clusters = _clusters(runs, measure, rows[measure])
    return study


def _numbers(names: Iterable[str]) -> dict[str, int]:
    """Return the number of each seed: its own, or if some are no numbers, in their order."""
    named = list(dict.fromkeys(names))
    try:
        own = {name: choose_seed(int(name)) for name in named}
        if len(set(own.values())) == len(named):  # not 1 and 01
            return own
    except (ValueError, ConfigError):
        pass
    return {name: number for number, name in enumerate(named, 1)}


def _is_share(metric: str) -> bool:
    """Whether a metric is from 0 to 1 by its name: ``accuracy``, ``span_f1``, ``f1/PER``."""
    return metric.endswith(_SHARES) or "/f1/" in f"/{metric}"


def _measure(
    study: str, name: str, runs: Mapping[Key, _Run], decides: bool, lower: Sequence[str]
) -> Measure:
    """Return a measure by its name: ``task metric``, or one of both."""
    task, _, metric = name.rpartition(" ")
    is_known = _is_share(metric) or metric.lower().endswith(_LOWER)
    if not task:
        task, metric = (study, name) if is_known else (name, "score")
    scores = [x for (_, own, _, _), run in runs.items() if own == name for x in run.scores.values()]
    share = _is_share(metric) and all(not np.isfinite(x) or 0 <= x <= 1 for x in scores)
    higher = name not in lower and not metric.lower().endswith(_LOWER)
    return Measure(task, metric, higher, share, decides)


def _rows(runs: Mapping[Key, _Run], measure: str) -> list[str]:
    """Return the rows of the test set that a measure has scores of, in the table's order."""
    return list(
        dict.fromkeys(
            row for (_, own, _, _), run in runs.items() if own == measure for row in run.scores
        )
    )


def _result(run: _Run, rows: Sequence[str], what: str) -> RunResult:
    """Return what a run reached; of scores of rows, their mean."""
    wrong = run.degenerate or None
    if list(rows) == [""]:
        return RunResult(run.scores[""], wrong)
    missing = [row for row in rows if row not in run.scores]
    if missing:
        raise DataError(
            f"{run.where}: {what}: the run has no score of row {missing[0]}, which others have; "
            "expected the same rows for all"
        )
    scores = np.array([run.scores[row] for row in rows], np.float64)
    return RunResult(float(scores.mean()), wrong, scores)


def _clusters(runs: Mapping[Key, _Run], measure: str, rows: Sequence[str]) -> Clusters | None:
    """Return the clusters of a measure's rows, which are the same in all runs."""
    own = [run for (_, name, _, _), run in runs.items() if name == measure and run.scores]
    if list(rows) == [""] or not own:
        return None
    known = {row: (own[0].clusters[row], own[0].where) for row in rows}
    for run in own[1:]:
        for row in rows:
            if run.clusters[row] != known[row][0]:
                raise DataError(
                    f"{run.where}: row {row} is in the cluster {run.clusters[row]!r} here, and in "
                    f"{known[row][0]!r} in the run of {known[row][1]}; expected the same"
                )
    return clusters_of([f"cluster:{each}" if each else "" for each, _ in known.values()])


def _unknown(
    raw: RawExamples, roles: Mapping[str, str], measured: Sequence[str], study: StudyScores
) -> list[str]:
    """Return a line for each thing that a study of bertlab's own knows, and the table does not."""
    lines = [
        f"imported from {raw.name}: not known are what runs cost, whether they share data and "
        "versions, and what was planned before there were scores"
    ]
    if "row" not in roles.values():
        lines.append(
            "there are no scores of rows: intervals and tests are over seeds, and say nothing of "
            "other test rows"
        )
    if "seed" not in roles.values():
        lines.append(
            "there is no column of seeds: runs have numbers in the order of their rows, and those "
            "of one number are taken for pairs only where variants move together"
        )
    assumed = [
        each.name
        for each in study.measures
        if each.higher_is_better and each.is_primary and not _is_share(each.metric)
    ]
    if assumed:
        lines.append(f"higher is taken to be better of {', '.join(assumed)} (--lower says else)")
    others = [each for each in raw.columns if each not in (*roles, *measured, *_NOT_READ)]
    if others:
        lines.append(f"columns that were not read: {', '.join(others)}")
    return lines
