"""``--backend onnx``: a command that uses an ONNX export; read by every command, without torch."""

from pathlib import Path
from typing import TYPE_CHECKING

from bertlab import CommandError, hookimpl

if TYPE_CHECKING:
    from bertlab.extend import Opened, Request

_BACKENDS = ("onnx",)
_WEIGHTS = ("*.safetensors", "*.safetensors.index.json", "pytorch_model.bin", "manifest.json")


@hookimpl
def bertlab_opens(command: str, request: "Request") -> "Opened | None":
    """Compute with onnxruntime, where ``--backend`` or the files of the model say so."""
    backend, model = request.values.get("backend"), request.ckpt_path
    if backend is None and not (model and _is_export(Path(model).expanduser())):
        return None
    if backend is not None and backend not in _BACKENDS:
        raise CommandError(
            f"--backend: found {str(backend)!r}, expected onnx; leave it out to compute with "
            "PyTorch"
        )
    if command == "fit":
        found = "--backend onnx" if model is None else f"--ckpt_path {model}"
        raise CommandError(
            f"{found}: an ONNX file is not trained; expected validate, test or predict, or the run "
            "that was exported"
        )
    if model is None:
        raise CommandError("--backend onnx: found no model, expected the folder of an ONNX export")
    from bertlab_interop.onnx_use import open_export  # noqa: PLC0415  torch and onnxruntime

    return open_export(command, request)


def _is_export(folder: Path) -> bool:
    """Return whether a folder has an ONNX file, and neither weights nor a run."""
    if not (folder / "model.onnx").is_file():
        return False
    return not any(found for pattern in _WEIGHTS for found in folder.glob(pattern))
