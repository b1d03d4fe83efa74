"""An ONNX file that may come from anywhere: checked as data, then computed by onnxruntime."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from torch import Tensor

from bertlab import CheckpointError
from bertlab.api import PackedBatch
from bertlab.extend import DamagedCheckpointError, reading_budget

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
_OVER_LIMIT = "Available memory of"  # onnxruntime's words where its limit is reached
_LARGEST = 2**31  # bytes that protobuf reads
# onnxruntime's kernel for x + y and its LayerNorm in one takes several times as long as both apart
_SLOW = ["SkipLayerNormFusion"]
_DOMAINS = ("", "ai.onnx", "com.microsoft")  # the last has onnxruntime's own


class OnnxFile:
    """Computes the outputs of a file for packed batches, on the CPU with torch's threads.

    Args:
        path: the file; weights may be in ``NAME.data`` beside it.
        outputs: names of the outputs that it has to have.

    Raises:
        CheckpointError: it is none, has other inputs or outputs, names a file elsewhere, takes
            more memory than reading may, or onnxruntime refuses it.
    """

    def __init__(self, path: Path, outputs: Sequence[str]) -> None:
        self.path = path
        check_file(path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 4  # what is wrong is raised as well
        parts = [each for each in (path, weights_beside(path)) if each.is_file()]
        self.largest = limit_memory(sum(each.stat().st_size for each in parts))
        options.add_session_config_entry("session.use_env_allocators", "1")
        try:
            self.session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"], disabled_optimizers=_SLOW
            )
        except Exception as error:  # onnxruntime's classes of errors are not public
            raise self._refused(error) from None
        self.inputs = [each.name for each in self.session.get_inputs()]
        found = [each.name for each in self.session.get_outputs()]
        if found != list(outputs) or self.inputs not in ([*INPUTS[:2]], [*INPUTS]):
            raise CheckpointError(
                f"{path}: found the inputs {', '.join(self.inputs)} and the outputs "
                f"{', '.join(found)}, expected {', '.join(INPUTS)} and {', '.join(outputs)}"
            )
        self.outputs = found

    def compute(self, batch: PackedBatch) -> list[Tensor]:
        """Return the float32 outputs for B sequences, each ``(B, …)`` or ``(B, S, …)``."""
        given = {
            "input_ids": batch.pad(batch.input_ids),
            "attention_mask": batch.attention_mask.long(),
            "token_type_ids": batch.pad(batch.token_type_ids),
        }
        try:
            found = self.session.run(
                self.outputs, {name: given[name].cpu().numpy() for name in self.inputs}
            )
        except Exception as error:
            raise self._refused(error) from None
        if any(not isinstance(each, np.ndarray) or each.dtype != np.float32 for each in found):
            raise CheckpointError(f"{self.path}: found outputs that are no float32")
        return [torch.from_numpy(each) for each in found]

    def check_shapes(self, found: Sequence[Tensor], expected: Sequence[Sequence[int]]) -> None:
        """Raise CheckpointError if outputs are not of the shapes that the model has."""
        for name, each, shape in zip(self.outputs, found, expected, strict=True):
            if tuple(each.shape) != tuple(shape):
                raise CheckpointError(
                    f"{self.path}: output {name} is {tuple(each.shape)}, expected {tuple(shape)} "
                    "as config.json beside it says"
                )

    def _refused(self, error: Exception) -> CheckpointError:
        if _OVER_LIMIT in str(error):
            return CheckpointError(
                f"{self.path}: takes more than {self.largest >> 20:,} MB of memory; expected less, "
                "as it has with a smaller --data.batch_size, or BERTLAB_READING_MB in the "
                "environment that allows more"
            )
        reason = " ".join(str(error).split())[:300]
        return CheckpointError(f"{self.path}: onnxruntime refuses it ({reason})")


def limit_memory(stored: int) -> int:
    """Let the sessions made from here on take as much memory as a file of so many bytes may.

    Returns:
        The bytes: weights are among them.
    """
    largest = stored + reading_budget(stored)
    kind, place = onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR, onnxruntime.OrtMemType.DEFAULT
    onnxruntime.create_and_register_allocator(
        onnxruntime.OrtMemoryInfo("Cpu", kind, 0, place),
        onnxruntime.OrtArenaCfg({"max_mem": largest}),
    )
    return largest


def weights_beside(path: Path) -> Path:
    """Return where a file may have its weights apart: ``model.onnx.data``."""
    return path.with_name(f"{path.name}.data")


def check_file(path: Path) -> None:
    """Raise CheckpointError if a file is no plain ONNX graph whose weights are in its folder.

    What could run on without an end (loops), grow while it is read (functions that call functions)
    or is not onnxruntime's own is refused. Nothing is computed.
    """
    if not path.is_file():
        raise CheckpointError(
            f"{path}: no such file; expected the folder that bertlab export --format onnx wrote"
        )
    if not 0 < path.stat().st_size < _LARGEST:
        raise CheckpointError(
            f"{path}: has {path.stat().st_size:,} bytes, expected 1 to {_LARGEST:,}; weights above "
            f"that are in {path.name}.data"
        )
    try:
        model = onnx.load_model(path, load_external_data=False)
        nodes = list(model.graph.node)
        operators = {(node.domain, node.op_type) for node in nodes}
        if not nodes:
            raise ValueError("it has no operator")
    except Exception as error:  # of protobuf
        raise DamagedCheckpointError(
            f"{path}: no whole ONNX file ({' '.join(str(error).split())[:200]}); copy or download "
            "it again"
        ) from None
    foreign = [f"{domain}.{name}" for domain, name in operators if domain not in _DOMAINS]
    inner = [node.op_type for node in nodes if any(map(_holds_graph, node.attribute))]
    called = [each.name for each in model.functions]
    for found in (foreign, inner, called):
        if found:
            raise CheckpointError(
                f"{path}: found {sorted(found)[0][:80]!r}, expected the operators that bertlab "
                "export writes: no functions, loops, branches or those of other libraries"
            )
    for tensor in _tensors(model):
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            _check_place(path, tensor)
    if model.graph.sparse_initializer:
        raise CheckpointError(f"{path}: found sparse tensors, expected plain ones")


def _holds_graph(attribute: Any) -> bool:  # noqa: ANN401  an AttributeProto
    return attribute.HasField("g") or bool(attribute.graphs)


def _tensors(model: Any) -> Iterator[Any]:  # noqa: ANN401  a ModelProto; TensorProtos
    yield from model.graph.initializer
    for attribute in (each for node in model.graph.node for each in node.attribute):
        yield from [attribute.t, *attribute.tensors]


def _check_place(path: Path, tensor: Any) -> None:  # noqa: ANN401  a TensorProto
    """Refuse weights that are anywhere but in the one file beside."""
    places = [each.value for each in tensor.external_data if each.key == "location"]
    beside = weights_beside(path)
    if places != [beside.name]:
        raise CheckpointError(
            f"{path}: the weights {tensor.name[:80]!r} are in {str(places)[:200]}, expected "
            f"{beside.name} beside it"
        )
    if not beside.is_file() or Path(os.path.realpath(beside)).parent != path.parent.resolve():
        raise CheckpointError(f"{beside}: no such file in the folder, though {path.name} names it")
