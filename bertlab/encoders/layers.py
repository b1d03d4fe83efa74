"""What encoders and heads share: dropout, initialisation, packed LSTMs, the rows that are read.

Torch draws a CPU's dropout mask one element at a time; :class:`Dropout` draws 16 bits for each at
once. The LSTM runs over sequences that are laid end to end, without padding them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import PackedSequence

from bertlab.api.batch import PackedBatch, first_token, last_token
from bertlab.errors import ConfigError, check_at_least, check_share

Size = TypeVar("Size")
Value = TypeVar("Value", int, bool)


def choose_preset(preset: str, presets: Mapping[Any, Size]) -> Size:
    """Return the sizes of a preset."""
    if preset not in presets:
        raise ConfigError(f"model.encoder.preset: found {preset!r}, expected one of {[*presets]}")
    return presets[preset]


def given_or(value: Value | None, default: Value) -> Value:
    """Return what the user gave, or the default if that is None."""
    return default if value is None else value


MOST_LAYERS = 10_000


def check_sizes(encoder: Any, at_least_one: Sequence[str], above_zero: Sequence[str]) -> None:  # noqa: ANN401
    """Check what all Transformer encoders have: sizes, dropout, initial weights, heads."""
    for name in at_least_one:
        check_at_least(f"model.encoder.{name}", getattr(encoder, name), 1)
    if encoder.num_hidden_layers > MOST_LAYERS:  # each is built, however small
        told = f"model.encoder.num_hidden_layers: found {encoder.num_hidden_layers}"
        raise ConfigError(f"{told}, expected at most {MOST_LAYERS}")
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob"):
        check_share(f"model.encoder.{name}", getattr(encoder, name))
    for name in above_zero:
        if not 0 < (found := getattr(encoder, name)) < math.inf:
            raise ConfigError(f"model.encoder.{name}: found {found}, expected above 0")
    if not 0 <= encoder.initializer_range < math.inf:
        told = f"model.encoder.initializer_range: found {encoder.initializer_range}"
        raise ConfigError(f"{told}, expected a standard deviation of 0 or more")
    if encoder.hidden_size % encoder.num_attention_heads:
        raise ConfigError(
            f"model.encoder.num_attention_heads: {encoder.num_attention_heads} heads do not "
            f"divide hidden_size {encoder.hidden_size}"
        )


LEVELS = 1 << 16  # a CPU's mask compares 16 random bits


class Dropout(nn.Dropout):
    """``nn.Dropout``, with :func:`dropout`."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the input with elements dropped in training, and as it is otherwise."""
        return dropout(input, self.p) if self.training else input


def dropout(values: Tensor, probability: float) -> Tensor:
    """Set elements to 0 with a probability; scale the others so that the mean stays.

    On a CPU the bits come from SFC64, seeded by torch's generator: the state of that alone decides
    what is dropped. The probability is rounded to a multiple of 2^-16 there, the scale follows. In
    what is compiled for a GPU they are hashes of places, which the compiler computes in passing.
    """
    if not 0 < probability < 1:
        return F.dropout(values, probability)
    if values.is_cuda and torch.compiler.is_compiling():
        return hash_dropout(values, probability)
    if values.device.type != "cpu":
        return F.dropout(values, probability)
    noise: Tensor = dropout_noise(values, probability)
    return values * noise


@torch.compiler.disable  # type: ignore[untyped-decorator]  # NumPy draws the bits
def dropout_noise(values: Tensor, probability: float) -> Tensor:
    """Return what dropout multiplies CPU ``values`` by: 0, or 1 over the share that is kept."""
    # 0.1 -> 6,554 of 65,536 levels, so the others are scaled by 65,536 / 58,982
    dropped = min(max(round(probability * LEVELS), 1), LEVELS - 1)
    seed = int(torch.randint(np.iinfo(np.int64).max, ()))
    words = np.random.SFC64(seed).random_raw(-(-values.numel() // 4))  # 64 bits each: 4 elements
    bits = torch.from_numpy(words.view(np.int16))[: values.numel()].view(values.shape)
    # as int16 the bits run from -32,768 to 32,767, so the lowest levels begin there
    threshold, scale = dropped - LEVELS // 2, LEVELS / (LEVELS - dropped)
    if values.element_size() == bits.element_size():  # comparing to other dtypes takes 4 times that
        # 0 or 1 times the bits of the scale is 0 or the scale: 1.25 in bfloat16 is 0x3FA0
        pattern = int(torch.tensor(scale, dtype=values.dtype).view(torch.int16))
        return torch.ge(bits, threshold, out=bits).mul_(pattern).view(values.dtype)
    noise = torch.empty_like(values, memory_format=torch.contiguous_format)
    return torch.ge(bits, threshold, out=noise).mul_(scale)


def hash_dropout(values: Tensor, probability: float) -> Tensor:
    """As :func:`dropout`, by 32 bits that hash an element's place and two numbers drawn by torch.

    A GPU computes them in a tenth of the instructions of its own generator, Philox, which took two
    thirds of the time of the passes that drop something.
    """
    low, high = torch.randint(-(2**31), 2**31, (2,), device=values.device, dtype=torch.int32)
    bits = torch.arange(values.numel(), device=values.device, dtype=torch.int32)
    bits = bits.view(values.shape) + low
    # Wellons' lowbias32; shifts of a negative int32 bring ones in, which the masks take out
    bits = (bits ^ ((bits >> 16) & 0xFFFF)) * 0x7FEB352D
    bits = (bits ^ ((bits >> 15) & 0x1FFFF)) + high
    bits = bits * (0x846CA68B - 2**32)
    bits = bits ^ ((bits >> 16) & 0xFFFF)
    least = min(round(probability * 2**32), 2**32 - 1) - 2**31  # the lowest number that is kept
    return torch.where(bits < least, 0, values) * (1 / (1 - probability))


def initialize(module: nn.Module, std: float) -> None:
    """Initialise every layer below ``module`` in place, as BERT's code does.

    Args:
        module: Linear and Embedding weights become N(0, ``std``); biases become 0; LayerNorm
            weights 1. The normal is not truncated, as in Hugging Face's port.
        std: standard deviation, ``initializer_range`` in configs.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Embedding) and not layer.weight.is_meta:
            nn.init.normal_(layer.weight, std=std)
        if isinstance(layer, nn.LayerNorm):
            nn.init.ones_(layer.weight)
        if isinstance(layer, nn.Linear | nn.LayerNorm) and layer.bias is not None:
            nn.init.zeros_(layer.bias)


def packed_lstm(lstm: nn.LSTM, values: Tensor, lengths: Tensor) -> Tensor:
    """Run an LSTM over each sequence of a batch on its own, from zero states.

    It computes in the LSTM's own dtype, also under autocast, whose LSTM on CUDA takes float16
    even where bfloat16 was asked for.

    Args:
        lstm: of input width F and output width D; D is twice ``hidden_size`` if bidirectional.
        values: ``(T, F)`` inputs of B sequences, one after the other.
        lengths: ``(B,)`` int64 lengths of the sequences, at least 1 each and T together.

    Returns:
        ``(T, D)`` outputs in the order of ``values``.
    """
    # lengths [2, 3]: ranks [1, 0], step [0, 1, 0, 1, 2] -> order [2, 0, 3, 1, 4], and step has
    # [2, 2, 1] tokens, which is the form of torch's PackedSequence: no padding to make and undo
    ranks = lengths.argsort(descending=True, stable=True).argsort()  # the longest first
    starts = lengths.cumsum(0) - lengths
    total = len(values)
    sequence = torch.repeat_interleave(lengths, output_size=total)
    step = torch.arange(total, device=values.device) - starts[sequence]
    order = (step * len(lengths) + ranks[sequence]).argsort()  # all first tokens, all second, …
    dtype = next(lstm.parameters()).dtype
    with torch.autocast(values.device.type, enabled=False):
        by_step = PackedSequence(values[order].to(dtype), step.bincount().cpu())
        outputs: Tensor = lstm(by_step)[0].data
    return torch.empty_like(outputs).index_copy(0, order, outputs)


def summary_token(tokens: Tensor, batch: PackedBatch, causal: bool) -> Tensor:
    """Return the ``(B, H)`` states of what has seen its sequence: the last token if causal."""
    if batch.causal is None:
        return last_token(tokens, batch) if causal else first_token(tokens, batch)
    starts, ends = batch.cu_seqlens[:-1], batch.cu_seqlens[1:]
    return tokens[torch.where(batch.causal, ends - 1, starts).long()]


def final_states(tokens: Tensor, batch: PackedBatch) -> Tensor:
    """Return ``(B, D)``: what either direction gives once it has read the whole sequence.

    Args:
        tokens: ``(T, D)`` outputs of a bidirectional LSTM: forward in the first half of D, backward
            in the second.
        batch: gives the borders of the B sequences.
    """
    forward, backward = tokens.chunk(2, dim=-1)
    return torch.cat([last_token(forward, batch), first_token(backward, batch)], dim=-1)


def rows_read(
    batch: PackedBatch, summary: Callable[[Tensor, PackedBatch], Tensor]
) -> Tensor | None:
    """Return the rows that an encoder's last layer has to compute, ascending; None for all."""
    if batch.tokens_read is None:
        return None
    # the summary of the tokens' numbers, instead of their states, is the rows that it reads
    places = torch.arange(len(batch.input_ids), device=batch.input_ids.device)
    summaries = summary(places[:, None], batch).squeeze(1)
    # ascending, as attention asks of rows
    return batch.each_once(torch.cat([summaries, batch.tokens_read]))


def states_at_rows(hidden: Tensor, rows: Tensor | None, tokens: int) -> Tensor:
    """Return the ``(tokens, H)`` states of a batch: ``hidden``'s first rows, zeros elsewhere.

    Args:
        hidden: states of ``rows``, or of all tokens; more may follow.
        rows: ``(N,)`` int64 of :func:`rows_read`; None: all.
        tokens: T.
    """
    if rows is None:
        return hidden[:tokens]
    states = hidden[: len(rows)]
    return states.new_zeros(tokens, hidden.shape[1]).index_copy(0, rows, states)
