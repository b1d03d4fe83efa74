"""Whether a training step fits into memory: estimated from a few sequences, before training.

What stays is the weights, their gradients and the optimiser's moments. What a micro-batch adds is
what autograd saves for the backward pass, which is measured on a few sequences: it grows with their
number.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from bertlab.api import TaskData
from bertlab.extend import BertModule, TrainerError, free_memory, warn, whole_ends

AUTO = "auto"  # of trainer.accumulate_grad_batches
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
    """

    model: float
    token: float

    def of(self, tokens: float) -> float:
        """Return the bytes of a step whose micro-batches have so many tokens."""
        return self.model + self.token * tokens


def choose_parts(model: BertModule, data: TaskData, trainer: Trainer, chooses: bool) -> int | None:
    """See that a step fits into memory; return the parts to divide it into, if asked to choose."""
    if chooses and trainer.world_size > 1:
        raise TrainerError(
            f"trainer.accumulate_grad_batches: found {AUTO} on {trainer.world_size} devices, "
            "expected a number, which is the same on all of them"
        )
    free = free_memory(trainer.strategy.root_device)
    _, sequences = whole_ends(data.sequences_per_step())
    parts: int = trainer.accumulate_grad_batches
    size = math.ceil(sequences / (trainer.world_size * parts))
    if free is not None and (chooses or _rough(model, data, size) > _HARMLESS * free):
        memory = measure(model, data, trainer)
        mean, _ = data.mean_lengths()
        if chooses:
            parts = _fewest_parts(memory, sequences, data.max_seq_length, _FILLED * free)
            size = math.ceil(sequences / parts)
        if memory.of(size * mean) > free:
            raise TrainerError(_too_large(memory, size, mean, free))
    return parts if chooses else None


def _fewest_parts(memory: StepMemory, sequences: int, length: int, room: float) -> int:
    """Return the fewest parts whose sequences, all of the longest length, have room."""
    for parts in range(1, sequences):
        # 10 sequences in 4 parts are 3, 3, 2 and 2
        if memory.of(math.ceil(sequences / parts) * length) <= room:
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
    own = {each.untyped_storage().data_ptr() for each in model.state_dict().values()}
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()  # two views of one are counted once
        return tensor

    buffers = {name: each.clone() for name, each in model.named_buffers()}
    devices = [] if device.type == "cpu" else [device]
    forward = trainer.precision_plugin.forward_context()
    hooks = saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.random.fork_rng(devices), forward, hooks:
        model.losses(batch)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    trained = _bytes(each for each in model.parameters() if each.requires_grad)
    return StepMemory(
        model=_bytes(model.parameters()) + (_COPIES - 1) * trained,
        token=_TEMPORARY * sum(saved.values()) / len(batch.input_ids),
    )


def _rough(model: BertModule, data: TaskData, sequences: float) -> float:
    """Return about how many bytes a step takes, from sizes alone."""
    encoder, tokens = model.encoder, sequences * data.max_seq_length
    weights = _bytes(model.parameters())
    layer = 40 * encoder.hidden_size + 32 * data.max_seq_length  # numbers that a token leaves in it
    return _COPIES * weights + 4 * tokens * (encoder.num_hidden_layers * layer + encoder.vocab_size)


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(each.numel() * each.element_size() for each in tensors)


def _too_large(memory: StepMemory, size: int, length: float, free: int) -> str:
    text = (
        f"a step needs about {_gigabytes(memory.of(length * size))} of memory, "
        f"{_gigabytes(memory.model)} of it whatever the batch, and {_gigabytes(free)} are free: it "
        f"has {size} sequences at a time (data.batch_size / trainer.accumulate_grad_batches). "
    )
    if memory.of(length) > _FILLED * free:
        return (
            f"{text}Not even one at a time fits; expected a smaller model (model.encoder.preset: "
            "small, mini, tiny) or shorter sequences (data.max_seq_length)"
        )
    return (
        f"{text}Expected --trainer.accumulate_grad_batches {AUTO}, which divides a step into parts "
        "that fit and changes nothing else, or a smaller model.encoder.preset: small, mini, tiny"
    )


def _gigabytes(size: float) -> str:
    return f"{size / 1e9:.1f} GB" if size < 1e13 else f"{size / 1e12:,.0f} TB"


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
