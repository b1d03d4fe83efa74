"""CUDA graphs of training: a GPU replays forward and backward pass as they were recorded once.

A step of BERT-Base is 600 kernels. Python takes as long to launch them as an H100 to compute them;
a recorded step is one launch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from lightning.pytorch import Trainer
from torch import Tensor
from torch.optim import Optimizer

from bertlab.api import PackedBatch
from bertlab.extend import BertModule, Passes, say
from bertlab_gpu.filling import FilledBatch


def can_replay(trainer: Trainer) -> bool:
    """Whether passes over batches can be recorded: on one GPU, in bf16, whose kernels pad nothing.

    With fp16 a scaler changes the loss, and several devices exchange gradients during the pass.
    """
    on_gpu = trainer.strategy.root_device.type == "cuda"
    return on_gpu and trainer.world_size == 1 and str(trainer.precision).startswith("bf16")


def use_own_stream() -> None:
    """Let this thread compute on a stream of its own, as the first one cannot be recorded.

    To be called before anything is differentiated: a parameter's gradient is added up on the stream
    on which the parameter was used first.
    """
    if torch.cuda.current_stream() == torch.cuda.default_stream():  # else an earlier stage has
        torch.cuda.set_stream(torch.cuda.Stream())  # type: ignore[no-untyped-call]


_MOST = 96  # shapes that are recorded; were there more, none would come twice


@dataclass(frozen=True)
class _Recorded:
    """One shape of a batch: where its input is read, and what is replayed."""

    batch: PackedBatch
    counts: Tensor
    shares: Tensor
    graph: torch.cuda.CUDAGraph


class StepGraphs(Passes):
    """Records the passes over a micro-batch once for each shape that batches have."""

    is_replaying = True  # until something stops it

    def begin(self, module: BertModule) -> None:
        """Forget what was recorded; the module is on the GPU, and on a stream of its own."""
        self._module = module
        self._parameters = [each for each in module.parameters() if each.requires_grad]
        self._gradients: list[Tensor | None] = []
        self._recorded: dict[tuple[object, ...], _Recorded] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self.is_replaying = True
        # whether the parameters have the gradient of the last batch that was asked for
        self._has_gradient = False

    def shares(self, module: BertModule, batch: PackedBatch, batch_idx: int) -> list[Tensor]:
        """Return a batch's shares of the step's losses; a replayed pass leaves their gradient."""
        replayed = self._replay(batch, batch_idx)
        return super().shares(module, batch, batch_idx) if replayed is None else replayed

    def backward(self, loss: Tensor) -> None:
        """Compute the gradient, unless a replayed pass has."""
        if not self._has_gradient:
            super().backward(loss)

    def zero_gradients(self, optimizer: Optimizer) -> None:
        """Forget the gradient of the last step, unless a replayed pass has written over it."""
        if not self._has_gradient:
            optimizer.zero_grad(set_to_none=False)  # replayed passes add to it

    def _replay(self, batch: PackedBatch, batch_idx: int) -> list[Tensor] | None:
        """Return the shares; None, and no gradient, if the batch is to be computed as usual."""
        self._has_gradient = False
        if self.is_replaying and not isinstance(batch, FilledBatch):
            self._stop("a task does not fill up its batches (see bertlab-gpu)")
        if not self.is_replaying:
            return None
        adds = batch_idx % self._module.trainer.accumulate_grad_batches > 0
        counts = self._module.counts(batch)
        found = self._recorded.get((adds, *_shape(batch)))
        if found is None:
            if len(self._recorded) == _MOST:
                return None
            found = self._try_to_record(batch, batch_idx, counts, adds)
            if found is None:
                return None
        inputs = [*_tensors(batch), counts]
        torch._foreach_copy_([*_tensors(found.batch), found.counts], inputs)
        found.graph.replay()
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        self._has_gradient = True
        return list(found.shares.clone())  # the next replay writes over its own

    def _try_to_record(
        self, batch: PackedBatch, batch_idx: int, counts: Tensor, adds: bool
    ) -> _Recorded | None:
        try:
            found = self._record(batch, counts, adds)
            self._recorded[adds, *_shape(batch)] = found
        except RuntimeError as error:  # of a task that waits for the GPU, for example
            first = error.__context__ or error  # what came before the record was closed
            # the generator still believes to be recorded
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            generator.graphsafe_set_state(torch.Generator("cuda").graphsafe_get_state())
            self._stop(str(first).splitlines()[0])
            found = None
        self._module.on_train_batch_start(batch, batch_idx)  # draws begin anew
        return found

    def _stop(self, reason: str) -> None:
        self.is_replaying = False
        self._recorded.clear()
        say(f"training continues without CUDA graphs: {reason}")

    def _record(self, batch: PackedBatch, counts: Tensor, adds: bool) -> _Recorded:
        inputs, numbers = batch.map_tensors(Tensor.clone), counts.clone()
        for _ in range(1 if self._recorded else 3):  # compiles, and loads what is launched
            _, gradients = self._passes(inputs, numbers)
        if not self._gradients:
            self._gradients = [None if g is None else torch.empty_like(g) for g in gradients]
        del gradients
        # casts of weights that autocast keeps would be recorded as they are now
        torch.clear_autocast_cache()
        graph = torch.cuda.CUDAGraph()
        # other threads, of the data loader, may use the GPU meanwhile
        with torch.cuda.graph(
            graph, self._pool, torch.cuda.current_stream(), capture_error_mode="thread_local"
        ):
            shares, gradients = self._passes(inputs, numbers)
            pairs = zip(self._gradients, gradients, strict=True)
            kept = [(old, new) for old, new in pairs if old is not None and new is not None]
            olds, news = [old for old, _ in kept], [new for _, new in kept]
            if adds:
                torch._foreach_add_(olds, news)
            else:
                torch._foreach_copy_(olds, news)
        torch.clear_autocast_cache()
        return _Recorded(inputs, numbers, shares, graph)

    def _passes(self, batch: PackedBatch, counts: Tensor) -> tuple[Tensor, Sequence[Tensor | None]]:
        with torch.enable_grad():
            shares = torch.stack(self._module.shares(batch, counts))
            total = shares.sum()
        with torch.autocast("cuda", enabled=False):
            gradients = torch.autograd.grad(total, self._parameters, allow_unused=True)
        return shares.detach(), gradients


def _tensors(batch: PackedBatch) -> list[Tensor]:
    own = [batch.input_ids, batch.token_type_ids, batch.position_ids, batch.cu_seqlens]
    read = [] if batch.tokens_read is None else [batch.tokens_read]
    return [*own, *read, *batch.fields.values()]


def _shape(batch: PackedBatch) -> tuple[object, ...]:
    shapes = tuple((*each.shape, each.dtype) for each in _tensors(batch))
    return (*shapes, *batch.fields, *batch.counts, batch.max_seqlen)
