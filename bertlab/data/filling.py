"""Batches filled up to a few fixed sizes, so that a GPU can replay what it recorded of a step.

Sequences of filler stand at the end. No token sees another sequence, and nothing is predicted of
the filler, so that all losses and gradients stay as they are.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from bertlab.api.batch import PackedBatch
from bertlab.api.task import Task

LEAST = 64  # rows between two sizes
_PARTS = 32  # of the power of two below the number of tokens: 1 % of a batch is filler
_LONGEST = 128  # multiples of it are the longest lengths that kernels are launched for


@dataclass(frozen=True)
class Filling:
    """Fills up batches of training.

    Attributes:
        tasks: of the run, by config name; each fills up its own fields.
        longest: length of the longest sequence that the encoder takes.
    """

    tasks: Mapping[str, Task]
    longest: int

    def fill(self, batch: PackedBatch) -> PackedBatch:
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
        filled = replace(
            batch,
            input_ids=F.pad(batch.input_ids, (0, added)),
            token_type_ids=F.pad(batch.token_type_ids, (0, added)),
            position_ids=torch.cat([batch.position_ids, positions]),
            cu_seqlens=torch.cat([batch.cu_seqlens, ends.to(batch.cu_seqlens.dtype)]),
            max_seqlen=-(-max(batch.max_seqlen, *lengths) // _LONGEST) * _LONGEST,
            filler=sequences,
        )
        fields: dict[str, Tensor] = {}
        for task in self.tasks.values():
            own = task.fill(filled, between // 2) if _fills_what_it_reads(task) else None
            if own is None:
                return batch
            fields |= own
        return replace(filled, fields=batch.fields | fields)


def _fills_what_it_reads(task: Task) -> bool:
    """Whether no class below that of ``fill`` has a loss of its own, which may read more fields."""
    fills, loses = (
        next(number for number, kind in enumerate(type(task).__mro__) if name in vars(kind))
        for name in ("fill", "loss")
    )
    return fills <= loses


def size_between(tokens: int) -> int:
    """Return the number of rows between the sizes that batches of about so many tokens get."""
    # 31,000 tokens: 16,384 / 32 = 512
    return max(LEAST, (1 << tokens.bit_length() - 1) // _PARTS)
