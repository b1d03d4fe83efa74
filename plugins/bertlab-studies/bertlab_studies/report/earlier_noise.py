"""A record of how much the runs of finished studies vary over seeds, and what a study takes of it.

The record is a file of JSON lines that the user names: one for each measure that decides, and kind
of run, of each study that was recorded. It may come from anywhere, so all of it is checked. A study
takes what others of the same kind have found, once each, and never what its own runs have.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from bertlab.extend import (
    Config,
    explain_failed_write,
    make_folder,
    open_to_append,
    parse_json,
    read_text,
)
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.plan import HASH, Plan
from bertlab_studies.plan.study_file import BASE, StudyConfig
from bertlab_studies.report.failures import without
from bertlab_studies.report.seed_noise import EarlierNoise, seed_noise
from bertlab_studies.report.statistics import known_of
from bertlab_studies.study_scores import Measure, StudyScores

SCHEMA = 1
LARGEST = 2**24  # bytes of a record
MOST_LINES, MOST_RUNS, LONGEST = 10_000, 10_000, 1000  # lines, runs of a line, characters
VARIANCES = 1e-30, 1e30  # others are of no measure, and overflow where they are squared
_SIZES = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads")
_LENGTHS = ("max_tokens", "max_words", "max_steps", "max_epochs", "max_time")


@dataclass(frozen=True)
class Kind:
    """What runs must have in common to be about as noisy, each as text.

    Attributes:
        measure: by which runs are judged: ``mrpc f1``; of a base that is a fine-tuning ``f1``.
        encoder: its name, preset and sizes that the config gives; with a base that starts from a
            model, that model.
        data: of the base run, and of the evaluation.
        length: of both, in steps, tokens, epochs, ….
        seeds: which parts of a run vary, and how many fine-tunings a value is the mean of.
    """

    measure: str
    encoder: str
    data: str
    length: str
    seeds: str

    def __str__(self) -> str:
        return "; ".join(asdict(self).values())


@dataclass(frozen=True)
class Entry:
    """A line of a record: the spread of one kind of run in one study.

    Attributes:
        study: its name.
        runs: hashes of the base runs, as their ids end in.
        kind: of the runs.
        variance: of a run over seeds, pooled over variants, without failed runs.
        freedom: its degrees of freedom.
    """

    study: str
    runs: tuple[str, ...]
    kind: Kind
    variance: float
    freedom: int

    def plain(self) -> dict[str, Any]:
        """Return it as it is written."""
        return {"schema": SCHEMA, **asdict(self), "runs": list(self.runs)}


def kind_of(study: StudyConfig, plan: Plan, variant: str, measure: Measure) -> Kind:
    """Return the kind of a variant's runs in a measure."""
    config = plan.configs[variant, BASE]
    stages, name = [config], measure.name
    if measure.task in [each.name for each in study.evaluations]:
        stages.append(plan.configs.get((variant, measure.task), {}))
    elif measure.task == study.name:
        name = measure.metric
    parts = "+".join(each.name for each in study.factors) or "all"
    nested = len(study.finetune_seeds or ())
    texts = (
        name,
        _encoder(config["model"]),
        ", ".join(filter(None, map(_data, stages))),
        ", ".join(filter(None, map(_length, stages))),
        f"{parts}, {nested} fine-tunings" if nested > 1 else parts,
    )
    return Kind(*(each[:LONGEST] for each in texts))


def kinds_of(
    study: StudyConfig, plan: Plan, measures: Iterable[Measure]
) -> dict[str, dict[str, str] | None]:
    """Return the kind of a study's runs by name of the measure; None if variants have several."""
    found = {}
    for measure in measures:
        kinds = {kind_of(study, plan, each.name, measure) for each in study.variants}
        found[measure.name] = asdict(kinds.pop()) if len(kinds) == 1 else None
    return found


def _encoder(model: Config) -> str:
    if model.get("init_from"):
        return str(model["init_from"])
    given = model.get("encoder") or {}
    sizes = [f"{key} {given[key]}" for key in _SIZES if given.get(key) is not None]
    return " ".join([*(str(given[key]) for key in ("name", "preset") if given.get(key)), *sizes])


def _data(config: Config) -> str:
    data = config.get("data") or {}
    found = data.get("corpus") or data.get("source") or data.get("train") or config.get("data")
    return found if isinstance(found, str) else json.dumps(found, sort_keys=True, default=str)


def _length(config: Config) -> str:
    given = {**(config.get("trainer") or {}), **config}
    lengths = {key: given[key] for key in _LENGTHS if given.get(key) not in (None, -1)}
    return ", ".join(f"{key} {each}" for key, each in lengths.items())


def spread_of(scores: StudyScores, study: StudyConfig, plan: Plan) -> list[Entry]:
    """Return what a study says of the noise of each measure that decides, by kind of run.

    Variances are pooled over the variants of a kind, without failed runs. Where seeds move all
    variants together, these know no more than one of them.
    """
    failed = known_of(scores).failed
    found = []
    for measure in scores.measures:
        if not measure.is_primary:
            continue
        by_kind: dict[Kind, dict[str, Mapping[int, float]]] = {}
        for variant in scores.variants:
            cell = without(scores.cell(variant, measure), failed[measure.name][variant])
            kind = kind_of(study, plan, variant, measure)
            by_kind.setdefault(kind, {})[variant] = cell.values
        for kind, values in by_kind.items():
            noise = seed_noise(values)
            known = {name: len(noise.values[name]) - 1 for name in noise.variances}
            if not sum(known.values()):
                continue
            variance = _pooled(noise.variances.values(), known.values())
            freedom = max(known.values()) if noise.paired else sum(known.values())
            runs = _hashes(plan, ((name, seed) for name in known for seed in noise.values[name]))
            if variance > 0 and runs:
                found.append(Entry(study.name, tuple(runs), kind, variance, freedom))
    return found


def _hashes(plan: Plan, cells: Iterable[tuple[str, int]]) -> list[str]:
    """Return the hashes of base runs, each once; the same in all studies that have the run."""
    found = [plan.cells.get((variant, BASE, seed)) for variant, seed in cells]
    return sorted({run[-HASH:] for run in found if run is not None})


def _pooled(variances: Iterable[float], freedoms: Iterable[float]) -> float:
    return float(np.average(list(variances), weights=list(freedoms)))


def record(path: Path, entries: Sequence[Entry]) -> int:
    """Append what a record does not have yet; return how many lines that are.

    Raises:
        StudyError: if the file is there and no record, or full.
        OutputError: if it cannot be written.
    """
    before = read_record(path) if path.exists() else []
    new = [each for each in entries if each not in before]
    if len(before) + len(new) > MOST_LINES:
        raise StudyError(f"{path}: has {len(before):,} lines, expected at most {MOST_LINES:,}")
    text = "".join(json.dumps(each.plain(), sort_keys=True) + "\n" for each in new)
    if text:
        with explain_failed_write(f"{path}: cannot be written"):
            make_folder(path.parent)
            ends = not before or path.read_bytes().endswith(b"\n")  # as an editor may leave it
            with open_to_append(path) as file:
                file.write((text if ends else f"\n{text}").encode())
    return len(new)


def read_record(path: Path) -> list[Entry]:
    """Return the lines of a record.

    Raises:
        StudyError: if the file is not there, too large, or a line of it is not one of a record.
    """
    expected = "expected a record of `bertlab study report --record FILE`"
    try:
        lines = read_text(path, LARGEST).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8"
        raise StudyError(f"{path}: {reason}; {expected}") from None
    if len(lines) > MOST_LINES:
        raise StudyError(f"{path}: has {len(lines):,} lines, expected at most {MOST_LINES:,}")
    found = []
    for number, line in enumerate(lines, 1):
        try:
            found.append(_entry(parse_json(line)))
        except ValueError as error:
            raise StudyError(f"{path}:{number}: {str(error)[:200]}; {expected}") from None
    return found


def _entry(given: object) -> Entry:
    """Return a line of a record; ValueError if it is none."""
    names = {"schema", *(each.name for each in fields(Entry))}
    if not isinstance(given, dict) or given.keys() != names:
        raise ValueError(f"found no mapping of {', '.join(sorted(names))}")
    if given["schema"] != SCHEMA:
        raise ValueError(f"schema: found {given['schema']!r}, known is {SCHEMA}")
    runs = given["runs"]
    if not isinstance(runs, list) or not 0 < len(runs) <= MOST_RUNS:
        raise ValueError(f"runs: found no list of 1 to {MOST_RUNS:,} hashes")
    hashes = tuple(_text(each, "runs") for each in runs)
    variance, freedom = _noise(given)
    return Entry(_text(given["study"], "study"), hashes, _kind(given["kind"]), variance, freedom)


def _kind(given: object) -> Kind:
    names = [each.name for each in fields(Kind)]
    if not isinstance(given, dict) or given.keys() != {*names}:
        raise ValueError(f"kind: found no mapping of {', '.join(names)}")
    return Kind(*(_text(given[name], f"kind.{name}") for name in names))


def _text(given: object, where: str) -> str:
    if not isinstance(given, str) or len(given) > LONGEST:
        raise ValueError(f"{where}: found no text of at most {LONGEST:,} characters")
    return given


def _noise(given: Mapping[str, object]) -> tuple[float, int]:
    variance, freedom = given["variance"], given["freedom"]
    # type(): to isinstance(), True is an int
    low, high = VARIANCES
    if type(variance) not in (int, float) or not low <= variance <= high:  # type: ignore[operator]
        raise ValueError(f"variance: found no number from {low} to {high}")
    if type(freedom) is not int or not 0 < freedom <= MOST_RUNS:
        raise ValueError(f"freedom: found no whole number from 1 to {MOST_RUNS:,}")
    return float(variance), freedom  # type: ignore[arg-type]


def earlier_noise(
    entries: Sequence[Entry], study: StudyConfig, plan: Plan, measures: Iterable[Measure]
) -> dict[str, dict[str, Any]]:
    """Return what a study takes of a record, as its analysis has it: by name of the measure.

    Of entries that share a run, such as a study and the same with more seeds, the one with the most
    degrees of freedom counts, of equals the last. An entry that shares a run with the study itself
    does not count. Nothing is taken where variants are of several kinds.
    """
    own = _hashes(plan, ((each.name, seed) for each in study.variants for seed in study.seeds))
    found = {}
    for name, kind in kinds_of(study, plan, measures).items():
        same = [] if kind is None else [each for each in entries if asdict(each.kind) == kind]
        taken: list[Entry] = []
        seen = set(own)
        for each in sorted(reversed(same), key=lambda one: -one.freedom):  # of equals the last
            if seen.isdisjoint(each.runs):
                taken.append(each)
                seen.update(each.runs)
        freedoms = [each.freedom for each in taken]
        found[name] = {
            "kind": kind,
            "variance": _pooled((each.variance for each in taken), freedoms) if taken else None,
            "freedom": sum(freedoms),
            "studies": [each.study for each in taken],
        }
    return found


def frozen_noise(frozen: object, file: Path, now: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what an analysis that was written down took of a record; None if it is not the same.

    Args:
        frozen: ``earlier_noise`` of the analysis.
        file: that the study names now.
        now: by name of the measure, the kind of its runs now.
    """
    if not isinstance(frozen, dict) or frozen.get("file") != str(file):
        return None
    measures = frozen.get("measures")
    if not isinstance(measures, dict) or measures.keys() != now.keys():
        return None
    try:
        for name, each in measures.items():
            if each["kind"] != now[name]:
                return None
            if each["variance"] is not None:
                _noise(each)
            if not all(isinstance(one, str) for one in each["studies"]):
                return None
    except (KeyError, TypeError, ValueError):
        return None  # it was edited: the report says so
    return measures


def as_noise(measures: Mapping[str, Mapping[str, Any]]) -> dict[str, EarlierNoise]:
    """Return what a study takes of a record as its tests use it."""
    return {
        name: EarlierNoise(each["variance"], each["freedom"], len(each["studies"]))
        for name, each in measures.items()
        if each["variance"] is not None
    }
