"""Checks of evaluations: what they return, and what they leave alone."""

import copy
import json
import math
import random
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from bertlab import CausalLM
from bertlab.api import (
    BertlabError,
    DataError,
    EvaluationError,
    Example,
)
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.checks.metrics import check_shares
from bertlab_conformance.checks.training import refused_output
from bertlab_conformance.comparisons import changed_tensor
from bertlab_conformance.samples import changed
from bertlab_conformance.task_cases import EvaluationCase

if TYPE_CHECKING:
    from bertlab.api import EvaluatedModel, EvaluationResult

_USABLE = ("is_complete", "methods_take_what_they_are_given", "arguments_have_defaults")
_SCORED = ("scores_every_row",)
_LONG = 300  # words: far more than the encoder reads


def _evaluate(
    case: EvaluationCase, model: "EvaluatedModel", rows: list[Example]
) -> "EvaluationResult":
    with torch.no_grad():
        found: EvaluationResult = case.new().evaluate(model, rows)
    return found


def _differ(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    return not np.allclose(one, other, rtol=1e-4, atol=1e-6, equal_nan=True)


@check("evaluation", after=_USABLE)
def scores_every_row(case: EvaluationCase) -> None:
    """``scores``, ``groups`` and ``details`` have an entry for each row."""
    rows = case.rows
    try:
        result = _evaluate(case, case.model(), rows)
    except BertlabError as error:
        given = "the given rows" if case.options.rows else "rows made for the declared columns"
        raise ConformanceFailure(
            f"evaluate() refuses {given}: {error}",
            "let it read them, or give the kit rows that suit it: rows=[{…}, …]",
        ) from error
    scores = result.scores
    if not isinstance(scores, np.ndarray) or scores.dtype != np.float64:
        kind = getattr(scores, "dtype", type(scores).__name__)
        raise ConformanceFailure(f"scores are {kind}", "return a NumPy array of float64")
    lengths = {"scores": len(scores)}
    lengths |= {f"groups[{name!r}]": len(each) for name, each in result.groups.items()}
    lengths |= {f"details[{name!r}]": len(each) for name, each in result.details.items()}
    for name, length in lengths.items():
        if length != len(rows):
            raise ConformanceFailure(
                f"{name} has {length} entries for {len(rows)} rows",
                "keep the place of a row that cannot be scored: its score is NaN",
            )


@check("evaluation", after=_SCORED)
def monitor_is_the_mean(case: EvaluationCase) -> None:
    """``monitor`` names a metric, which is the mean of the scores."""
    metric, _ = case.plugin.monitor
    result = _evaluate(case, case.model(), case.rows)
    if metric not in result.metrics:
        raise ConformanceFailure(
            f"monitor is {metric!r}, the metrics are {', '.join(result.metrics) or 'none'}",
            "declare the metric that decides: monitor = (NAME, 'max')",
        )
    scored = result.scores[~np.isnan(result.scores)]
    mean, value = (scored.mean() if len(scored) else np.nan), result.metrics[metric]
    if _differ(np.array([mean]), np.array([value])):
        raise ConformanceFailure(
            f"{metric} is {value:.6g}, the mean of the scores {mean:.6g}",
            "give each row its share of the metric, so that studies can test it over rows",
        )


@check("evaluation", after=_SCORED)
def figures_are_finite(case: EvaluationCase) -> None:
    """Scores are numbers, or NaN of rows that cannot be scored; metrics are finite."""
    result = _evaluate(case, case.model(), case.rows)
    if np.isinf(result.scores).any():
        number = int(np.flatnonzero(np.isinf(result.scores))[0])
        raise ConformanceFailure(
            f"the score of {case.rows[number].where} is {result.scores[number]}",
            "give a row that cannot be scored NaN, and count it in notes",
        )
    if np.isnan(result.scores).any():
        raise NotApplicable("not all rows are scored, so a metric may have none to count")
    for name, value in result.metrics.items():
        if not math.isfinite(value):
            raise ConformanceFailure(
                f"{name} is {value}, though every row has a score",
                "leave a metric out that these rows do not have, and say so in notes",
            )


@check("evaluation", after=("monitor_is_the_mean", "figures_are_finite"))
def shares_are_from_0_to_1(case: EvaluationCase) -> None:
    """Metrics that the evaluation declares as ``shares`` are from 0 to 1."""
    check_shares(_evaluate(case, case.model(), case.rows).metrics, case.plugin.shares)


@check("evaluation", after=_SCORED)
def result_can_be_written(case: EvaluationCase) -> None:
    """Metrics are numbers, details are JSON, and grids have as many values as names."""
    result = _evaluate(case, case.model(), case.rows)
    try:
        json.dumps([dict(result.metrics), {key: list(v) for key, v in result.details.items()}])
        json.dumps([{key: list(v) for key, v in result.groups.items()}, list(result.notes)])
    except TypeError as error:
        raise ConformanceFailure(
            f"the result cannot be written: {error}",
            "return Python's own numbers and texts: .tolist() of an array, float(value)",
        ) from error
    for grid in result.grids:
        if grid.values.shape != (len(grid.rows), len(grid.columns)):
            raise ConformanceFailure(
                f"grid {grid.title!r}: values are {grid.values.shape} for {len(grid.rows)} rows "
                f"and {len(grid.columns)} columns",
                "name every row and column",
            )


@check("evaluation", after=_SCORED)
def evaluation_repeats(case: EvaluationCase) -> None:
    """The same model and rows give the same scores, whatever was drawn before."""
    model = case.model()
    torch.manual_seed(1)
    one = _evaluate(case, model, case.rows).scores
    torch.manual_seed(2)
    if _differ(one, _evaluate(case, model, case.rows).scores):
        raise ConformanceFailure(
            "the second evaluation of the same model gives other scores",
            "draw from a generator of your own with a fixed seed, or from bertlab.CounterRNG",
        )


@check("evaluation", after=("evaluation_repeats",))
def leaves_random_numbers_alone(case: EvaluationCase) -> None:
    """What others draw from torch, NumPy and ``random`` afterwards is as without it."""
    model = case.model()
    before = _random_states()
    _evaluate(case, model, case.rows)
    for name, state in _random_states().items():
        if state != before[name]:
            raise ConformanceFailure(
                f"evaluate() draws from {name}, or seeds it",
                "use a generator of your own: torch.Generator, numpy.random.default_rng(0) or "
                "bertlab.CounterRNG",
            )


def _random_states() -> dict[str, object]:
    state = np.random.get_state()  # noqa: NPY002  of what plugins may wrongly use
    return {
        "torch's global generator": torch.get_rng_state().tolist(),
        "numpy.random": [np.asarray(each).tolist() for each in state],
        "random": random.getstate(),
    }


@check("evaluation", after=("evaluation_repeats",))
def rows_may_come_in_any_order(case: EvaluationCase) -> None:
    """The rows in reverse get the same scores, in reverse."""
    model, rows = case.model(), case.rows
    forth = _evaluate(case, model, rows).scores
    if _differ(forth, _evaluate(case, model, rows[::-1]).scores[::-1]):
        raise ConformanceFailure(
            "rows in reverse order get other scores",
            "let a score depend on the row, not on its place or on the batch that it is in",
        )


@check("evaluation", after=_SCORED)
def leaves_the_model_alone(case: EvaluationCase) -> None:
    """Weights, gradients' switches and evaluation mode are as before."""
    model = case.model()
    modules = [model.encoder, *model.tasks.values()]
    before = [copy.deepcopy(module.state_dict()) for module in modules]
    switches = [each.requires_grad for module in modules for each in module.parameters()]
    _evaluate(case, model, case.rows)
    if switches != [each.requires_grad for module in modules for each in module.parameters()]:
        raise ConformanceFailure(
            "evaluate() changes requires_grad of the model's parameters",
            "it is called under torch.no_grad() already",
        )
    for module, state in zip(modules, before, strict=True):
        name = changed_tensor(state, module.state_dict())
        if name:
            raise ConformanceFailure(f"evaluate() changes {name}", "work on a copy")
        if any(each.training for each in module.modules()):
            raise ConformanceFailure(
                "evaluate() leaves the model in training mode", "do not call model.encoder.train()"
            )


@check("evaluation", after=_SCORED)
def leaves_the_rows_alone(case: EvaluationCase) -> None:
    """The rows are as before: they are read once and scored many times along a run."""
    rows = case.rows
    before = copy.deepcopy([dict(row.values) for row in rows])
    _evaluate(case, case.model(), rows)
    if before != [dict(row.values) for row in rows]:
        raise ConformanceFailure("evaluate() changes its rows", "copy what you change")


@check("evaluation", after=_SCORED)
def optional_columns_may_be_missing(case: EvaluationCase) -> None:
    """Rows without the columns that are not required are scored too."""
    optional = {column.name for column in case.plugin.columns if not column.required}
    if not optional:
        raise NotApplicable("all columns are required")
    rows = [
        Example({key: v for key, v in row.values.items() if key not in optional}, row.where)
        for row in case.rows
    ]
    try:
        _evaluate(case, case.model(), rows)
    except KeyError as error:
        raise ConformanceFailure(
            f"without {', '.join(sorted(optional))} it raises KeyError: {error}",
            "look whether the row has it, or declare the column required",
        ) from error


@check("evaluation", after=_SCORED)
def refuses_other_models_in_words(case: EvaluationCase) -> None:
    """An encoder without a task, and a left-to-right model, are scored or refused in words."""
    models = {"an encoder alone": case.model(None)}
    if case.options.encoder is None:
        models["a left-to-right model"] = case.model(CausalLM, causal=True)
    for words, model in models.items():
        try:
            _evaluate(case, model, case.rows)
        except EvaluationError:
            continue
        except Exception as error:
            raise ConformanceFailure(
                f"{words} raises {type(error).__name__}: {error}",
                "look at model.tasks and model.encoder first, and raise bertlab.EvaluationError "
                "with what the evaluation needs",
            ) from error


@check("evaluation", after=_SCORED)
def long_texts_are_not_cut(case: EvaluationCase) -> None:
    """A text longer than the encoder reads gets NaN, an error that names the row, or is read whole.

    An evaluation that reads it in parts is one whose score changes with the end of the text.
    """
    columns = [each for each in case.plugin.columns if each.kind == "text" and each.required]
    if not columns:
        raise NotApplicable("it reads no column of texts")
    rows = case.rows
    text = case.language.text(_LONG, 1)
    rows[1] = changed(rows[1], columns[0], text)
    try:
        result = _evaluate(case, case.model(), rows)
    except DataError as error:
        if rows[1].where not in str(error):
            raise ConformanceFailure(
                f"the error does not name the row: {error}", "begin it with row.where"
            ) from error
        return
    except Exception as error:
        raise ConformanceFailure(
            f"a text of {_LONG} words raises {type(error).__name__}: {error}",
            "compare with model.max_seq_length; the score of such a row is NaN, and a note says "
            "how many there are",
        ) from error
    if np.isnan(result.scores[1]):
        honest = bool(result.notes)
    else:
        words = text.split()
        words[_LONG // 2 :] = reversed(words[_LONG // 2 :])  # far behind what the encoder reads
        rows[1] = changed(rows[1], columns[0], " ".join(words))
        honest = _evaluate(case, case.model(), rows).scores[1] != result.scores[1]
    if not honest:
        raise ConformanceFailure(
            f"a text of {_LONG} words gets the score {result.scores[1]}, and the notes are "
            f"{list(result.notes)}",
            "give it NaN and count it in notes: a score of a part is no score of the text",
        )


@check("evaluation", after=_SCORED)
def evaluation_prints_nothing(case: EvaluationCase) -> None:
    """Evaluating writes nothing to the terminal; remarks are ``notes``."""
    with refused_output():
        _evaluate(case, case.model(), case.rows)
