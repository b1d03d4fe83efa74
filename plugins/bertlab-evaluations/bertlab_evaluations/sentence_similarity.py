"""Similarity of sentences by their vectors: does the cosine order pairs as people do?

For STS-B (Cer et al. 2017), SICK (Marelli et al. 2014) and any file of pairs with a score. Nothing
is trained, as in Reimers and Gurevych 2019, table 1.
"""

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor

from bertlab import check_at_least, nearest, text_ids
from bertlab.api import Column, ConfigError, DataError, Example
from bertlab_evaluations.contract import (
    EvaluatedModel,
    Evaluation,
    EvaluationResult,
    FloatArray,
    ScoreGrid,
)
from bertlab_evaluations.layers import Layers, chosen_layers, mean_by_sequence
from bertlab_evaluations.row_influence import spearman_scores
from bertlab_pages.layer_states import LayerStates, layer_states

Pooling = Literal["mean", "cls"]
# a constant vector has cosines of 1 up to rounding; CLS of layer 1 of MiniLM varies by 1e-5
_RESOLUTION = 1e-7


class SentenceSimilarity(Evaluation):
    """Spearman's rank correlation of the cosine of two sentence vectors and a gold score.

    ``spearman`` and ``pearson`` are those of one choice that is made before the scores are seen:
    the last of ``layers`` and the first of ``pooling``, which is the last layer and ``mean`` if
    nothing is set. The grid has all layers and poolings; its best cell is chosen on the very rows
    that it is scored on, and no result.

    The score of a row is its share of the correlation: with ranks x and y (ties get their mean)
    standardised to z, ``z_x z_y - rho / 2 (z_x² + z_y²) + rho``, the influence function of the
    correlation (Devlin et al. 1975) on the ranks as they are. Its mean over rows is exactly rho,
    and a bootstrap over rows has about the spread of the correlation itself.

    Args:
        layers: ``all``, or a list; 0 is the embeddings, -1 the last layer.
        pooling: how the states of tokens make a vector. ``mean``: over all tokens, ``[CLS]`` and
            ``[SEP]`` included, as sentence encoders have it; ``cls``: that of ``[CLS]``, of a
            left-to-right encoder the last token.
        batch_tokens: tokens that are encoded at a time.

    Raises:
        ConfigError: a pooling is unknown or there is none, or ``batch_tokens`` is below 1.
    """

    columns = (
        Column("text_a", aliases=("sentence1", "sentence_A")),
        Column("text_b", aliases=("sentence2", "sentence_B")),
        Column("label", "label", is_truth=True, aliases=("score", "relatedness_score")),
    )
    monitor = ("spearman", "max")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {"pearson": "max"}
    shares = ()

    def __init__(
        self,
        layers: Layers = "all",
        pooling: Sequence[Pooling] = ("mean", "cls"),
        batch_tokens: int = 16384,
    ) -> None:
        if not pooling:
            raise ConfigError("settings.pooling: found none, expected mean, cls or both")
        for each in pooling:
            if each not in get_args(Pooling):
                raise ConfigError(
                    f"settings.pooling: found {each!r}{nearest(str(each), get_args(Pooling))} "
                    "(there are: mean, cls)"
                )
        check_at_least("settings.batch_tokens", batch_tokens, 1)
        self.layers = layers
        self.pooling = tuple(dict.fromkeys(pooling))
        self.batch_tokens = batch_tokens

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        """Compare the vectors of both texts of each row.

        Raises:
            ConfigError: the encoder has no such layer.
            EvaluationError: the encoder gives no layers, or its states are not finite.
            DataError: a text has no word, a label is no number, or all labels are the same.
        """
        places = chosen_layers(self.layers, model.encoder.num_hidden_layers + 1)
        gold = np.array([_label(row) for row in rows])
        pairs = [_encode(model, row) for row in rows]
        long = np.array([max(map(len, pair)) > model.max_seq_length for pair in pairs])
        scored = ~long & ~np.isnan(gold)
        _check_labels(gold[scored], rows)
        chosen = np.flatnonzero(scored)
        found = np.full((len(rows), len(places), len(self.pooling)), np.nan)
        found[chosen] = self._cosines(model, [pairs[number] for number in chosen], places)

        scores = np.full(len(rows), np.nan)
        decisive = found[:, -1, 0]
        scores[scored] = row_scores(decisive[scored], gold[scored])
        grid = [
            [spearman(found[scored, layer, pool], gold[scored]) for pool in range(found.shape[2])]
            for layer in range(len(places))
        ]
        title = "Spearman by layer and pooling"
        return EvaluationResult(
            metrics={
                "spearman": grid[-1][0],
                "pearson": _pearson(decisive[scored], gold[scored]),
            },
            scores=scores,
            details={"cosine": decisive.tolist(), "label": gold.tolist()},
            grids=[
                ScoreGrid(title, list(map(str, places)), self.pooling, np.array(grid), share=False)
            ],
            notes=self._notes(model, rows, long, gold, places, np.array(grid)),
        )

    def _cosines(
        self, model: EvaluatedModel, pairs: Sequence[tuple[list[int], list[int]]], places: list[int]
    ) -> FloatArray:
        """Return ``(N, layers, poolings)`` cosines of N pairs of sequences."""
        # sequences a0, b0, a1, b1: those of pair n are at 2 n and 2 n + 1
        sequences = [ids for pair in pairs for ids in pair]
        vectors: dict[int, Tensor] = {}  # of texts whose partner was not read yet
        cosines = np.full((len(pairs), len(places), len(self.pooling)), np.nan)
        for states in layer_states(model, sequences, self.batch_tokens, track=model.track):
            pooled = self._pool(states, places)  # (layers, poolings, B, H)
            for place, number in enumerate(states.numbers):
                vector = pooled[:, :, place]
                partner = vectors.pop(number ^ 1, None)  # 4 -> 5, 5 -> 4
                if partner is None:
                    vectors[number] = vector.clone()  # a view would keep the whole batch
                else:
                    both = vector.double(), partner.double()
                    cosines[number // 2] = F.cosine_similarity(*both, dim=-1).cpu().numpy()
        # the same text in other batches differs by rounding: 1 - 1e-14 and 1 shall be a tie
        return np.round(cosines, 10)

    def _pool(self, states: LayerStates, places: list[int]) -> Tensor:
        """Return ``(layers, poolings, B, H)`` vectors."""

        def pooled(layer: Tensor, how: Pooling) -> Tensor:
            if how == "mean":
                return mean_by_sequence(layer, states.batch)
            return states.output.summary(layer, states.batch)

        return torch.stack(
            [
                torch.stack([pooled(states.layers[place].float(), how) for how in self.pooling])
                for place in places
            ]
        )

    def _notes(
        self,
        model: EvaluatedModel,
        rows: Sequence[Example],
        long: npt.NDArray[np.bool_],
        gold: FloatArray,
        places: list[int],
        grid: FloatArray,
    ) -> list[str]:
        notes = [f"spearman and pearson: layer {places[-1]}, {self.pooling[0]} pooling"]
        if long.any():
            notes.append(
                f"{long.sum()} rows have a text of more than {model.max_seq_length} tokens with "
                "[CLS] and [SEP], and were not scored (the first: "
                f"{rows[int(long.argmax())].where})"
            )
        missing = np.isnan(gold)
        if missing.any():
            notes.append(
                f"{missing.sum()} rows have no label, and were not scored (the first: "
                f"{rows[int(missing.argmax())].where})"
            )
        constant = [
            f"layer {places[layer]} {self.pooling[pool]}"
            for layer, pool in np.argwhere(np.isnan(grid)).tolist()
        ]
        if constant:
            notes.append(
                f"no correlation, since all pairs have the same cosine: {', '.join(constant)}"
            )
        return notes


def spearman(x: FloatArray, y: FloatArray) -> float:
    """Return Spearman's rank correlation of ``(N,)`` values, ties at their mean rank.

    NaN where either is constant, x up to 1e-7.
    """
    scores = row_scores(x, y)
    return float(scores.mean()) if len(scores) else math.nan


def row_scores(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the influence of each of N rows on the rank correlation, ``(N,)``; their mean is it.

    Args:
        x: ``(N,)`` cosines; constant, up to 1e-7, they give NaN.
        y: ``(N,)`` gold scores.
    """
    found = None if len(x) < 2 or np.ptp(x) <= _RESOLUTION else spearman_scores(x, y)
    return np.full(len(x), np.nan) if found is None else found


def _pearson(x: FloatArray, y: FloatArray) -> float:
    if len(x) < 2 or np.ptp(x) <= _RESOLUTION or np.ptp(y) == 0:
        return math.nan
    return float(np.corrcoef(x, y)[0, 1])


def _label(row: Example) -> float:
    """Return the gold score of a row; NaN if it has none."""
    if "label" not in row.values:
        return math.nan
    found = row.values["label"]
    try:
        value = float(found)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise DataError(f"{row.where}: label: found {found!r}, expected a number")
    return value


def _check_labels(gold: FloatArray, rows: Sequence[Example]) -> None:
    if len(gold) and np.ptp(gold) == 0:
        raise DataError(
            f"{rows[0].where}: label: found {gold[0]:g} in all {len(gold)} rows that can be "
            "scored, expected scores that differ"
        )


def _encode(model: EvaluatedModel, row: Example) -> tuple[list[int], list[int]]:
    """Return the ids of both texts, special tokens included."""

    def encode(column: str) -> list[int]:
        ids = text_ids(row.values[column], row, column, model.tokenizer)
        return model.tokenizer.build_inputs(ids)[0]

    return encode("text_a"), encode("text_b")
