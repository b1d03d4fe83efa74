"""Checks of an encoder below tasks: learning, saving, going on, and what stands in its way."""

import torch

from bertlab.heads.feature_tagging import FeatureTagging
from bertlab.heads.single_sentence import SingleSentence
from bertlab.objectives.next_sentence import NextSentencePrediction
from bertlab.testing import saving_checks, training_checks
from bertlab.testing.check import check
from bertlab.testing.comparisons import tensor_difference
from bertlab.testing.device_watch import DeviceWatch
from bertlab.testing.encoder_case import EncoderCase
from bertlab.testing.failures import ConformanceFailure, NotApplicable
from bertlab.testing.pickling import pickled
from bertlab.testing.training_checks import refused_output

_AFTER = ("shapes_are_right", "evaluation_repeats")


@check("encoder", after=(*_AFTER, "gradient_reaches_every_parameter"))
def learns(case: EncoderCase) -> None:
    """Below ``mlm`` (``clm`` if ``causal``), 100 steps on a batch lower its loss by 15 %."""
    training_checks.learns.run(case.language_model())


@check("encoder", after=_AFTER)
def tasks_can_read_it(case: EncoderCase) -> None:
    """``nsp``, ``single_sentence`` and ``feature_tagging`` have a loss and predictions on it."""
    layers = list(range(case.encoder().num_hidden_layers + 1))
    cases = [
        case.below(NextSentencePrediction),
        case.below(SingleSentence),
        case.below(FeatureTagging, layers=layers, hidden_size=8),
    ]
    for each in cases:
        stack = each.stack()
        batch = each.all(stack)
        loss = stack.loss(batch).sum.item()
        if loss != loss or len(stack.decode(batch)) != len(batch):  # noqa: PLR0124  NaN
            raise ConformanceFailure(
                f"the loss of {each.plugin.__name__} is {loss}", "look at cls, pooled, all_layers"
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
