"""Checks of an encoder below tasks: learning, saving, devices, the states that tasks read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bertlab import NextSentencePrediction
from bertlab.api import EncoderOutput, PackedBatch, TaskLoss
from bertlab.extend import SingleSentence
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, NotApplicable, check
from bertlab_conformance.checks import building as saving_checks
from bertlab_conformance.checks import training as training_checks
from bertlab_conformance.checks.training import refused_output
from bertlab_conformance.comparisons import (
    SAME_STATE,
    difference,
    pickled,
    state_difference,
    tensor_difference,
)
from bertlab_conformance.device_watch import DeviceWatch
from bertlab_conformance.stack import Stack
from bertlab_conformance.task_cases import EncoderCase, TaskCase


class AllLayers(SingleSentence):
    """Classify a text by the mean of what all layers give; the encoder is not trained."""

    trains_encoder = False
    reads_all_layers = True
    huggingface = None  # type: ignore[assignment]  # it has no form

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy, summed over B sequences."""
        return super().loss(_mean_of_layers(output), batch)

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return label and probabilities of each sequence."""
        return super().decode(_mean_of_layers(output), batch)


_AFTER = ("shapes_are_right", "evaluation_repeats")


@check("encoder", after=(*_AFTER, "gradient_reaches_every_parameter"))
def learns(case: EncoderCase) -> None:
    """Below ``mlm`` (``clm`` if ``causal``), 100 steps on a batch lower its loss by 15 %."""
    training_checks.learns.run(case.language_model())


@check("encoder", after=_AFTER)
def tasks_can_read_it(case: EncoderCase) -> None:
    """``nsp``, ``single_sentence`` and a head that reads all layers have a loss on it."""
    cases = [
        case.below(NextSentencePrediction),
        case.below(SingleSentence),
        case.below(AllLayers),
    ]
    for each in cases:
        stack = each.stack()
        batch = each.all(stack)
        loss = stack.loss(batch).sum.item()
        if loss != loss or len(stack.decode(batch)) != len(batch):  # noqa: PLR0124  NaN
            raise ConformanceFailure(
                f"the loss of {each.plugin.__name__} is {loss}", "look at cls, pooled, tokens"
            )


@check("encoder", after=_AFTER)
def saved_and_restored_is_the_same(case: EncoderCase) -> None:
    """A new encoder that loads the ``state_dict`` of another gives the same, after training too."""
    saving_checks.saved_and_restored_is_the_same.run(case.language_model())


@check("encoder", after=("saved_and_restored_is_the_same",))
def resumes_exactly(case: EncoderCase) -> None:
    """Two steps, a checkpoint and two more steps give the very weights of four steps."""
    saving_checks.resumes_exactly.run(case.language_model())


@check("encoder", after=_AFTER)
def state_is_complete_after_init(case: EncoderCase) -> None:
    """Using an encoder adds nothing to its ``state_dict``: all layers are there from the start."""
    encoder = case.encoder()
    before = set(encoder.state_dict())
    encoder(case.batch(), all_layers=True)
    changed = before ^ set(encoder.state_dict())
    if changed:
        raise ConformanceFailure(
            f"after forward(), state_dict() has changed by {', '.join(sorted(changed))}",
            "make every layer in __init__",
        )


@check("encoder", after=_AFTER)
def pickles(case: EncoderCase) -> None:
    """The encoder can be pickled, and its copy gives the same."""
    encoder, batch = case.encoder(), case.batch()
    copy = pickled(encoder, "encoder")
    found = tensor_difference(encoder(batch).tokens, copy(batch).tokens)
    if found:
        raise ConformanceFailure(
            f"the states of a copy that was pickled are off by {found:.3g}",
            "keep in the object all that it needs",
        )


@check("encoder", after=_AFTER)
def config_can_make_it_anew(case: EncoderCase) -> None:
    """Two encoders of the same arguments have the same parameters by name and shape."""
    one, other = (case.encoder(seed).state_dict() for seed in (1, 2))
    shapes = [{name: tuple(value.shape) for name, value in each.items()} for each in (one, other)]
    if shapes[0] != shapes[1]:
        raise ConformanceFailure(
            "two encoders of the same arguments have different parameters",
            "let names and shapes of layers follow from the arguments alone",
        )


@check("encoder", after=_AFTER)
def prints_nothing(case: EncoderCase) -> None:
    """Making and using it writes nothing to the terminal."""
    with refused_output():
        case.encoder()(case.batch(), all_layers=True)


@check("encoder", after=_AFTER)
def keeps_to_the_device(case: EncoderCase) -> None:
    """No tensor that is made without ``device`` meets the batch, which a GPU would refuse."""
    encoder, batch = case.encoder(), case.batch()
    with DeviceWatch():
        _ = encoder(batch, all_layers=True).pooled


@check("encoder", after=("keeps_to_the_device",))
def runs_on_a_gpu(case: EncoderCase) -> None:
    """On a GPU, where there is one, the states are about the same."""
    if not torch.cuda.is_available():
        raise NotApplicable("there is no GPU")
    encoder, batch, device = case.encoder(), case.batch(), torch.device("cuda")
    here = encoder(batch).tokens
    there = encoder.to(device)(batch.to(device)).tokens.cpu()
    found = tensor_difference(here, there)
    if found > 0.01:
        raise ConformanceFailure(
            f"the states are off by {found:.3g} on the GPU",
            "make new tensors on the batch's device (values.new_zeros, device=…), and tables "
            "buffers",
        )


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar", "evaluation_repeats"))
def tokens_read_are_enough(case: TaskCase) -> None:
    """``loss`` and ``decode`` need no states but those of ``tokens_read``, ``cls`` and ``pooled``.

    ``loss`` is asked about a labelled batch, ``decode`` about one to predict.
    """
    stack = case.stack()
    # places may differ: mlm reads the masked ones of a labelled batch, all [MASK] of another
    labelled, unlabelled = stack.rewritten(case.all(stack)), case.unlabelled(stack)
    places = [_places(stack, batch) for batch in (labelled, unlabelled)]
    if places == [None, None]:
        raise NotApplicable("tokens_read() returns None: all states are there")

    def loss(output: EncoderOutput) -> float:
        return stack.task.loss(output, labelled).sum.item()

    def decode(output: EncoderOutput) -> object:
        return stack.task.decode(output, unlabelled)

    with torch.no_grad():
        _compare("loss", loss, stack, labelled, places[0])
        _compare("decode", decode, stack, unlabelled, places[1])


@check("encoder", after=("evaluation_repeats",))
def states_that_are_read_are_right(case: EncoderCase) -> None:
    """States that ``tokens_read`` of a batch names are as they are without it, as is ``pooled``.

    So are their gradients.
    """
    encoder, batch = case.encoder(), case.batch()
    places = torch.arange(2, len(batch.input_ids), 3)  # 2, 5, 8, …
    results = []
    for read in (None, places):
        encoder.zero_grad()
        output = encoder(replace(batch, tokens_read=read))
        states = torch.cat([output.tokens[places], output.cls, output.pooled])
        torch.autograd.backward(states.square().sum())
        results.append([states.detach(), *_gradients(encoder)])
    for one, other in zip(*results, strict=True):
        found = state_difference(one, other)
        if found > SAME_STATE:
            raise ConformanceFailure(
                f"states or gradients are off by {found:.3g} where tokens_read is given",
                "compute all states that batch.tokens_read names and those of output.cls, or all "
                "there are",
            )


def _mean_of_layers(output: EncoderOutput) -> EncoderOutput:
    assert output.all_layers is not None
    # (L + 1, T, H) -> (T, H)
    return replace(output, tokens=torch.stack(output.all_layers).mean(0))


def _gradients(encoder: torch.nn.Module) -> list[Tensor]:
    return [each.grad for each in encoder.parameters() if each.grad is not None]


def _places(stack: Stack, batch: PackedBatch) -> Tensor | None:
    """Return what the task says, if that has the right form."""
    found = stack.task.tokens_read(batch)
    if found is None:
        return None
    if not torch.is_tensor(found) or found.dtype != torch.int64 or found.dim() != 1:
        shown = f"{tuple(found.shape)} {found.dtype}" if torch.is_tensor(found) else repr(found)
        raise ConformanceFailure(
            f"tokens_read() returns {shown[:80]}",
            "return (N,) int64 places in input_ids, or None for all",
        )
    return found


def _compare(
    name: str,
    compute: Callable[[EncoderOutput], object],
    stack: Stack,
    batch: PackedBatch,
    places: Tensor | None,
) -> None:
    """Compute from the states of ``places`` alone; fail if the result differs."""
    if places is None:
        return
    whole = stack.output(batch)
    summary = whole.cls
    # all other states are 0, as an encoder may leave them: a loss that reads one changes
    tokens = torch.zeros_like(whole.tokens)
    tokens[places] = whole.tokens[places]
    bare = replace(whole, tokens=tokens, summary=lambda *_: summary)
    found = difference(compute(bare), compute(whole))
    if found is not None:
        raise ConformanceFailure(
            f"{name}() without the states that tokens_read() leaves out: {found.strip()}",
            f"name all places of output.tokens that {name}() reads, or return None for all",
        )
