"""Lines of Python that load an export, for its card: by each library that can."""

import json
from dataclasses import dataclass

from markupsafe import Markup

from bertlab.checkpoints.export import ExportReport
from bertlab_interop.onnx_file import FILE


@dataclass(frozen=True)
class Address:
    """By what a model is loaded.

    Attributes:
        name: of a folder, or of a repository of the Hugging Face hub.
        revision: branch of the repository; None for its main one.
        on_hub: it is a repository.
    """

    name: str
    revision: str | None = None
    on_hub: bool = False

    @property
    def arguments(self) -> str:
        """Arguments of ``from_pretrained``: on one line and in ASCII, whatever the names are."""
        arguments = json.dumps(self.name)
        if self.revision is not None:
            arguments += f", revision={json.dumps(self.revision)}"
        return arguments


def ways_to_load(report: ExportReport, address: Address) -> list[tuple[str, Markup]]:
    """Return the libraries that load an export, with the lines that do it."""
    if report.form == "onnx":
        return [("onnxruntime", _onnxruntime(address))]
    ways = [
        ("transformers", _transformers(report.architecture, address)),
        ("bertlab", _bertlab(address)),
    ]
    if report.form == "sentence-transformers":
        ways.insert(0, ("sentence-transformers", _sentence_transformers(address)))
    return ways


def _transformers(architecture: str, address: Address) -> Markup:
    return _code(
        f"from transformers import AutoTokenizer, {architecture}",
        "",
        f"tokenizer = AutoTokenizer.from_pretrained({address.arguments})",
        f"model = {architecture}.from_pretrained({address.arguments})",
    )


def _bertlab(address: Address) -> Markup:
    if address.revision is None:
        return _code("import bertlab", "", f"model = bertlab.load({address.arguments})")
    return _code(
        "import bertlab",
        "from huggingface_hub import snapshot_download",
        "",
        f"model = bertlab.load(snapshot_download({address.arguments}))",
    )


def _sentence_transformers(address: Address) -> Markup:
    return _code(
        "from sentence_transformers import SentenceTransformer",
        "",
        f"model = SentenceTransformer({address.arguments})",
        'vectors = model.encode(["A text.", "Another one."])',
    )


def _onnxruntime(address: Address) -> Markup:
    imports = ["import onnxruntime", "from transformers import AutoTokenizer"]
    folder = address.arguments
    if address.on_hub:
        imports.insert(1, "from huggingface_hub import snapshot_download")
        folder = f"snapshot_download({address.arguments})"
    return _code(
        *imports,
        "",
        f"folder = {folder}",
        "tokenizer = AutoTokenizer.from_pretrained(folder)",
        f'model = onnxruntime.InferenceSession(f"{{folder}}/{FILE}")',
        'inputs = tokenizer(["A text.", "Another one."], padding=True, return_tensors="np")',
        "outputs = model.run(None, dict(inputs))  # "
        "in the order of [each.name for each in model.get_outputs()]",
    )


def _code(*lines: str) -> Markup:
    # json.dumps gives names as ASCII on one line, so that none of them ends the block
    return Markup("\n".join(lines))  # noqa: S704
