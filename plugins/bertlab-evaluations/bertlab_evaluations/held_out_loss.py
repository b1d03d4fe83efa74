"""Loss of a language model on a given text: the same text and masks for every model.

The held-out loss of a pre-training is measured on its own sequences, so that models with other
objectives, lengths or pairs cannot be compared by it. Here the text is cut in one way for all.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertlab import IntArray, MaskedLM, TokenClasses, TokenPrediction, check_at_least, text_ids
from bertlab.api import (
    Column,
    CounterRNG,
    DataError,
    EvaluationError,
    Example,
    Progress,
)
from bertlab.extend import BoolArray
from bertlab_evaluations.clusters import FEW
from bertlab_evaluations.contract import EvaluatedModel, Evaluation, EvaluationResult, FloatArray
from bertlab_evaluations.domain import describe_domain, divergence, is_far, natural_divergence
from bertlab_evaluations.language_model import text_sequences
from bertlab_evaluations.row_influence import ratio_scores

_HEIGHT = 512  # rows of scores of the vocabulary that are in memory at a time
_SINGLE_TOKENS = 2000
_READINGS = ("mask_loss", "trained_loss", "pll_loss", "word_pll_loss")
_Item = TypeVar("_Item")


class HeldOutLoss(Evaluation):
    """Mean cross-entropy in nats of the tokens that a language model predicts in a text.

    Each row is cut into windows of about equal length, ``[CLS] … [SEP]``, with as few windows as
    there can be, so that every token of the text is read once. A masked language model predicts
    15 % of the tokens of each window, 80/10/10, whatever it was trained with (BERT, sec. 3.1). The
    masks follow from the tokens of the row, so that they are the same for all models with one
    tokenizer. A left-to-right model predicts every token from those before it.

    A model that was trained with other masks than these looks worse by ``loss`` than it is. So a
    masked language model has further readings:

    - ``mask_loss``: the predictions of ``loss`` at ``[MASK]`` alone.
    - ``trained_loss``: masked as the model was trained, by its own rate (that of its last step),
      unit and shares.
    - ``pll_loss``: each token is masked alone. This is the pseudo-log-likelihood of a token
      (Salazar et al. 2020), negated. The words around it are those of the text, however the model
      was trained.
    - ``word_pll_loss``: the same of tokens that are a whole word, whose masks are those of whole
      words as well.

    Losses of different tokenizers, and of the two kinds of models, cannot be compared.

    ``unigram_divergence`` says how far the words of the text are from those of the training text,
    where these are known, and ``natural_divergence`` how far parts of the training text are.

    Args:
        max_seq_length: tokens of a window at most, ``[CLS]`` and ``[SEP]`` included.
        batch_tokens: tokens that are encoded at a time.
        single_tokens: tokens of the text at most that ``pll_loss`` is of, drawn by a fixed seed;
            each costs the encoding of its window. 0: no ``pll_loss``.

    Raises:
        ConfigError: ``max_seq_length`` is below 3, ``batch_tokens`` below 1, or ``single_tokens``
            below 0.
    """

    columns = (Column("text", aliases=("sentence",)),)
    monitor: ClassVar[tuple[str, Literal["min", "max"]]] = ("loss", "min")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {
        "accuracy": "max",
        "perplexity": "min",
        "mask_loss": "min",
        "trained_loss": "min",
        "pll_loss": "min",
        "word_pll_loss": "min",
    }
    added_settings: ClassVar[Mapping[str, Any]] = {"single_tokens": _SINGLE_TOKENS}

    def __init__(
        self,
        max_seq_length: int = 64,
        batch_tokens: int = 8192,
        single_tokens: int = _SINGLE_TOKENS,
    ) -> None:
        check_at_least("settings.max_seq_length", max_seq_length, 3)
        check_at_least("settings.batch_tokens", batch_tokens, 1)
        check_at_least("settings.single_tokens", single_tokens, 0)
        self.max_seq_length = max_seq_length
        self.batch_tokens = batch_tokens
        self.single_tokens = single_tokens

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        """Score the tokens of each row.

        The score of a row is its part in the mean over all predictions: the mean plus how far the
        row moves it (:mod:`bertlab_evaluations.row_influence`). So are its details of the further
        readings.

        Raises:
            EvaluationError: the model has no language model, reads fewer than ``max_seq_length``
                tokens, or its losses are not finite.
            DataError: there is no word in a row, or no token in all that can be predicted.
        """
        objective, _ = model.language_model
        if self.max_seq_length > model.max_seq_length:
            raise EvaluationError(
                f"settings.max_seq_length: found {self.max_seq_length}, expected at most "
                f"{model.max_seq_length}, which is what {model.source} reads"
            )
        texts = [text_ids(row.values["text"], row, "text", model.tokenizer) for row in rows]
        windows = [
            _Window(row, name + number, ids)
            for row, (name, text) in enumerate(zip(map(_name, texts), texts, strict=True))
            for number, ids in enumerate(_windows(text, self.max_seq_length - 2))
        ]
        sums = _Sums(len(rows))
        for chosen in self._batches(model, windows):
            _add_masked(sums, model, chosen)
        singles = [] if model.encoder.causal else self._single_tokens(model, windows)
        for tokens in self._batches(model, singles):
            _add_singles(sums, model, tokens)
        if "loss" not in sums.totals:
            raise DataError(
                f"{rows[0].where}: text: no token of the {len(rows):,} rows can be predicted: to "
                f"{model.source} all are {model.tokenizer.special.unk}, expected words of its "
                "vocabulary"
            )
        if not np.isfinite([sums.mean(name) for name in sums.totals]).all():
            raise EvaluationError(
                f"{model.source}: gives NaN or infinite losses; its weights are damaged"
            )
        loss, counts = sums.mean("loss"), sums.counts["loss"].astype(int)
        readings = [name for name in _READINGS if name in sums.totals]
        notes = [f"{counts.sum():,} predictions in {len(windows):,} windows"]
        notes += [f"pll_loss: {len(singles):,} tokens"] if singles else []
        if not model.encoder.causal and not isinstance(objective, MaskedLM):
            notes.append(f"no trained_loss: {objective.name} does not say how it masks")
        domain = _domain(model, [token for text in texts for token in text])
        if len(domain) == 2 and is_far(*domain.values()):
            notes.append(describe_domain(*domain.values()))
        return EvaluationResult(
            metrics={
                "loss": loss,
                "accuracy": sums.mean("accuracy"),
                "perplexity": float(np.exp(loss)),
                **{name: sums.mean(name) for name in readings},
                **domain,
            },
            scores=sums.scores("loss"),
            details={
                "predictions": counts.tolist(),
                **{name: sums.scores(name).tolist() for name in readings},
            },
            clusters=_documents(rows),
            notes=notes,
        )

    def _batches(self, model: EvaluatedModel, items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
        starts = range(0, len(items), max(1, self.batch_tokens // self.max_seq_length))
        for first in model.track(starts):
            yield items[first : first + starts.step]

    def _single_tokens(
        self, model: EvaluatedModel, windows: "Sequence[_Window]"
    ) -> "list[tuple[_Window, int]]":
        """Draw tokens of the text; return the window of each, and its place there."""
        classes, rng = TokenClasses.of(model.tokenizer), CounterRNG(0, "held_out_loss single")
        places = [np.flatnonzero(~classes.special[list(each.ids)]) for each in windows]
        draws = [
            rng.uniform(np.full(len(own), each.name), own)
            for each, own in zip(windows, places, strict=True)
        ]
        # 3 and 2 tokens: numbers [0, 0, 0, 1, 1]
        numbers = np.repeat(np.arange(len(windows)), [len(own) for own in places])
        chosen = np.sort(np.argsort(np.concatenate(draws), kind="stable")[: self.single_tokens])
        flat = np.concatenate(places)
        return [(windows[numbers[each]], int(flat[each])) for each in chosen]


class _Window(NamedTuple):
    """Ids of a part of a row, and the number by which its masks are drawn."""

    row: int
    name: int
    ids: Sequence[int]


class _Sums:
    """Sums of each reading over the predictions in each of N rows, and their number."""

    def __init__(self, rows: int) -> None:
        self.rows = rows
        self.totals: dict[str, FloatArray] = {}
        self.counts: dict[str, FloatArray] = {}

    def add(self, name: str, rows: IntArray, values: FloatArray) -> None:
        """Add ``(K,)`` values of predictions in ``(K,)`` rows."""
        if not len(rows):
            return
        for sums, each in ((self.totals, values), (self.counts, np.ones(len(rows)))):
            np.add.at(sums.setdefault(name, np.zeros(self.rows)), rows, each)

    def mean(self, name: str) -> float:
        """Return the mean over all predictions."""
        return float(self.totals[name].sum() / self.counts[name].sum())

    def scores(self, name: str) -> FloatArray:
        """Return ``(N,)`` scores of the rows, whose mean is that over all predictions."""
        return ratio_scores(self.totals[name], self.counts[name])


def _domain(model: EvaluatedModel, tokens: Sequence[int]) -> dict[str, float]:
    """Return how far the words of a text are from the training text, and how far its parts are."""
    objective, _ = model.language_model
    known: IntArray | None = getattr(objective, "token_counts", None)
    if known is None:
        return {}
    ordinary = TokenClasses.of(model.tokenizer).ordinary_ids
    trained, here = (
        counts[ordinary] for counts in (known, np.bincount(tokens, minlength=len(known)))
    )
    if not trained.any() or not here.any():
        return {}
    found = {"unigram_divergence": divergence(here, trained)}
    natural = natural_divergence(model.training_parts, len(tokens))
    return found if natural is None else {**found, "natural_divergence": natural}


def _documents(rows: Sequence[Example]) -> list[str]:
    """Return the document of each row, if all are lines of text files whose empty lines part some.

    A row is where its line is: of a.txt:1, a.txt:2 and a.txt:4 the last begins another document.
    """
    found: list[str] = []
    before = ("", -1)
    for row in rows:
        name, _, line = row.where.rpartition(":")
        if ".txt" not in name or not line.isdecimal():
            return []
        if (name, int(line) - 1) != before:
            document = f"document:{row.where}"
        found.append(document)
        before = name, int(line)
    # a gap or two is there by mistake; and where each line is alone, all lines are documents
    return found if FEW <= len(set(found)) < len(found) else []


def _windows(ids: Sequence[int], room: int) -> list[Sequence[int]]:
    """Cut ids into as few windows of at most ``room`` as there can be, of about equal length."""
    count = -(-len(ids) // room)
    # 10 ids, room 4: 3 windows, cuts [0, 3, 6, 10]
    cuts = [len(ids) * number // count for number in range(count + 1)]
    return [ids[start:end] for start, end in pairwise(cuts)]


def _name(ids: Sequence[int]) -> int:
    """Return 56 bits that name a text, so that its masks do not depend on the rows around it."""
    return int.from_bytes(blake2b(np.array(ids, dtype="<i8").tobytes(), digest_size=7).digest())


def _add_masked(sums: _Sums, model: EvaluatedModel, windows: Sequence[_Window]) -> None:
    """Add the predictions in some windows, masked as those of all models, and as in training."""
    objective, _ = model.language_model
    row, losses, right, at_mask = _predictions(model, _masking(objective, "standard"), windows)
    sums.add("loss", row, losses)
    sums.add("accuracy", row, right)
    sums.add("mask_loss", row[at_mask], losses[at_mask])
    if isinstance(objective, MaskedLM):
        if objective.rate is not None or objective.recipe != MaskedLM().recipe:
            row, losses, *_ = _predictions(model, _masking(objective, "training"), windows)
        sums.add("trained_loss", row, losses)


def _masking(objective: TokenPrediction, evaluation: Literal["standard", "training"]) -> Any:  # noqa: ANN401
    """Return an objective that masks held-out text as asked; one that does not mask, as it is."""
    if not isinstance(objective, MaskedLM):
        return objective
    found = copy(objective)  # its layers are the same
    found.evaluation = evaluation
    return found


def _predictions(
    model: EvaluatedModel, objective: TokenPrediction, windows: Sequence[_Window]
) -> tuple[IntArray, FloatArray, FloatArray, BoolArray]:
    """Return row, loss, 1 if right, and whether at [MASK], of K predictions, each ``(K,)``."""
    rows, names, inputs = zip(*windows, strict=True)
    sequences = text_sequences(model.tokenizer, inputs, names)
    sequences.progress = Progress(1, 1)  # the end of the run
    objective.prepare(sequences, CounterRNG(0, "held_out_loss"), training=False)
    written = sequences.token_labels(objective.name)
    batch = sequences.to_batch().to(model.device)
    read = torch.from_numpy(written.positions).to(model.device)
    labels = torch.from_numpy(written.labels).to(model.device)
    with torch.no_grad():
        states = model.encoder(replace(batch, tokens_read=read)).tokens[read]  # (K, H)
        parts = [
            _scored(objective.logits(hidden), wanted)
            for hidden, wanted in zip(
                torch.split(states, _HEIGHT), torch.split(labels, _HEIGHT), strict=True
            )
        ]
    losses, right = (torch.cat(each).double().cpu().numpy() for each in zip(*parts, strict=True))
    at_mask = sequences.input_ids[written.positions] == model.tokenizer.mask_id
    window = sequences.sequence_of_token[written.positions]
    return np.array(rows)[window], losses, right, at_mask


def _scored(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return F.cross_entropy(logits, labels, reduction="none"), logits.argmax(-1) == labels


def _add_singles(
    sums: _Sums, model: EvaluatedModel, singles: Sequence[tuple[_Window, int]]
) -> None:
    """Add the predictions of single tokens, each masked in a copy of its window."""
    objective, offset = model.language_model
    windows, places = zip(*singles, strict=True)
    sequences = text_sequences(
        model.tokenizer, [each.ids for each in windows], [each.name for each in windows]
    )
    starts = TokenClasses.of(model.tokenizer).word_starts(sequences.input_ids)
    # [CLS] a b [SEP] [CLS] c [SEP], places [1, 0]: tokens [2, 5]
    tokens = sequences.cu_seqlens[:-1] + 1 + np.array(places)
    is_word = starts[tokens] & starts[tokens + 1]
    labels = sequences.input_ids[tokens]
    sequences.input_ids[tokens] = model.tokenizer.mask_id
    batch = sequences.to_batch().to(model.device)
    read = torch.from_numpy(tokens + offset).to(model.device)
    with torch.no_grad():
        states = model.encoder(replace(batch, tokens_read=read)).tokens[read]  # (K, H)
    wanted = torch.from_numpy(labels).to(model.device)
    losses = -objective.log_probabilities(states, wanted).double().cpu().numpy()
    rows = np.array([each.row for each in windows])
    sums.add("pll_loss", rows, losses)
    sums.add("word_pll_loss", rows[is_word], losses[is_word])
