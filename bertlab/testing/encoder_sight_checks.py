"""Checks of what a position of an encoder sees: its own sequence, as ``causal`` says, and all."""

from dataclasses import replace

import torch
from torch import Tensor

from bertlab.packed_batch import PackedBatch, pack
from bertlab.testing.check import check
from bertlab.testing.comparisons import SAME_STATE, state_difference, tensor_difference
from bertlab.testing.encoder_case import EncoderCase
from bertlab.testing.failures import ConformanceFailure

_ADVICE = (
    "use batch.cu_seqlens: bertlab.encoders.attention.packed_attention and "
    "bertlab.encoders.packed_lstm.packed_lstm keep to it, as does batch.pad(…) with "
    "batch.attention_mask"
)


@check("encoder", after=("evaluation_repeats",))
def states_do_not_leak(case: EncoderCase) -> None:
    """The states of a packed batch are those of its sequences, each encoded alone."""
    encoder, batch = case.encoder(), case.batch()
    output = encoder(batch, all_layers=True)
    alone = [encoder(each, all_layers=True) for each in _each(batch)]
    _same("tokens", output.tokens, torch.cat([each.tokens for each in alone]))
    _same("cls", output.cls, torch.cat([each.cls for each in alone]))
    _same("pooled", output.pooled, torch.cat([each.pooled for each in alone]))
    for number, layer in enumerate(output.all_layers or []):
        parts = torch.cat([each.all_layers[number] for each in alone])
        _same(f"all_layers[{number}]", layer, parts)


@check("encoder", after=("states_do_not_leak",))
def neighbours_do_not_matter(case: EncoderCase) -> None:
    """Other words in one sequence change no state of the others."""
    encoder, batch = case.encoder(), case.batch()
    end = int(batch.cu_seqlens[1])
    before = encoder(batch).tokens[end:]
    after = encoder(_changed(batch, slice(0, end))).tokens[end:]
    _same("tokens of the other sequences", before, after)


@check("encoder", after=("states_do_not_leak",))
def causal_is_true(case: EncoderCase) -> None:
    """``causal`` says whether what is to the right of a position can change its state."""
    encoder, batch = case.encoder(), case.batch([12])
    right = encoder(_changed(batch, slice(6, 12))).tokens
    change = tensor_difference(encoder(batch).tokens[:6], right[:6])
    if encoder.causal and change > SAME_STATE:
        raise ConformanceFailure(
            f"causal is True, but words to the right change a state by {change:.3g}",
            "mask what is to the right in every layer, or set causal to False",
        )
    if not encoder.causal and change < SAME_STATE:
        raise ConformanceFailure(
            "causal is False, but words to the right change no state",
            "set causal to True: mlm would learn nothing from the right, and clm needs it",
        )


@check("encoder", after=("evaluation_repeats",))
def words_matter(case: EncoderCase) -> None:
    """Another word changes the state of its own position, and its order the states of the text."""
    encoder, batch = case.encoder(), case.batch([12])
    before = encoder(batch).tokens
    own = tensor_difference(before[3], encoder(_changed(batch, slice(3, 4))).tokens[3])
    if own < SAME_STATE:
        raise ConformanceFailure(
            "another id at a position does not change its state", "embed batch.input_ids"
        )
    ids = batch.input_ids.clone()
    ids[1:11] = ids[1:11].flip(0)
    backwards = encoder(replace(batch, input_ids=ids)).tokens
    moved = tensor_difference(before[1:11], backwards[1:11].flip(0))
    if moved < SAME_STATE:
        raise ConformanceFailure(
            "the text backwards has the same states backwards",
            "use batch.position_ids, or something else that knows the order",
        )


@check("encoder", after=("evaluation_repeats",))
def summary_has_seen_the_text(case: EncoderCase) -> None:
    """``cls`` depends on the first words of a sequence and on the last."""
    encoder, batch = case.encoder(), case.batch([12])
    before = encoder(batch).cls
    for name, place in (("first", slice(0, 2)), ("last", slice(10, 12))):
        if tensor_difference(before, encoder(_changed(batch, place)).cls) < SAME_STATE:
            raise ConformanceFailure(
                f"the {name} words of a sequence do not change cls",
                "give EncoderOutput(summary=…) a function that picks a state that has seen all: "
                "first_token, or last_token of a left-to-right encoder",
            )


@check("encoder", after=("states_do_not_leak",))
def order_does_not_matter(case: EncoderCase) -> None:
    """The sequences of a batch in another order have the same states."""
    encoder, batch = case.encoder(), case.batch()
    parts = _each(batch)
    backwards = encoder(pack([part.input_ids.tolist() for part in reversed(parts)])).tokens
    pieces = backwards.split([len(part.input_ids) for part in reversed(parts)])
    _same("tokens in reverse order", encoder(batch).tokens, torch.cat(pieces[::-1]))


def _each(batch: PackedBatch) -> list[PackedBatch]:
    return [pack([ids.tolist()]) for ids in torch.split(batch.input_ids, batch.lengths.tolist())]


def _changed(batch: PackedBatch, place: slice) -> PackedBatch:
    """Return the batch with other words in one place."""
    ids = batch.input_ids.clone()
    ids[place] = torch.where(ids[place] > 0, ids[place] - 1, 1)
    return replace(batch, input_ids=ids)


def _same(name: str, one: Tensor, other: Tensor) -> None:
    found = state_difference(one, other)
    if found > SAME_STATE:
        raise ConformanceFailure(f"{name} of packed sequences are off by {found:.3g}", _ADVICE)
