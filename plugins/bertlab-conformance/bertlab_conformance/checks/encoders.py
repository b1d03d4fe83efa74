"""Checks of an encoder: attributes, shapes, gradients, and which words reach which state."""

from dataclasses import replace

import torch
from torch import Tensor, nn

from bertlab.api import EncoderOutput, PackedBatch, pack
from bertlab_conformance.cases import SEED
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.checks.building import USABLE
from bertlab_conformance.checks.losses import without_gradient
from bertlab_conformance.comparisons import (
    SAME_STATE,
    changed_tensor,
    state_difference,
    tensor_difference,
)
from bertlab_conformance.stack import seeded, tensors_of
from bertlab_conformance.task_cases import EncoderCase

_TYPES: dict[str, type | tuple[type, ...]] = {
    "vocab_size": int,
    "hidden_size": int,
    "num_hidden_layers": int,
    "max_position_embeddings": int,
    "causal": bool,
    "hidden_dropout_prob": (float, int),
    "layer_norm_eps": float,
    "initializer_range": float,
    "token_embedding": nn.Embedding,
    "pooler": nn.Module,
}
_LARGEST = 10_000_000  # parameters


@check("encoder", after=("vocab_size_is_its_first_argument", *USABLE))
def builds(case: EncoderCase) -> None:
    """It is made for a vocabulary, with finite weights and the attributes of the contract."""
    encoder = case.encoder(disturbed=False)
    for name, kind in _TYPES.items():
        value = getattr(encoder, name, None)
        if not isinstance(value, kind):
            raise ConformanceFailure(
                f"{name} is {value!r}",
                f"set self.{name} in __init__; tasks read it (bertlab.api.encoder.Encoder)",
            )
    size = sum(parameter.numel() for parameter in encoder.parameters())
    if size > _LARGEST:
        raise ConformanceFailure(
            f"it has {size / 1e6:.0f} million parameters, and every check makes some of it",
            "give the kit small sizes: conformance(…, arguments={'hidden_size': 32, …})",
        )
    for name, parameter in encoder.named_parameters():
        if not parameter.isfinite().all():
            raise ConformanceFailure(
                f"{name} is not finite after __init__",
                "initialise it: bertlab.encoders.layers.initialize(self, initializer_range)",
            )


@check("encoder", after=("builds",))
def token_embedding_fits(case: EncoderCase) -> None:
    """``token_embedding`` has a row for each id, as ``mlm`` needs it, no wider than the states."""
    encoder = case.encoder()
    size = case.language.tokenizer.vocab_size
    rows, width = encoder.token_embedding.weight.shape
    if rows != size or width > encoder.hidden_size or encoder.vocab_size != size:
        raise ConformanceFailure(
            f"token_embedding is {(rows, width)}, vocab_size {encoder.vocab_size}, for {size} ids "
            f"and hidden_size {encoder.hidden_size}",
            "make nn.Embedding(vocab_size, E), E at most hidden_size, and widen it inside",
        )


@check("encoder", after=("builds",))
def initial_weights_follow_the_seed(case: EncoderCase) -> None:
    """The same seed gives the same initial weights, another seed gives others."""
    one, other, third = (case.encoder(seed, disturbed=False) for seed in (1, 1, 2))
    changed = changed_tensor(one.state_dict(), other.state_dict())
    if changed:
        raise ConformanceFailure(
            f"{changed} differs between two encoders of the same seed",
            "draw initial weights with torch's own functions",
        )
    # caught: torch.manual_seed(0) in __init__, so that all seeds of a study begin alike
    if changed_tensor(one.state_dict(), third.state_dict()) is None:
        raise ConformanceFailure(
            "another seed gives the same initial weights", "do not seed torch in __init__"
        )


@check("encoder", after=("builds",))
def shapes_are_right(case: EncoderCase) -> None:
    """``tokens`` is ``(T, H)``, ``cls`` and ``pooled`` ``(B, H)``, all finite float32."""
    encoder, batch = case.encoder(), case.batch()
    output = encoder(batch)
    if not isinstance(output, EncoderOutput):
        raise ConformanceFailure(
            f"forward() returns a {type(output).__name__}",
            "return bertlab.api.batch.EncoderOutput(tokens=…, batch=batch, pooler=…)",
        )
    width = encoder.hidden_size
    _expect("tokens", output.tokens, (len(batch.input_ids), width))
    _expect("cls", output.cls, (len(batch), width))
    _expect("pooled", output.pooled, (len(batch), width))
    if output.batch is not batch:
        raise ConformanceFailure("output.batch is not the batch", "give EncoderOutput(batch=batch)")


@check("encoder", after=("shapes_are_right", "evaluation_repeats"))
def all_layers_are_there_if_asked_for(case: EncoderCase) -> None:
    """``all_layers=True`` gives L + 1 tensors ``(T, H)`` and the same ``tokens``; else None."""
    encoder, batch = case.encoder(), case.batch()
    plain, full = encoder(batch), encoder(batch, all_layers=True)
    if plain.all_layers is not None:
        raise ConformanceFailure(
            "all_layers is there though nobody asked", "return None: the layers take memory"
        )
    found = 0 if full.all_layers is None else len(full.all_layers)
    if found != encoder.num_hidden_layers + 1:
        raise ConformanceFailure(
            f"all_layers has {found} tensors, num_hidden_layers is {encoder.num_hidden_layers}",
            "return the embeddings and the output of each layer",
        )
    for number, layer in enumerate(full.all_layers):
        _expect(f"all_layers[{number}]", layer, (len(batch.input_ids), encoder.hidden_size))
    if not torch.equal(plain.tokens, full.tokens):
        raise ConformanceFailure(
            "all_layers=True changes tokens", "collect the layers and compute the same"
        )


@check("encoder", after=("shapes_are_right",))
def gradient_reaches_every_parameter(case: EncoderCase) -> None:
    """Every parameter gets a gradient from the pooled output and the hidden states."""
    encoder = case.encoder()
    with seeded(SEED):
        output = encoder.train()(case.batch())
        # a plain sum would not do: LayerNorm's output sums up to the same whatever is below it
        weights = torch.randn(encoder.hidden_size)
        torch.autograd.backward((output.tokens @ weights).sum() + (output.pooled @ weights).sum())
    missing = without_gradient(encoder.named_parameters())
    if missing:
        raise ConformanceFailure(
            f"no gradient reaches {', '.join(missing[:5])}",
            "use the layer in forward(), look for .detach() before it, or remove it",
        )


@check("encoder", after=("shapes_are_right",))
def pooler_is_apart(case: EncoderCase) -> None:
    """``tokens`` does not depend on the pooler, which is frozen where no task reads ``pooled``."""
    encoder = case.encoder()
    weights = torch.linspace(-1, 1, encoder.hidden_size)  # (H,), no two equal
    torch.autograd.backward((encoder(case.batch()).tokens @ weights).sum())
    reached = [name for name, value in encoder.pooler.named_parameters() if value.grad is not None]
    if reached:
        raise ConformanceFailure(
            f"tokens depend on pooler.{reached[0]}",
            "let pooler hold only the layers that make the pooled output",
        )


@check("encoder", after=("shapes_are_right",))
def forward_leaves_the_batch_alone(case: EncoderCase) -> None:
    """``forward`` changes no tensor of the batch, which the tasks read afterwards."""
    batch = case.batch()
    before = tensors_of(batch)
    case.encoder()(batch)
    changed = changed_tensor(before, tensors_of(batch))
    if changed:
        raise ConformanceFailure(f"{changed} of the batch is changed", "work on a copy")


@check("encoder", after=("shapes_are_right",))
def evaluation_repeats(case: EncoderCase) -> None:
    """In evaluation mode, the same batch gives the same states to the last bit."""
    encoder, batch = case.encoder(), case.batch()
    one, other = encoder(batch).tokens, encoder(batch).tokens
    if not torch.equal(one, other):
        raise ConformanceFailure(
            f"two passes differ by up to {tensor_difference(one, other):.3g}",
            "drop out only while self.training: nn.Dropout, or F.dropout(x, p, self.training)",
        )


@check("encoder", after=("evaluation_repeats",))
def bfloat16_is_close(case: EncoderCase) -> None:
    """Under bf16 autocast the states are finite and about the same."""
    encoder, batch = case.encoder(disturbed=False), case.batch()
    full = encoder(batch).tokens.detach()
    with torch.autocast("cpu", torch.bfloat16):
        half = encoder(batch).tokens.detach().float()
    error = float((half - full).norm() / full.norm())
    # NaN is not below either
    if not error < 0.1:
        raise ConformanceFailure(
            f"the states are off by {error:.1%} under bf16 autocast",
            "compute norms, softmax and long sums in float32",
        )


@check("encoder", after=("shapes_are_right",))
def every_length_works(case: EncoderCase) -> None:
    """One token, one sequence, 100 short ones, and ``max_position_embeddings`` tokens work."""
    encoder = case.encoder()
    longest = min(encoder.max_position_embeddings, 512)
    # caught: squeeze() of one token, a position table that is one row short
    for lengths in ([1], [longest], [longest, 1, 3], [1 + n % 5 for n in range(100)]):
        batch = case.batch(lengths)
        output = encoder(batch)
        words = f"{len(lengths)} sequences of {min(lengths)} to {max(lengths)} tokens"
        _expect(f"tokens of {words}", output.tokens, (sum(lengths), encoder.hidden_size))
        _expect(f"pooled of {words}", output.pooled, (len(lengths), encoder.hidden_size))


def _expect(name: str, value: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(value.shape) != shape or value.dtype != torch.float32:
        raise ConformanceFailure(
            f"{name} is {tuple(value.shape)} {value.dtype}, expected {shape} torch.float32",
            "see EncoderOutput: T tokens of B sequences laid end to end, width hidden_size",
        )
    if not value.isfinite().all():
        raise ConformanceFailure(
            f"{name} is not finite", "look for a softmax over nothing but -inf, or 0/0"
        )


_ADVICE = (
    "use batch.cu_seqlens: bertlab.encoders.attention.packed_attention and "
    "bertlab.encoders.layers.packed_lstm keep to it, as does batch.pad(…) with "
    "batch.attention_mask"
)


@check("encoder", after=("evaluation_repeats",))
def states_do_not_leak(case: EncoderCase) -> None:
    """The states of a packed batch are those of its sequences, each encoded alone."""
    encoder, batch = case.encoder(), case.batch()
    output = encoder(batch, all_layers=True)
    # caught: attention over the whole batch, a convolution or LSTM across the borders
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
    # words 6 to 11 change; states 0 to 5 may only notice if the encoder is not causal
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


@check("encoder", after=("states_do_not_leak",))
def directions_are_read(case: EncoderCase) -> None:
    """With ``reads_directions``, ``batch.causal`` says of each sequence what its states see."""
    encoder = case.encoder()
    if not encoder.reads_directions:
        raise NotApplicable("reads_directions is False")
    batch = case.batch([12, 7, 12, 12])
    causal = torch.tensor([True, False, False, True])
    batch.fields["causal"] = causal
    output = encoder(batch)
    # caught: one direction for all of a batch, or the encoder's own
    alone = [encoder(each) for each in _each(batch)]
    _same("tokens of two directions", output.tokens, torch.cat([each.tokens for each in alone]))
    for number, part in enumerate(_each(batch)):
        before = encoder(part)
        for name, place in (("first", slice(0, 2)), ("last", slice(-2, None))):
            if tensor_difference(before.cls, encoder(_changed(part, place)).cls) < SAME_STATE:
                raise ConformanceFailure(
                    f"where causal is {bool(causal[number])}, the {name} words do not change cls",
                    "let summary go by batch.causal, as bertlab.extend's summary_token does",
                )
        right = encoder(_changed(part, slice(4, None))).tokens[:4]
        if (tensor_difference(before.tokens[:4], right) > SAME_STATE) == bool(causal[number]):
            raise ConformanceFailure(
                f"where batch.causal is {bool(causal[number])}, words to the right change "
                f"{'a' if causal[number] else 'no'} state",
                "go by batch.causal in every layer, as packed_attention does, or set "
                "reads_directions to False",
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
    ids[1:11] = ids[1:11].flip(0)  # a b c … j -> j … c b a
    backwards = encoder(replace(batch, input_ids=ids)).tokens
    # a bag of words would give each word the state that it had before, only elsewhere
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
    # caught: summary = first_token in a left-to-right encoder, which has seen one word
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
    # caught: a state that goes on from one sequence to the next, as of an LSTM
    backwards = encoder(pack([part.input_ids.tolist() for part in reversed(parts)])).tokens
    pieces = backwards.split([len(part.input_ids) for part in reversed(parts)])
    _same("tokens in reverse order", encoder(batch).tokens, torch.cat(pieces[::-1]))


def _each(batch: PackedBatch) -> list[PackedBatch]:
    parts = [pack([ids.tolist()]) for ids in torch.split(batch.input_ids, batch.lengths.tolist())]
    for number, part in enumerate(parts if batch.causal is not None else ()):
        part.fields["causal"] = batch.fields["causal"][number : number + 1]
    return parts


def _changed(batch: PackedBatch, place: slice) -> PackedBatch:
    """Return the batch with other words in one place."""
    ids = batch.input_ids.clone()
    # ids [5, 0, 9] -> [4, 1, 8]: all differ, and none is out of range
    ids[place] = torch.where(ids[place] > 0, ids[place] - 1, 1)
    return replace(batch, input_ids=ids)


def _same(name: str, one: Tensor, other: Tensor) -> None:
    found = state_difference(one, other)
    if found > SAME_STATE:
        raise ConformanceFailure(f"{name} of packed sequences are off by {found:.3g}", _ADVICE)
