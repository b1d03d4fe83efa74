"""Loss of a language model on a given text: the same text and masks for every model.

The held-out loss of a pre-training is measured on its own sequences, so that models with other
objectives, lengths or pairs cannot be compared by it. Here the text is cut in one way for all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from itertools import pairwise
from typing import ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from bertlab import IntArray, TokenPrediction, check_at_least, text_ids
from bertlab.api import Column, CounterRNG, EvaluationError, Example, PackedSequences
from bertlab_evaluations.clusters import FEW
from bertlab_evaluations.contract import EvaluatedModel, Evaluation, EvaluationResult, FloatArray
from bertlab_evaluations.language_model import text_sequences
from bertlab_evaluations.row_influence import ratio_scores

_HEIGHT = 512  # rows of scores of the vocabulary that are in memory at a time


class HeldOutLoss(Evaluation):
    """Mean cross-entropy in nats of the tokens that a language model predicts in a text.

    Each row is cut into windows of about equal length, ``[CLS] … [SEP]``, with as few windows as
    there can be, so that every token of the text is read once. A masked language model predicts
    15 % of the tokens of each window, 80/10/10, whatever it was trained with (BERT, sec. 3.1). The
    masks follow from the tokens of the row, so that they are the same for all models with one
    tokenizer. A left-to-right model predicts every token from those before it.

    ``mask_loss`` is that of the predictions at ``[MASK]`` alone, from the same pass. A model that
    was trained with other shares than 80/10/10 has not learned that a word which is there may be
    wrong, and looks worse by ``loss`` than it is; ``mask_loss`` leaves these predictions out.

    Losses of different tokenizers, and of the two kinds of models, cannot be compared.

    Args:
        max_seq_length: tokens of a window at most, ``[CLS]`` and ``[SEP]`` included.
        batch_tokens: tokens that are encoded at a time.

    Raises:
        ConfigError: ``max_seq_length`` is below 3, or ``batch_tokens`` below 1.
    """

    columns = (Column("text", aliases=("sentence",)),)
    monitor: ClassVar[tuple[str, Literal["min", "max"]]] = ("loss", "min")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {
        "accuracy": "max",
        "perplexity": "min",
        "mask_loss": "min",
    }

    def __init__(self, max_seq_length: int = 64, batch_tokens: int = 8192) -> None:
        check_at_least("settings.max_seq_length", max_seq_length, 3)
        check_at_least("settings.batch_tokens", batch_tokens, 1)
        self.max_seq_length = max_seq_length
        self.batch_tokens = batch_tokens

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        """Score the tokens of each row.

        The score of a row is its part in the mean over all predictions: the mean plus how far the
        row moves it (:mod:`bertlab_evaluations.row_influence`).

        Raises:
            EvaluationError: the model has no language model, reads fewer than ``max_seq_length``
                tokens, or its losses are not finite.
            DataError: there is no word in a row.
        """
        objective, _ = model.language_model
        if self.max_seq_length > model.max_seq_length:
            raise EvaluationError(
                f"settings.max_seq_length: found {self.max_seq_length}, expected at most "
                f"{model.max_seq_length}, which is what {model.source} reads"
            )
        texts = [text_ids(row.values["text"], row, "text", model.tokenizer) for row in rows]
        windows = [
            (row, name + number, window)
            for row, (name, ids) in enumerate(zip(map(_name, texts), texts, strict=True))
            for number, window in enumerate(_windows(ids, self.max_seq_length - 2))
        ]
        sums = np.zeros((3, len(rows)))  # losses, predictions, right ones
        masked = np.zeros(2)  # losses and predictions at [MASK]
        starts = range(0, len(windows), max(1, self.batch_tokens // self.max_seq_length))
        for first in model.track(starts):
            chosen = windows[first : first + starts.step]
            rows_of_windows, names, inputs = zip(*chosen, strict=True)
            window, *scores = _predictions(
                model, objective, text_sequences(model.tokenizer, inputs, names)
            )
            row = np.array(rows_of_windows)[window]
            losses_here, right_here, at_mask = scores
            for total, values in zip(
                sums, (losses_here, np.ones(len(row)), right_here), strict=True
            ):
                np.add.at(total, row, values)
            masked += losses_here @ at_mask, at_mask.sum()
        losses, counts, right = sums
        loss = losses.sum() / max(counts.sum(), 1)
        if not np.isfinite(loss):
            raise EvaluationError(
                f"{model.source}: gives NaN or infinite losses; its weights are damaged"
            )
        return EvaluationResult(
            metrics={
                "loss": float(loss),
                "accuracy": float(right.sum() / max(counts.sum(), 1)),
                "perplexity": float(np.exp(loss)),
                **({"mask_loss": float(masked[0] / masked[1])} if masked[1] else {}),
            },
            scores=ratio_scores(losses, counts),
            details={"predictions": counts.astype(int).tolist()},
            clusters=_documents(rows),
            notes=[f"{int(counts.sum()):,} predictions in {len(windows):,} windows"],
        )


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


def _predictions(
    model: EvaluatedModel, objective: TokenPrediction, sequences: PackedSequences
) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    """Return window, loss, 1 if right, 1 if at [MASK], of K predictions, each ``(K,)``."""
    objective.prepare(sequences, CounterRNG(0, "held_out_loss"), training=False)
    written = sequences.token_labels(objective.name)
    batch = sequences.to_batch().to(model.device)
    read = torch.from_numpy(written.positions).to(model.device)
    labels = torch.from_numpy(written.labels).to(model.device)
    with torch.no_grad():
        states = model.encoder(replace(batch, tokens_read=read)).tokens[read]  # (K, H)
        parts = [
            _scored(objective.logits(rows), wanted)
            for rows, wanted in zip(
                torch.split(states, _HEIGHT), torch.split(labels, _HEIGHT), strict=True
            )
        ]
    losses, right = (torch.cat(each).double().cpu().numpy() for each in zip(*parts, strict=True))
    at_mask = (sequences.input_ids[written.positions] == model.tokenizer.mask_id).astype(np.float64)
    return sequences.sequence_of_token[written.positions], losses, right, at_mask


def _scored(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    return F.cross_entropy(logits, labels, reduction="none"), logits.argmax(-1) == labels
