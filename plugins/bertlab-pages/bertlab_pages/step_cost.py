"""Seconds and memory of an optimizer step on this machine, from a few that are timed."""

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

import bertlab
from bertlab.api import PackedBatch
from bertlab.extend import BertModule, build_optimizer

_BUDGET = 0.3  # seconds that a timed part may take, where fewer sequences do as well
_OVERHEAD = 2e-3  # seconds of a step that Lightning, logs and callbacks take
_COPIES = 4  # of each trained weight: itself, its gradient, and two moments
_TEMPORARY = 1.3  # the backward pass has gradients beside what was saved


@dataclass(frozen=True)
class StepCost:
    """What a step takes of one device.

    Attributes:
        seconds: of a whole optimizer step.
        evaluation: seconds of a held-out sequence.
        memory: bytes of weights, gradients, moments, and what a micro-batch saves.
        tokens: mean of a sequence.
        checkpoint: bytes of a checkpoint.
    """

    seconds: float
    evaluation: float
    memory: float
    tokens: float
    checkpoint: float


@dataclass
class Steps:
    """Times steps of a module, whose weights are changed by that.

    Args:
        module: with tasks and optimizer, on its device.
        first: returns so many sequences of the first step, or fewer.
        sequences: in a step.
        parts: in which a step is computed.
        precision: as ``trainer.precision``.
        loads: whether the process that trains makes the batches as well.
        clock: seconds; :func:`time.process_time` where other programs share the processor.
        recompute: layers that the backward pass computes again, as the key of bertlab-gpu.
    """

    module: BertModule
    first: Callable[[int], PackedBatch]
    sequences: int
    parts: int
    precision: str
    loads: bool = True
    clock: Callable[[], float] = time.perf_counter
    recompute: Any = None

    def measure(self) -> StepCost:
        """Time a few steps."""
        module, device = self.module, self.module.device
        part = math.ceil(self.sequences / self.parts)
        module.train()
        size, seconds, saved, tokens = self._part(part)
        step = self._optimizer_step()
        if module.optimizer_config.recipe.needs_closure:  # which computes the gradient twice
            seconds *= 2
        module.eval()
        batch = self.first(size).to(device)
        evaluation = min(self._forward(batch) for _ in range(2)) / len(batch)
        trained = _bytes(p for p in module.parameters() if p.requires_grad)
        weights = _bytes(module.parameters())
        return StepCost(
            seconds=self.parts * seconds + step + _OVERHEAD,
            evaluation=evaluation,
            memory=weights + (_COPIES - 1) * trained + _TEMPORARY * saved * part,
            tokens=tokens,
            checkpoint=checkpoint_size(module),
        )

    def _part(self, part: int) -> tuple[int, float, float, float]:
        """Return sequences that were timed, seconds of a part, bytes and tokens of a sequence."""
        size = min(part, 2)
        saved = self._saved(size)
        times = {size: min(self._backward(size)[0] for _ in range(2))}
        # 2, 8, 32: as many as are quick
        while size < part and times[size] * min(4, part / size) < _BUDGET:
            size = min(4 * size, part)
            times[size] = min(self._backward(size)[0] for _ in range(2))
        seconds, tokens = self._backward(size)
        spent = seconds
        while spent < _BUDGET:
            again, _ = self._backward(size)
            spent, seconds = spent + again, min(seconds, again)
        seconds = min(seconds, times[size])
        if size < part and size > 1:
            half = min(self._backward(size // 2)[0] for _ in range(2))
            each = max((seconds - half) / (size - size // 2), 0.5 * seconds / size)
            seconds += each * (part - size)  # 8 take 4 s, 4 take 2.2 s: each of the others 0.45 s
        return size, seconds, saved, tokens

    def _backward(self, count: int) -> tuple[float, float]:
        """Return the seconds of a forward and backward pass, and tokens of a sequence."""
        self.module.zero_grad(set_to_none=True)
        made = self.clock()
        batch = self.first(count)
        begun = self.clock()
        batch = batch.to(self.module.device)
        with self._autocast():
            loss = _loss(self.module, batch)
        loss.backward()  # type: ignore[no-untyped-call]
        self._wait()
        seconds = self.clock() - (made if self.loads else begun)
        # of a first step that has fewer sequences
        return seconds * count / len(batch), len(batch.input_ids) / len(batch)

    def _optimizer_step(self) -> float:
        """Return the seconds of clipping and of the optimizer's step, once it has its moments."""
        module = self.module
        optimizer = build_optimizer(module.optimizer_config, module, self.precision != "16-mixed")
        times = []
        for _ in range(2):
            begun = self.clock()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step(None if not module.optimizer_config.recipe.needs_closure else _closure)
            self._wait()
            times.append(self.clock() - begun)
        return times[-1]

    @torch.no_grad()
    def _forward(self, batch: PackedBatch) -> float:
        begun = self.clock()
        with self._autocast():
            _loss(self.module, batch)
        self._wait()
        return self.clock() - begun

    def _saved(self, count: int) -> float:
        """Return bytes that autograd saves of a sequence, and recompute layers from then on."""
        if self.recompute is not None:
            saved_bytes, recompute_layers = (
                getattr(bertlab, name) for name in ("SavedBytes", "recompute_layers")
            )
            batch = self.first(count).to(self.module.device)
            with saved_bytes(self.module) as saved, self._autocast():
                _loss(self.module, batch)
            recomputed = recompute_layers(self.module.encoder, self.recompute)
            return float(saved.peak(recomputed)) / len(batch)
        own = {each.untyped_storage().data_ptr() for each in self.module.state_dict().values()}
        found: dict[int, int] = {}

        def keep(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            if storage.data_ptr() not in own:
                found[storage.data_ptr()] = storage.nbytes()  # two views of one are counted once
            return tensor

        batch = self.first(count).to(self.module.device)
        with saved_tensors_hooks(keep, lambda tensor: tensor), self._autocast():
            _loss(self.module, batch)
        return sum(found.values()) / len(batch)

    def _autocast(self) -> AbstractContextManager[object]:
        kinds = {"bf16-mixed": torch.bfloat16, "16-mixed": torch.float16}
        if self.precision not in kinds:
            return nullcontext()
        return torch.autocast(self.module.device.type, kinds[self.precision])

    def _wait(self) -> None:
        if self.module.device.type == "cuda":
            torch.cuda.synchronize()


def _loss(module: BertModule, batch: PackedBatch) -> Tensor:
    losses = [loss.sum.float() / max(1, int(loss.count)) for loss in module.losses(batch)]
    return torch.stack(losses).sum()


def _closure() -> float:
    return 0.0


def checkpoint_size(module: nn.Module) -> float:
    """Return the bytes of a checkpoint: weights, and two moments of those that are trained."""
    trained = _bytes(p for p in module.parameters() if p.requires_grad)
    return _bytes(module.parameters()) + 2 * trained


def _bytes(tensors: Iterable[Tensor]) -> float:
    return float(sum(each.numel() * each.element_size() for each in tensors))
