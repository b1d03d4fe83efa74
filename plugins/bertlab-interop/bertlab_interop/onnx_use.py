"""``validate``, ``test`` and ``predict`` with an ONNX file in place of encoder and heads' layers.

Rows are read, and outputs become labels, tags and answers, as with the checkpoint that was
exported: what changes is who computes.
"""

from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertlab import CheckpointError, CommandError, Pretrained
from bertlab.api import EncoderOutput, Head, PackedBatch, Task
from bertlab.extend import (
    BertlabCLI,
    Request,
    keep_freed_memory,
    one_head,
    quiet_lightning,
    read_request,
    split_arguments,
)
from bertlab_interop.exported_model import read_exported
from bertlab_interop.onnx_file import FILE, layer_of, output_names, reads_pooled

Compute = Callable[[PackedBatch], EncoderOutput]


class OnnxCLI(BertlabCLI):
    """A command of bertlab's whose module takes the outputs of a file for states.

    Args:
        command: ``validate``, ``test`` or ``predict``.
        request: what is asked for.
        start: the model, with the small encoder of :func:`read_exported`.
        folder: of the export.
    """

    def __init__(self, command: str, request: Request, start: Pretrained, folder: Path) -> None:
        self.folder = folder
        super().__init__(command, request, start, seed=0)

    def after_instantiate_classes(self) -> None:
        """Put the file in the place of the encoder."""
        super().after_instantiate_classes()
        tasks = self.model.named_tasks().values()
        self.sizes = [_size(task) for task in tasks]
        use_outputs(self.model, self.computed_by(self.folder / FILE))

    def computed_by(self, file: Path) -> Compute:
        """Return what computes the outputs of the tasks by a file."""
        from bertlab_interop.onnx_session import OnnxFile  # noqa: PLC0415  onnxruntime

        tasks, ids = [*self.model.named_tasks().values()], self.tokenizer.vocab_size
        session = OnnxFile(file, output_names(tasks))

        def compute(batch: PackedBatch) -> EncoderOutput:
            found = session.compute(batch)
            session.check_shapes(found, _expected(tasks, self.sizes, batch, found, ids))
            device = batch.input_ids.device
            return as_states(tasks, batch, [each.to(device) for each in found])

        return compute


def open_export(command: str, request: Request) -> OnnxCLI:
    """Return a command that uses an ONNX export.

    Raises:
        CommandError: onnxruntime is not installed, or the command needs what a file has not.
        CheckpointError: the folder is none that bertlab wrote, or damaged.
    """
    quiet_lightning()
    keep_freed_memory()
    assert request.ckpt_path is not None
    folder = Path(request.ckpt_path).expanduser()
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"--backend onnx: {' and '.join(missing)} not installed; pip install "
            "'bertlab-interop[onnx]'"
        )
    if request.files:
        raise CommandError(
            "--config: found beside an ONNX export, expected arguments only: the export has the "
            "config of its model"
        )
    if not (folder / FILE).is_file():
        what = "holds no model.onnx" if folder.is_dir() else "no such folder"
        raise CheckpointError(
            f"{folder}: {what}; expected the folder that bertlab export --format onnx wrote"
        )
    given = list(split_arguments(request.argv))
    pairs = any(key == "--data.text_pair" for key, _, _ in given)
    start = read_exported(folder, request.head, pairs)
    start = one_head(start, request.one_head)
    assert start.config is not None
    if command != "predict" and not start.config["model"].get("head"):
        raise CommandError(
            f"{command}: {folder} has objectives of pre-training, whose loss an ONNX file does not "
            "give; expected predict, or the run that was exported"
        )
    rest = [token for key, _, tokens in given if key != "--backend" for token in tokens]
    again = read_request(rest, start.config, str(start.path), start.path)
    return OnnxCLI(command, again, start, folder)


class _Outputs(nn.Module):
    """Stands for an encoder: gives the tasks' outputs as the states that they read."""

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        del all_layers  # no task that is in a file reads them
        return self.compute(batch)


class _Same(nn.Module):
    """Stands for a head's layer, whose output it is given."""

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.zeros(0), persistent=False)  # has the dtype

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs


def _same(outputs: Tensor) -> Tensor:
    return outputs


def use_outputs(module: nn.Module, compute: Compute) -> None:
    """Let a module's tasks read computed outputs in place of their layers' own."""
    made: Any = module
    made.encoder = _Outputs(compute)
    for task in made.named_tasks().values():
        if hasattr(task, "log_probabilities"):
            task.logits = _same  # a function: a module would be hidden by the method
        else:
            setattr(task, layer_of(task), _Same())


def _size(task: Any) -> int:  # noqa: ANN401
    """Return the number of outputs of a task's layer; 0 of a language model's."""
    is_model = hasattr(task, "log_probabilities")
    return 0 if is_model else int(getattr(task, layer_of(task)).out_features)


def as_states(tasks: Iterable[Task], batch: PackedBatch, found: Sequence[Tensor]) -> EncoderOutput:
    """Return padded outputs of tasks, in their order, as what they read of an encoder."""
    rest = list(found)
    tokens: Tensor | None = None
    pooled: Tensor | None = None
    for task in tasks:
        outputs = torch.stack([rest.pop(0) for _ in output_names([task])], -1)
        if isinstance(task, Head) and task.huggingface == "BertForQuestionAnswering":
            tokens = _packed(outputs, batch)  # (B, S, 2)
        elif reads_pooled(task):
            pooled = outputs.squeeze(-1)
        else:
            tokens = _packed(outputs.squeeze(-1), batch)
    return states_of(batch, tokens, pooled)


def states_of(batch: PackedBatch, tokens: Tensor | None, pooled: Tensor | None) -> EncoderOutput:
    """Return ``(T, C)`` outputs of tokens and ``(B, C)`` of sequences in the place of states."""
    none = torch.zeros(0, 0)
    return EncoderOutput(
        tokens=none if tokens is None else tokens,
        batch=batch,
        pooler=lambda _: none if pooled is None else pooled,
        summary=lambda states, _: states,
    )


def _packed(outputs: Tensor, batch: PackedBatch) -> Tensor:
    return outputs.flatten(0, 1)[batch.padded_index]  # (B, S, C) -> (T, C)


def _expected(
    tasks: Sequence[Task],
    sizes: Sequence[int],
    batch: PackedBatch,
    found: Sequence[Tensor],
    ids: int,
) -> list[tuple[int, ...]]:
    """Return the shapes of outputs: ``(B, C)``, ``(B, S, C)``, or of a span ``(B, S)`` twice."""
    padded = (len(batch), batch.max_seqlen)
    shapes: list[tuple[int, ...]] = []
    for task, size in zip(tasks, sizes, strict=True):
        if len(output_names([task])) == 2:
            shapes += [padded, padded]
        elif not size:  # of a language model; it has more than ids, where embeddings are padded
            shapes.append((*padded, max(found[len(shapes)].shape[-1], ids)))
        else:
            shapes.append((*padded[: 1 if reads_pooled(task) else 2], size))
    return shapes
