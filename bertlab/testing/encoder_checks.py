"""Checks of an encoder's attributes, shapes and parameters."""

import torch
from torch import Tensor, nn

from bertlab.packed_batch import EncoderOutput
from bertlab.testing.building_checks import USABLE
from bertlab.testing.cases import SEED
from bertlab.testing.check import check
from bertlab.testing.comparisons import changed_tensor, tensor_difference
from bertlab.testing.encoder_case import EncoderCase
from bertlab.testing.failures import ConformanceFailure
from bertlab.testing.gradient_checks import without_gradient
from bertlab.testing.stacks import seeded, tensors_of

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
                f"set self.{name} in __init__; tasks read it (bertlab.encoders.base.Encoder)",
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
                "initialise it: bertlab.encoders.initialization.initialize(self, "
                "initializer_range)",
            )


@check("encoder", after=("builds",))
def token_embedding_fits(case: EncoderCase) -> None:
    """``token_embedding`` has a row for each id, of width ``hidden_size``, as ``mlm`` needs it."""
    encoder = case.encoder()
    size = case.language.tokenizer.vocab_size
    shape = tuple(encoder.token_embedding.weight.shape)
    if shape != (size, encoder.hidden_size) or encoder.vocab_size != size:
        raise ConformanceFailure(
            f"token_embedding is {shape}, vocab_size {encoder.vocab_size}, for {size} ids and "
            f"hidden_size {encoder.hidden_size}",
            "make nn.Embedding(vocab_size, hidden_size); project it inside if the layers are "
            "of another width",
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
            "return bertlab.packed_batch.EncoderOutput(tokens=…, batch=batch, pooler=…)",
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
    weights = torch.linspace(-1, 1, encoder.hidden_size)
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
