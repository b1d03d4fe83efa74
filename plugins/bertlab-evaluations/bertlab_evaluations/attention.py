"""Attention: what does each head of an encoder attend to, and how widely?

Clark, Khandelwal, Levy & Manning 2019, "What Does BERT Look At?", sec. 3.
"""

from collections.abc import Sequence

import numpy as np
import torch

from bertlab import IntArray, check_at_least
from bertlab.api import Column, DataError, Example, Tokenizer
from bertlab.extend import keys_seen
from bertlab_evaluations.contract import (
    EvaluatedModel,
    Evaluation,
    EvaluationResult,
    FloatArray,
    ScoreGrid,
)
from bertlab_pages.attention_maps import (
    FIGURES,
    TARGETS,
    attention_layers,
    attention_maps,
    head_figures,
    softmax,
    target_masks,
)
from bertlab_pages.attention_page import ShownRow, attention_page, rounded_weights

_SHOWN_TOKENS = 64  # longest row on the page: 0.8 MB of the 144 heads of BERT-base


class Attention(Evaluation):
    """Where the attention of each head goes, and its entropy.

    A figure is a mean over all tokens of a row that attend, ``[CLS]`` and ``[SEP]`` among them, and
    then over rows, each of which weighs the same (Clark et al. 2019). A share is the attention that
    goes to:

    - ``cls``, ``sep``: all ``[CLS]``, all ``[SEP]`` of the row;
    - ``next``, ``previous``, ``self``: the token's neighbours and itself. The last token has no
      next one, and counts with 0; so does the first for ``previous``;
    - ``same_token``: other positions with the same id; special tokens count with 0.

    A token can be several of these at once, so the shares of a head do not add up to 1. ``entropy``
    is that of the attention of a token in nats: 0 where all goes to one token, the logarithm of the
    number of tokens where it is uniform.

    Args:
        shown_rows: rows on the page ``NAME.maps.html``, the first with at most 64 tokens; 0: no
            page.
        batch_tokens: tokens that are encoded at a time.

    Raises:
        ConfigError: ``shown_rows`` is below 0, or ``batch_tokens`` below 1.
    """

    columns = (
        Column("text", aliases=("sentence", "sentence1")),
        Column("text_b", required=False),
    )
    monitor = ("entropy", "min")
    shares = ()

    def __init__(self, shown_rows: int = 3, batch_tokens: int = 4096) -> None:
        check_at_least("settings.shown_rows", shown_rows, 0)
        check_at_least("settings.batch_tokens", batch_tokens, 1)
        self.shown_rows = shown_rows
        self.batch_tokens = batch_tokens

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        """Measure the attention of every head on each row.

        Raises:
            EvaluationError: the encoder's attention cannot be read, or its states are not finite.
            DataError: a text has no word.
        """
        inputs = [_encode(model.tokenizer, row) for row in rows]
        lengths = np.array([len(ids) for ids, _ in inputs])
        chosen = np.flatnonzero(lengths <= model.max_seq_length).tolist()
        short = [number for number in chosen if lengths[number] <= _SHOWN_TOKENS]
        shown: dict[int, ShownRow | None] = dict.fromkeys(short[: self.shown_rows])

        causal = all(layer.causal for layer in attention_layers(model))
        by_row = np.full((len(rows), len(FIGURES)), np.nan)
        uniform = np.full_like(by_row, np.nan)
        by_head: FloatArray | None = None  # (7, layers, heads), summed over rows
        given = [inputs[number] for number in chosen]
        for number, maps in attention_maps(model, given, self.batch_tokens, model.track):
            place = chosen[number]
            ids = torch.tensor(inputs[place][0], device=maps.device)
            targets = target_masks(ids, model.tokenizer)
            figures = head_figures(maps, targets)
            by_head = figures if by_head is None else by_head + figures
            by_row[place] = figures.mean((1, 2))
            flat = maps.new_zeros(1, 1, len(ids), len(ids))
            seen = keys_seen(torch.arange(len(ids), device=maps.device), causal)
            uniform[place] = head_figures(softmax(flat, seen), targets)[:, 0, 0]
            if place in shown:
                tokens = [model.tokenizer.token(each) for each in inputs[place][0]]
                shown[place] = ShownRow(rows[place].where, tokens, rounded_weights(maps), figures)

        details = {name: by_row[:, place].tolist() for place, name in enumerate(FIGURES) if place}
        notes = _notes(model, rows, lengths, shown, self.shown_rows)
        if by_head is None:  # no row could be read
            nothing = dict.fromkeys((*FIGURES, "uniform_entropy"), float("nan"))
            return EvaluationResult(nothing, by_row[:, 0], details=details, notes=notes)
        heads, flat_figures = by_head / len(chosen), uniform[chosen].mean(0)
        metrics = dict(zip(FIGURES, heads.mean((1, 2)).tolist(), strict=True))
        page = [row for row in shown.values() if row is not None]
        return EvaluationResult(
            metrics=metrics | {"uniform_entropy": float(flat_figures[0])},
            scores=by_row[:, 0],
            details={"tokens": lengths.tolist()} | details,
            grids=_grids(heads, flat_figures),
            pages={"maps.html": attention_page(model.source, FIGURES, page)} if page else {},
            notes=[*_extremes(heads, flat_figures), *notes],
        )


def _grids(heads: FloatArray, uniform: FloatArray) -> list[ScoreGrid]:
    """Return a grid of layers × targets, then one of layers × heads for each figure."""
    layers = [str(each) for each in range(1, heads.shape[1] + 1)]
    names = [str(each) for each in range(1, heads.shape[2] + 1)]
    by_layer = np.concatenate([heads[1:].mean(2).T, uniform[None, 1:]])  # (layers + 1, 6)
    grids = [ScoreGrid("attention by layer", [*layers, "uniform"], TARGETS, by_layer)]
    for place, figure in enumerate(FIGURES):
        means = heads[place].mean(1, keepdims=True)
        values = np.concatenate([heads[place], means], 1)  # (layers, heads + 1)
        what = "entropy in nats" if place == 0 else f"attention to {figure}"
        title = f"{what} by layer and head"
        grids.append(ScoreGrid(title, layers, [*names, "mean"], values, share=place > 0))
    return grids


def _extremes(heads: FloatArray, uniform: FloatArray) -> list[str]:
    """Return which head attends most to each target; heads are numbered as Clark et al. do."""

    def name(place: int) -> str:
        layer, head = divmod(place, heads.shape[2])
        return f"{layer + 1}-{head + 1}"

    entropy = heads[0].ravel()
    low, high = int(entropy.argmin()), int(entropy.argmax())
    notes = [
        f"entropy: {entropy[low]:.3f} nats in head {name(low)} (layer-head, from 1), "
        f"{entropy[high]:.3f} in head {name(high)}, {uniform[0]:.3f} of uniform attention"
    ]
    for place, target in enumerate(TARGETS, 1):
        most = int(heads[place].argmax())
        notes.append(
            f"{target}: most from head {name(most)}, {heads[place].max():.1%} of its attention; "
            f"{uniform[place]:.1%} of uniform attention"
        )
    return notes


def _notes(
    model: EvaluatedModel,
    rows: Sequence[Example],
    lengths: IntArray,
    shown: dict[int, ShownRow | None],
    wanted: int,
) -> list[str]:
    notes = []
    long = lengths > model.max_seq_length
    if long.any():
        notes.append(
            f"{long.sum()} rows have more than {model.max_seq_length} tokens with [CLS] and "
            f"[SEP], and were not scored (the first: {rows[int(long.argmax())].where})"
        )
    if len(shown) < min(wanted, len(rows)):
        notes.append(
            f"maps.html shows {len(shown)} rows: no others have at most {_SHOWN_TOKENS} tokens"
        )
    return notes


def _encode(tokenizer: Tokenizer, row: Example) -> tuple[list[int], list[int]]:
    """Return ids and segment ids of a row, special tokens included."""
    parts = []
    for column in ("text", "text_b"):
        if column in row.values:
            parts.append(tokenizer.encode(row.values[column]))
            if not parts[-1]:
                raise DataError(f"{row.where}: {column}: found no word in {row.values[column]!r}")
    return tokenizer.build_inputs(*parts)
