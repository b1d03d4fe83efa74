"""Evaluations with one bug each. ``expects``: the check that finds it, and words of its message."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bertlab.api import EvaluatedModel, EvaluationResult, ScoreGrid
from bertlab.api.examples import Example
from broken_others import Expects
from good_plugins import GoodEvaluation


class DropsRows(GoodEvaluation):
    """Leaves rows out."""

    expects: Expects = ("scores_every_row", "scores has 11 entries for 12 rows")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        result = super().evaluate(model, rows)
        return replace(result, scores=result.scores[1:])


class AnotherMean(GoodEvaluation):
    """Reports another figure than the mean."""

    expects: Expects = ("monitor_is_the_mean", "the mean of the scores")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        result = super().evaluate(model, rows)
        return replace(result, metrics={"accuracy": result.metrics["accuracy"] / 2})


class NoMonitor(GoodEvaluation):
    """Declares a metric that it does not have."""

    expects: Expects = ("monitor_is_the_mean", "monitor is 'precision'")
    monitor = ("precision", "max")


class ArraysInDetails(GoodEvaluation):
    """Returns details that are no JSON."""

    expects: Expects = ("result_can_be_written", "cannot be written")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        found: list[Any] = [np.float32(1)] * len(rows)
        return replace(super().evaluate(model, rows), details={"length": found})


class CountsInPercent(GoodEvaluation):
    """Gives a share in percent."""

    expects: Expects = ("shares_are_from_0_to_1", "and declared in shares, accuracy")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        result = super().evaluate(model, rows)
        scores = 100 + result.scores
        return replace(result, scores=scores, metrics={"accuracy": float(np.nanmean(scores))})


class InfiniteScore(GoodEvaluation):
    """Takes the logarithm of a share that can be 0."""

    expects: Expects = ("figures_are_finite", "is -inf")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        result = super().evaluate(model, rows)
        with np.errstate(divide="ignore"):
            scores = np.log(result.scores * (model.tokenizer.vocab_size < 0))
        return replace(result, scores=scores, metrics={"accuracy": float(scores.mean())})


class NotANumber(GoodEvaluation):
    """Reports a correlation that there is not."""

    expects: Expects = ("figures_are_finite", "spearman is nan")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        result = super().evaluate(model, rows)
        return replace(result, metrics=dict(result.metrics) | {"spearman": float("nan")})


class SeedsNumPy(GoodEvaluation):
    """Repeats itself by seeding what everybody draws from."""

    expects: Expects = ("leaves_random_numbers_alone", "numpy.random")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        np.random.seed(0)  # noqa: NPY002
        return super().evaluate(model, rows)


class Draws(GoodEvaluation):
    """Adds noise."""

    expects: Expects = ("evaluation_repeats", "gives other scores")

    def logits(self, model: EvaluatedModel, states: torch.Tensor) -> torch.Tensor:
        found = super().logits(model, states)
        return found + 10 * torch.rand_like(found)


class CountsRows(GoodEvaluation):
    """Scores by place."""

    expects: Expects = ("rows_may_come_in_any_order", "reverse order")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        scores = np.arange(len(rows), dtype=np.float64) / len(rows)
        long = [len(self.ids(model, row)) > model.max_seq_length for row in rows]
        scores[long] = np.nan
        result = super().evaluate(model, rows)
        return replace(result, scores=scores, metrics={"accuracy": float(np.nanmean(scores))})


class ChangesWeights(GoodEvaluation):
    """Trains a little."""

    expects: Expects = ("leaves_the_model_alone", "evaluate() changes token_embedding.weight")
    times = itertools.count()

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        result = super().evaluate(model, rows)
        model.encoder.token_embedding.weight += 1e-9 + torch.finfo(torch.float32).eps
        return result


class Freezes(GoodEvaluation):
    """Switches gradients off and leaves them so."""

    expects: Expects = ("leaves_the_model_alone", "changes requires_grad")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        model.encoder.requires_grad_(False)
        return super().evaluate(model, rows)


class StartsTraining(GoodEvaluation):
    """Leaves the model in training mode."""

    expects: Expects = ("leaves_the_model_alone", "in training mode")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        result = super().evaluate(model, rows)
        model.tasks["mlm"].train()
        return result


class NamesTooFew(GoodEvaluation):
    """Has a grid with more values than names."""

    expects: Expects = ("result_can_be_written", "values are (2, 1) for 1 rows and 1 columns")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        grids = [ScoreGrid("all", ["a"], ["b"], np.zeros((2, 1)))]
        return replace(super().evaluate(model, rows), grids=grids)


class ChangesRows(GoodEvaluation):
    """Cleans its rows in place."""

    expects: Expects = ("leaves_the_rows_alone", "changes its rows")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        for row in rows:
            row.values["text"] = row.values["text"].strip() + " "  # type: ignore[index]
        return super().evaluate(model, rows)


class NeedsTopic(GoodEvaluation):
    """Reads a column that it says it can do without."""

    expects: Expects = ("optional_columns_may_be_missing", "KeyError: 'topic'")

    def score(self, model: EvaluatedModel, row: Example) -> float:
        assert row.values["topic"]
        return super().score(model, row)


class NeedsMaskedLM(GoodEvaluation):
    """Takes any model for a masked language model."""

    expects: Expects = ("refuses_other_models_in_words", "raises KeyError: 'mlm'")

    def score(self, model: EvaluatedModel, row: Example) -> float:
        assert model.tasks["mlm"]
        return super().score(model, row)


class CutsTexts(GoodEvaluation):
    """Cuts long texts without a word."""

    expects: Expects = ("long_texts_are_not_cut", "gets the score")

    def ids(self, model: EvaluatedModel, row: Example) -> list[int]:
        ids = super().ids(model, row)
        return [*ids[: model.max_seq_length - 1], ids[-1]] if len(ids) > 60 else ids


class Prints(GoodEvaluation):
    """Prints."""

    expects: Expects = ("evaluation_prints_nothing", "it prints")

    def score(self, model: EvaluatedModel, row: Example) -> float:
        print(row.where)
        return super().score(model, row)
