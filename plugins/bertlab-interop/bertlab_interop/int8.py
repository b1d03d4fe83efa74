"""An ONNX file with the weights of its matrix products in 8 bits, for CPUs.

Quantisation is dynamic, onnxruntime's own: weights become integers once, activations as they are
computed, so no calibration set is needed. Activations are unsigned and weights signed, which CPUs
with VNNI multiply fastest. Other CPUs add two products in 16 bits; 7 bits of a weight keep their
sum within these: 255 * 64 * 2 < 2**15.
Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference", section 2.
"""

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import onnx
import onnxruntime
from onnxruntime.quantization import QuantType, quantize_dynamic

from bertlab import CheckpointError

# Gather has the embeddings, MatMul and Gemm the layers
_OPERATORS = ["MatMul", "Gemm", "Gather"]


def to_int8(path: Path, source: str) -> str:
    """Replace a float32 file by its int8 form; return a sentence about the sizes.

    Args:
        path: the file; weights beside it, of models above 2 GiB, are refused.
        source: the model, for messages.

    Raises:
        CheckpointError: nothing in it can be quantised, or onnxruntime refuses the result.
    """
    if path.with_name(path.name + ".data").exists():
        raise CheckpointError(f"{source}: not written in int8: its weights are above 2 GiB")
    before = path.stat().st_size
    with TemporaryDirectory(dir=path.parent) as place, _silent():
        small = Path(place) / path.name
        try:
            quantize_dynamic(
                path,
                small,
                op_types_to_quantize=_OPERATORS,
                per_channel=True,
                weight_type=QuantType.QInt8,
                reduce_range=True,
            )
            onnxruntime.InferenceSession(small, providers=["CPUExecutionProvider"])
        # onnxruntime's classes of errors are not public; NotImplemented is of an operator
        except Exception as error:
            reason = " ".join(str(error).split())
            raise CheckpointError(
                f"{source}: not written in int8: onnxruntime refuses it ({reason}); leave out "
                "--quantize"
            ) from None
        found = {each.op_type for each in onnx.load(small).graph.node}
        if "MatMulInteger" not in found:
            raise CheckpointError(
                f"{source}: not written in int8: it has no matrix product of fixed weights; leave "
                "out --quantize"
            )
        small.replace(path)
    after = path.stat().st_size
    return f"int8: {after / 1e6:.1f} MB, {after / before:.0%} of the {before / 1e6:.1f} MB of fp32"


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Keep back onnxruntime's advice to pre-process the file, which the exporter has done."""
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        root.setLevel(level)
