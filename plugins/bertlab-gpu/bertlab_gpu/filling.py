"""Batches filled up to a few fixed sizes, so that a GPU can replay what it recorded of a step.

Sequences of filler stand at the end. No token sees another sequence, and nothing is predicted of
the filler, so that all losses and gradients stay as they are.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from bertlab import NextSentencePrediction, TokenPrediction
from bertlab.api import PackedBatch, PluginError, Task, TokenLabels
from bertlab.extend import BertModule, SequenceClassifier

LEAST = 64  # rows between two sizes
FILLER = -100  # a label that stands for nothing, which torch's cross-entropy leaves out
_PARTS = 32  # of the power of two below the number of tokens: 1 % of a batch is filler
_LONGEST = 128  # multiples of it are the longest lengths that kernels are launched for

Fill = Callable[[PackedBatch, int], Mapping[str, Tensor] | None]


@dataclass
class FilledBatch(PackedBatch):
    """A batch that ends with sequences of which nothing is predicted.

    Attributes:
        filler: the number of these sequences.
    """

    filler: int = 0

    def token_labels(self, objective: str) -> TokenLabels[Tensor]:
        """Return what an objective predicts; on a CPU without what fills it up."""
        found = super().token_labels(objective)
        if found.labels.device.type != "cpu":
            return found  # cross-entropy leaves it out there, and to count it would wait
        counts = found.labels != FILLER
        return TokenLabels(found.positions[counts], found.labels[counts])

    def each_once(self, rows: Tensor) -> Tensor:
        """Return ``(N,)`` rows in ascending order, as many as were given, for fixed sizes.

        What was there twice becomes the last row, which is of filler.
        """
        # rows [0, 4, 4] of 6 tokens: order [1, 1, 1, 1, 2, 2], so 0 goes to 0, 4 to 1 -> [0, 4, 5]
        tokens = torch.arange(len(self.input_ids), device=rows.device)
        is_read = torch.zeros_like(tokens, dtype=torch.bool).index_fill_(0, rows, 1)
        order = is_read.cumsum(0) - 1
        found = torch.full((len(rows) + 1,), len(tokens) - 1, device=rows.device)
        return found.scatter_(0, torch.where(is_read, order, len(rows)), tokens)[:-1]


@dataclass(frozen=True)
class Filling:
    """Fills up batches of training.

    Attributes:
        tasks: of the run, by config name.
        longest: length of the longest sequence that the encoder takes.
    """

    tasks: Mapping[str, Task]
    longest: int

    def __call__(self, batch: PackedBatch) -> PackedBatch:
        """Return a batch of one of a few sizes; as it was if a task cannot fill up its fields."""
        if self.longest == 1:
            return batch
        tokens = len(batch.input_ids)
        between = size_between(tokens)
        # 64 rows between sizes, sequences of at most 40: 2 of them, which are 2 to 65 rows together
        sequences = -(-(between - 1) // (self.longest - 1))
        added = sequences + -(tokens + sequences) % between
        each, longer = divmod(added, sequences)  # 66, 3 -> 22, 22, 22
        lengths = [each + (number < longer) for number in range(sequences)]
        ends = batch.cu_seqlens[-1] + torch.tensor(lengths).cumsum(0)
        positions = torch.cat([torch.arange(length) for length in lengths])
        filled = FilledBatch(
            input_ids=F.pad(batch.input_ids, (0, added)),
            token_type_ids=F.pad(batch.token_type_ids, (0, added)),
            position_ids=torch.cat([batch.position_ids, positions]),
            cu_seqlens=torch.cat([batch.cu_seqlens, ends.to(batch.cu_seqlens.dtype)]),
            max_seqlen=-(-max(batch.max_seqlen, *lengths) // _LONGEST) * _LONGEST,
            fields=batch.fields,
            counts=batch.counts,
            window_counts=batch.window_counts,
            filler=sequences,
        )
        made: dict[str, Tensor] = {}
        if batch.causal is not None:
            made["causal"] = F.pad(batch.causal, (0, sequences))
        for task in self.tasks.values():
            fill = fill_of(task)
            own = None if fill is None else fill(filled, between // 2)
            if own is None:
                return batch
            made |= own
        filled = replace(filled, fields=batch.fields | made)
        return replace(filled, tokens_read=self._tokens_read(filled))

    def _tokens_read(self, batch: FilledBatch) -> Tensor | None:
        """Return the positions that the tasks read; on a GPU nobody waits for a fixed number."""
        found = [task.tokens_read(batch) for task in self.tasks.values()]
        read = [places for places in found if places is not None]
        return torch.cat(read) if read and len(read) == len(found) else None


def size_between(tokens: int) -> int:
    """Return the number of rows between the sizes that batches of about so many tokens get."""
    # 31,000 tokens: 16,384 / 32 = 512
    return max(LEAST, (1 << tokens.bit_length() - 1) // _PARTS)


def fill_of(task: Task) -> Fill | None:
    """Return what fills up the fields that a task's loss reads; None if nobody knows.

    That is the method ``fill`` of the class that has the loss, or of one below it: what another
    class's loss reads it does not know.
    """
    kinds = type(task).__mro__
    for number, kind in enumerate(kinds):
        if "fill" in vars(kind):
            own: Any = task.fill
            return cast("Fill", own)
        # one that wraps a parent's, as where its results are checked, is the parent's
        wrapped = getattr(vars(kind).get("loss"), "__wrapped__", kind)
        is_inherited = any(vars(each).get("loss") is wrapped for each in kinds[number + 1 :])
        if "loss" in vars(kind) and not is_inherited:
            known = _KNOWN.get(kind)
            return None if known is None else partial(known, task)
    return None


def check_fill(module: BertModule, batch: PackedBatch) -> None:
    """Raise PluginError if a batch of training has another loss once it is filled up.

    Args:
        module: whose tasks say how their fields are filled up, in evaluation mode.
        batch: labelled, on the module's device.
    """
    filled = Filling(module.named_tasks(), max(2, batch.max_seqlen))(batch)
    with torch.no_grad():
        whole, padded = (
            torch.stack([each.sum.float() for each in module.losses(given)])
            for given in (batch, filled)
        )
    if not torch.allclose(whole, padded, rtol=1e-4, atol=1e-4):
        raise PluginError(
            f"the losses of a batch are {whole.tolist()}, and filled up {padded.tolist()}; let "
            "fill() return labels, of added sequences or predictions, that loss() leaves out of "
            "its sum (-100 in cross-entropy)"
        )


def filled_labels(labels: Tensor, batch: FilledBatch) -> Tensor:
    """Return ``(B,)`` labels of a batch that ends with filler, of those of its first sequences."""
    return F.pad(labels, (0, len(batch) - len(labels)), value=FILLER)


def _fill_tokens(task: Any, batch: FilledBatch, slots: int) -> Mapping[str, Tensor]:  # noqa: ANN401
    """Return positions in the filler, and labels that do not count, after the K that do."""
    written = batch.token_labels(task.name)
    rows, last = -len(written.labels) % slots, len(batch.input_ids) - 1
    return {
        f"{task.name}_positions": F.pad(written.positions, (0, rows), value=last),
        f"{task.name}_labels": F.pad(written.labels, (0, rows), value=FILLER),
    }


def _fill_pairs(task: Any, batch: FilledBatch, slots: int) -> Mapping[str, Tensor]:  # noqa: ANN401
    del task, slots
    return {"next_sentence_label": filled_labels(batch.fields["next_sentence_label"], batch)}


def _fill_classes(  # None in regression, whose squared error leaves out nothing
    task: Any,  # noqa: ANN401
    batch: FilledBatch,
    slots: int,
) -> Mapping[str, Tensor] | None:
    del slots
    return None if task.regression else {"label": filled_labels(batch.fields["label"], batch)}


# by the class that has the loss
_KNOWN: dict[type, Callable[[Any, Any, int], Mapping[str, Tensor] | None]] = {
    TokenPrediction: _fill_tokens,
    NextSentencePrediction: _fill_pairs,
    SequenceClassifier: _fill_classes,
}
