"""Evaluates a model without training it: rows → evaluation → figures → files."""

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertlab import CheckpointError, PretrainedModel, load
from bertlab.api import DataError, Example, PluginError
from bertlab.extend import (
    MANIFEST_FILE,
    RESULTS_FILE,
    OutputError,
    Results,
    RowReading,
    add_to_json,
    check_nothing_leads_out,
    ending_format,
    explain_failed_write,
    facts_of,
    fingerprint,
    installed,
    is_hub_name,
    is_saved,
    keep_freed_memory,
    machine_facts,
    make_folder,
    manifest,
    model_of,
    read_manifest,
    read_pretrained,
    read_rows,
    say,
    without_secrets,
    write_json,
)
from bertlab_evaluations.contract import EvaluatedModel, EvaluationResult, FloatArray
from bertlab_evaluations.entries import EvaluationEntry
from bertlab_evaluations.evaluation_output import (
    Curve,
    earlier_results,
    print_curve,
    print_evaluation,
    write_curve,
    write_evaluation,
)
from bertlab_evaluations.evaluation_scores import GroupScore, score_groups
from bertlab_evaluations.word_checkpoints import words_checkpoints

# the keys of ``data`` that an evaluation has, as it calls them
_KEYS = {"columns": "columns", "format": "format"}


def read_entry_rows(entry: EvaluationEntry) -> list[Example]:
    """Return the rows that an evaluation asks for; of a folder without split, of all its files.

    Raises:
        ConfigError: its columns are none of the format's.
        DataError: they cannot be read, or a column is missing.
    """
    folder, locations = Path(entry.data).expanduser(), [entry.data]
    if entry.split is None and folder.is_dir() and not is_saved(folder):
        named = entry.format == "auto"  # then a README beside the files is none of them
        locations = [
            str(file)
            for file in sorted(folder.iterdir())
            if file.is_file()
            and not file.name.startswith(".")
            and (not named or ending_format(str(file)) is not None)
        ]
        if not locations:
            raise DataError(f"{entry.data}: a folder without files of rows (.jsonl, .tsv, .csv, …)")
    wanted, split = entry.evaluation.columns, entry.split
    reading = RowReading(cluster=entry.cluster, keys=_KEYS)
    return [
        row
        for location in locations
        for row in read_rows(
            location, split, entry.columns, entry.format, wanted, reading=reading
        ).rows
    ]


def evaluate(
    model: EvaluatedModel, entry: EvaluationEntry, rows: Sequence[Example]
) -> EvaluationResult:
    """Score a model by the rows of an evaluation; nothing is trained.

    Raises:
        DataError: a row cannot be used, or none could be scored.
        EvaluationError: the model has not what is scored.
        PluginError: the result is not as the contract has it.
    """
    # what an evaluation draws must not change what a training run draws after it
    with torch.no_grad(), torch.random.fork_rng():
        result = entry.evaluation.evaluate(model, rows)
    result = replace(result, scores=_scores(result, entry))
    _check(result, entry, len(rows))
    named = [row.cluster for row in rows]
    if any(named) and (entry.cluster is not None or not result.clusters):
        result = replace(result, clusters=named)
    if np.isnan(result.scores).all():
        notes = "; ".join(result.notes)
        raise DataError(f"{entry.data}: none of {len(rows)} rows could be scored: {notes}")
    return result


def _mean(scores: FloatArray) -> float:
    """Return the mean of the rows that were scored; NaN of none."""
    scored = scores[~np.isnan(scores)]
    return float(scored.mean()) if len(scored) else math.nan


def _scores(result: EvaluationResult, entry: EvaluationEntry) -> FloatArray:
    """Return the scores as ``(rows,)`` float64, whatever kind of numbers a plugin gave."""
    try:
        scores = np.asarray(result.scores, np.float64)
    except (TypeError, ValueError):
        scores = np.zeros((0, 0))
    if scores.ndim != 1:
        raise PluginError(
            f"evaluation {entry.plugin!r}: found scores that are {type(result.scores).__name__} of "
            f"shape {np.shape(result.scores)}, expected a number for each row"
        )
    return scores


def _check(result: EvaluationResult, entry: EvaluationEntry, rows: int) -> None:
    """Raise PluginError if a result is not of the form that the contract asks for."""
    metric, _ = entry.evaluation.monitor
    if metric not in result.metrics:
        raise PluginError(
            f"evaluation {entry.plugin!r}: its metrics are {', '.join(result.metrics) or 'none'}, "
            f"expected {metric!r} among them, which it declares as monitor"
        )
    lengths = {"scores": len(result.scores)}
    lengths |= {"clusters": len(result.clusters)} if result.clusters else {}
    lengths |= {f"groups[{name!r}]": len(each) for name, each in result.groups.items()}
    lengths |= {f"details[{name!r}]": len(each) for name, each in result.details.items()}
    for name, length in lengths.items():
        if length != rows:
            raise PluginError(
                f"evaluation {entry.plugin!r}: {name} has {length} entries, expected {rows}, one "
                "for each row"
            )
    value, mean = float(result.metrics[metric]), _mean(result.scores)
    if not np.isclose(value, mean, rtol=1e-3, atol=1e-6, equal_nan=True):
        raise PluginError(
            f"evaluation {entry.plugin!r}: {metric} is {value:.6g}, and the mean of its scores is "
            f"{mean:.6g}; expected the same, as intervals and studies go by the scores"
        )


def declared_shares(entries: Sequence[EvaluationEntry]) -> dict[str, list[str]]:
    """Return the metrics from 0 to 1 by the name of their evaluation."""
    return {entry.name: list(entry.evaluation.shares) for entry in entries}


def named_metrics(name: str, result: EvaluationResult) -> Results:
    """Return the figures of an evaluation under its name: ``blimp/accuracy``."""
    return {f"{name}/{metric}": float(value) for metric, value in result.metrics.items()}


def evaluation_folder(run: Path, step: int) -> Path:
    """Return where evaluations of a run at a step are written."""
    return run / "evaluations" / f"step-{step}"


def evaluate_source(
    source: str,
    entries: Sequence[EvaluationEntry],
    output: str | None,
    command: Sequence[str],
    along: bool = False,
) -> Path:
    """Score an earlier model by several evaluations, print and write what they find.

    Args:
        source: run directory, checkpoint, Hugging Face folder or hub name.
        entries: what is asked for.
        output: folder to write; chosen by ``source`` if None.
        command: what was typed, for the manifest.
        along: score the run's checkpoints after chosen numbers of words as well.

    Returns:
        The folder.

    Raises:
        BertlabError: the model, the rows or an evaluation cannot be used, or files not be written.
    """
    from bertlab_evaluations.evaluation_page import (  # noqa: PLC0415  matplotlib, not for fit
        Evaluated,
        write_pages,
    )

    keep_freed_memory()
    read = read_pretrained(source)
    weights = read.weights_digest()  # before they are let go
    model = model_of(read)
    checkpoints = _words_checkpoints(model) if along else {}
    folder = Path(output).expanduser() if output is not None else _default_folder(model)
    if output is None:  # RUN/evaluations/step-800, in a run that may come from anywhere
        check_nothing_leads_out(folder.parent.parent, name=folder.parent.name)
    in_run = output is None and _run_of(model) is not None
    identity = _identity(model, weights)
    results = _other_results(folder, identity, {each.name for each in entries}, in_run)
    rows = {entry.name: read_entry_rows(entry) for entry in entries}
    with explain_failed_write(f"output: {folder} cannot be written"), _made(folder):
        evaluated = []
        for entry in entries:
            result = evaluate(model.evaluated(), entry, rows[entry.name])
            groups = score_groups(result)
            print_evaluation(entry, result, groups)
            write_evaluation(folder, entry.name, result, groups)
            results |= (found := named_metrics(entry.name, result))
            add_to_json(results=found)
            words_file = folder / f"{entry.name}.words.csv"
            if checkpoints:
                curve = _along(checkpoints, entry, rows[entry.name], {model.global_step: groups})
                print_curve(entry, curve)
                write_curve(words_file, curve)
            else:
                words_file.unlink(missing_ok=True)  # of other rows; the page would draw it
            evaluated.append(Evaluated(entry.name, entry.data, entry.evaluation, result, groups))
        *_, page = write_pages(folder, source, evaluated)
        content = {name: fingerprint(found) for name, found in rows.items()}
        facts = _manifest(model, identity, entries, command, checkpoints, content)
        write_json(folder / MANIFEST_FILE, without_secrets(facts))
        write_json(folder / RESULTS_FILE, results)  # the last: the evaluation is whole
    add_to_json(output=folder)
    say(f"{page}\n{folder}: {RESULTS_FILE}, and the score of each row")
    return folder


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """Make a folder before the work of the block begins; remove it if nothing came of that."""
    made = list(takewhile(lambda each: not each.exists(), (folder, *folder.parents)))
    make_folder(folder)
    try:
        yield
    except BaseException:
        with contextlib.suppress(OSError):  # it has something in it
            for each in made:
                each.rmdir()
        raise


def _words_checkpoints(model: PretrainedModel) -> dict[int, Path]:
    if model.path is None:
        raise CheckpointError(f"{model.source}: found no run, whose words-….ckpt could be scored")
    return words_checkpoints(model.path.parent)


def _along(
    checkpoints: Mapping[int, Path],
    entry: EvaluationEntry,
    rows: Sequence[Example],
    known: Mapping[int | None, Sequence[GroupScore]],
) -> Curve:
    """Score each checkpoint; the groups of a step that is ``known`` are taken from there."""
    curve = {}
    for words, file in checkpoints.items():
        model = load(file)
        groups = known.get(model.global_step)
        if groups is None:
            groups = score_groups(evaluate(model.evaluated(), entry, rows))
        curve[words] = groups
    return curve


def _default_folder(model: PretrainedModel) -> Path:
    run = _run_of(model)
    if run is not None:
        assert model.global_step is not None, "a checkpoint has its step"
        return evaluation_folder(run, model.global_step)
    if model.path is not None:
        return Path("evaluations") / model.path.stem
    # OWNER/NAME, as another may have a model of that name; of a folder its own name
    name = model.source.replace("/", "--") if is_hub_name(model.source) else Path(model.source).name
    return Path("evaluations") / name


def _run_of(model: PretrainedModel) -> Path | None:
    """Return the run of a model; None of a Hugging Face model or a checkpoint on its own."""
    # RUN/checkpoints/last.ckpt -> RUN; downloads/model.ckpt -> None
    is_in_run = model.path is not None and model.path.parent.name == "checkpoints"
    return model.path.parent.parent if model.path is not None and is_in_run else None


def _identity(model: PretrainedModel, weights: str) -> dict[str, Any]:
    """Return what a manifest says of a model, which may be at another path by now."""
    return {
        "model": model.source,
        "step": model.global_step,
        "tokenizer": model.tokenizer.fingerprint,
        "weights": weights,
    }


def _other_results(
    folder: Path, identity: Mapping[str, Any], names: Set[str], in_run: bool
) -> Results:
    """Return the figures that other evaluations of a model have written into a folder.

    Args:
        folder: to be written.
        identity: of the model that is scored.
        names: of the evaluations that it is scored by now.
        in_run: the folder is that of the model's own run and step, whatever the run was called.

    Raises:
        OutputError: they are of another model, or damaged.
    """
    before, now = read_manifest(folder), without_secrets(identity)
    results = {
        name: value
        for name, value in earlier_results(folder).items()
        if name.partition("/")[0] not in names
    }
    if not results or not before:  # a run that scores itself along its way writes no manifest
        return results
    if "weights" in before:
        is_same = before["weights"] == now["weights"]
    else:  # of an earlier bertlab: as far as the path says
        found, source = str(before.get("model")), str(now["model"])
        is_same = in_run or found == source or Path(found).resolve() == Path(source).resolve()
    if is_same and all(before.get(key) == now[key] for key in ("step", "tokenizer")):
        return results
    there, here = (
        f"{each.get('model')} (step {each.get('step')}, tokenizer {str(each.get('tokenizer'))[:8]}"
        f", weights {str(each.get('weights'))[:8]})"
        for each in (before, now)
    )
    raise OutputError(
        f"{folder}: {RESULTS_FILE}: found figures of {there}, expected those of {here}; give "
        "another --output, or remove the folder"
    )


def _manifest(
    model: PretrainedModel,
    identity: Mapping[str, Any],
    entries: Sequence[EvaluationEntry],
    command: Sequence[str],
    checkpoints: Mapping[int, Path],
    rows: Mapping[str, str],
) -> dict[str, Any]:
    plugins = [installed("evaluation")[entry.plugin] for entry in entries]
    facts = {
        **facts_of(plugins),
        "command": ["bertlab", *command],
        **identity,
        "words_checkpoints": list(checkpoints),
        **machine_facts(model.evaluated().device),
        "rows": dict(rows),
        "evaluations": {entry.name: entry.plain() for entry in entries},
        "shares": declared_shares(entries),
    }
    return manifest(facts)
