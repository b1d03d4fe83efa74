"""Whether a training step fits into memory: estimated from a few sequences, before training.

What stays is the weights, their gradients and the optimiser's moments. What a micro-batch adds is
what autograd saves for the backward pass, which is measured on a few sequences: it grows with their
number.
"""

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import torch
from lightning.pytorch import Trainer
from torch import Tensor

from bertlab.api import TaskData
from bertlab.extend import BertModule, TrainerError, free_memory, say, warn, whole_ends
from bertlab_gpu.recomputation import ALL, AUTO, Recomputation, SavedBytes, kept_at_once

_SAMPLE = 16  # sequences that are measured
_COPIES = 4  # of each trained weight: itself, its gradient, and two moments, as AdamW has
_TEMPORARY = 1.3  # the backward pass has gradients beside what was saved
_FILLED = 0.8  # of the free memory, which is as much as parts are chosen for
_HARMLESS = 0.2  # of the free memory: a step that takes less is not measured


@dataclass(frozen=True)
class StepMemory:
    """What a training step takes of one device.

    Attributes:
        model: bytes that stay, whatever the batch.
        token: bytes for each token of a micro-batch.
        layers: those of them that each layer of the encoder keeps.
        inputs: those of the input of one layer.
    """

    model: float
    token: float
    layers: tuple[float, ...] = ()
    inputs: float = 0.0

    def of(self, tokens: float, recomputed: Collection[int] = ()) -> float:
        """Return the bytes of a step whose micro-batches have so many tokens.

        ``recomputed``: layers that the backward pass computes again.
        """
        outside = self.token - sum(self.layers)
        token = kept_at_once(outside, self.layers, self.inputs, recomputed)
        return self.model + token * tokens

    def fewest_layers(self, tokens: float, room: float) -> Sequence[int]:
        """Return the fewest layers from below by whose recomputation a step fits, or the best."""
        choices = [range(number) for number in range(len(self.layers) + 1)]
        fitting = (each for each in choices if self.of(tokens, each) <= room)
        # one layer alone saves nothing, as it is there while it is recomputed
        return next(fitting, min(choices, key=lambda each: self.of(tokens, each)))


def choose_parts(model: BertModule, data: TaskData, trainer: Trainer, chooses: bool) -> int | None:
    """See that a step fits into memory; return the parts to divide it into, if asked to choose.

    Layers are recomputed before a step is divided, or refused, unless ``recompute`` says which.
    """
    if chooses and trainer.world_size > 1:
        raise TrainerError(
            f"trainer.accumulate_grad_batches: found {AUTO} on {trainer.world_size} devices, "
            "expected a number, which is the same on all of them"
        )
    callbacks: list[object] = getattr(trainer, "callbacks")  # noqa: B009  untyped
    recomputation = next((each for each in callbacks if isinstance(each, Recomputation)), None)
    given = None if recomputation is None else recomputation.chosen(model.encoder)
    layers: Sequence[int] = given or ()
    free = free_memory(trainer.strategy.root_device)
    _, sequences = whole_ends(data.sequences_per_step())
    parts: int = trainer.accumulate_grad_batches
    size = math.ceil(sequences / (trainer.world_size * parts))
    if free is not None and (chooses or _rough(model, data, size) > _HARMLESS * free):
        memory = measure(model, data, trainer)
        mean, _ = data.mean_lengths()
        room = _FILLED * free

        def best(tokens: float) -> Sequence[int]:
            return memory.fewest_layers(tokens, room) if given is None else given

        if chooses:
            longest = data.max_seq_length
            parts = _fewest_parts(lambda n: memory.of(n, best(n)), sequences, longest, room)
            size = math.ceil(sequences / parts)
            layers = best(size * longest)
        elif memory.of(size * mean) > free:
            layers = best(size * mean)
        if memory.of(size * mean, layers) > free:
            raise TrainerError(_too_large(memory, layers, size, mean, free))
        if given is None and layers and trainer.is_global_zero:
            say(
                f"the {len(layers)} lowest of {len(memory.layers)} layers are recomputed in the "
                "backward pass, so that a step fits into memory (--recompute 0: never)"
            )
    if recomputation is not None:
        recomputation.start(model, layers)
    return parts if chooses else None


def _fewest_parts(takes: Callable[[float], float], sequences: int, length: int, room: float) -> int:
    """Return the fewest parts whose sequences, all of the longest length, have room."""
    for parts in range(1, sequences):
        # 10 sequences in 4 parts are 3, 3, 2 and 2
        if takes(math.ceil(sequences / parts) * length) <= room:
            return parts
    return sequences


def measure(model: BertModule, data: TaskData, trainer: Trainer) -> StepMemory:
    """Run a few sequences forward, and see what they leave; nothing of the model changes."""
    device = trainer.strategy.root_device
    data.trainer = trainer
    data.train_dataloader()
    batch = data.training_steps.first(_SAMPLE)
    if device.type != "cpu":
        model.to(device)
        batch = batch.to(device)
    buffers = {name: each.clone() for name, each in model.named_buffers()}
    devices = [] if device.type == "cpu" else [device]
    forward = trainer.precision_plugin.forward_context()
    with torch.random.fork_rng(devices), forward, SavedBytes(model) as saved:
        model.losses(batch)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    trained = _bytes(each for each in model.parameters() if each.requires_grad)
    each = _TEMPORARY / len(batch.input_ids)
    return StepMemory(
        model=_bytes(model.parameters()) + (_COPIES - 1) * trained,
        token=each * saved.peak(()),
        layers=tuple(each * layer for layer in saved.layers),
        inputs=each * saved.inputs,
    )


def _rough(model: BertModule, data: TaskData, sequences: float) -> float:
    """Return about how many bytes a step takes, from sizes alone."""
    encoder, tokens = model.encoder, sequences * data.max_seq_length
    weights = _bytes(model.parameters())
    layer = 40 * encoder.hidden_size + 32 * data.max_seq_length  # numbers that a token leaves in it
    return _COPIES * weights + 4 * tokens * (encoder.num_hidden_layers * layer + encoder.vocab_size)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def _too_large(
    memory: StepMemory, layers: Collection[int], size: int, length: float, free: int
) -> str:
    text = (
        f"a step needs about {_gigabytes(memory.of(length * size, layers))} of memory, "
        f"{_gigabytes(memory.model)} of it for the model, and {_gigabytes(free)} are free: it has "
        f"{size:,} sequences at a time (data.batch_size / trainer.accumulate_grad_batches). "
    )
    every = range(len(memory.layers))
    if len(layers) < len(every) and memory.of(length * size, every) <= free:
        return f"{text}Expected --recompute {AUTO} or {ALL}, which changes nothing else"
    if memory.of(length, layers) > _FILLED * free:
        return (
            f"{text}Not even one at a time fits; expected a smaller model (model.encoder.preset: "
            "small, mini, tiny) or shorter sequences (data.max_seq_length)"
        )
    return (
        f"{text}Expected --trainer.accumulate_grad_batches {AUTO}, which divides a step into parts "
        "that fit and changes nothing else, or a smaller model.encoder.preset: small, mini, tiny"
    )


def _gigabytes(size: float) -> str:
    if size < 1e9:
        return f"{size / 1e6:.0f} MB"
    return f"{size / 1e9:,.1f} GB" if size < 1e13 else f"{size / 1e12:,.0f} TB"


def warn_of_slow_bf16(trainer: Trainer) -> None:
    """Warn of a precision that this machine's CPU has no instructions for."""
    capability = torch.backends.cpu.get_cpu_capability()
    on_cpu = str(trainer.strategy.root_device) == "cpu"
    bf16 = str(trainer.precision).startswith("bf16")
    if on_cpu and bf16 and capability in ("DEFAULT", "AVX2"):
        warn(
            f"trainer.precision: {trainer.precision} on a CPU without bf16 instructions "
            f"({capability}) can be hundreds of times slower than 32-true"
        )
