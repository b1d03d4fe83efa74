"""A model as one ONNX file, with its heads, for any number of sequences of any length.

Padded sequences go in (:func:`.padded.padded_form`). Inputs and outputs are called as those
of ``transformers``' classes. The exporter is torch's own.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from bertlab import (
    CheckpointError,
    CommandError,
    EvaluationError,
    NextSentencePrediction,
    Pretrained,
)
from bertlab.api import ConfigError, Head, Task
from bertlab.extend import model_of, write_json
from bertlab_interop.contract import Exporter, ExportReport, ModelAddress
from bertlab_interop.exported_model import SECTION, describe_model
from bertlab_interop.padded import padded_form
from bertlab_interop.transformers_folder import notes_of, save_tokenizer

if TYPE_CHECKING:
    from bertlab_interop.onnx_comparison import Comparison

FILE = "model.onnx"
_PACKAGES = ("onnx", "onnxscript")
_LARGEST = 2**31 - 2**27  # bytes of weights in one file; protobuf ends at 2 GiB
# what a fine-tuned head's layer reads
_POOLED = ("BertForSequenceClassification", "BertForMultipleChoice")
_SINGLE_LAYERS = {
    **dict.fromkeys((*_POOLED, "BertForTokenClassification"), "classifier"),
    "BertForQuestionAnswering": "qa_outputs",
}


class _Outputs(nn.Module):
    """Maps padded sequences to the logits of the tasks, or to hidden states if there are none."""

    def __init__(self, encoder: nn.Module, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        self.encoder = encoder
        self.tasks = nn.ModuleDict(tasks)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        states, pooled = self.encoder(input_ids, attention_mask, token_type_ids)
        found = [each for task in self.tasks.values() for each in _logits(task, states, pooled)]
        return tuple(found) or (states,)


def output_names(tasks: Iterable[Task]) -> list[str]:
    """Return how the outputs of tasks are called, in their order; states where there is none."""
    given = list(tasks)
    if not given:
        return ["last_hidden_state"]
    if len(given) == 2:  # as BertForPreTraining
        return [
            "prediction_logits" if hasattr(task, "log_probabilities") else "seq_relationship_logits"
            for task in given
        ]
    (task,) = given
    is_span = isinstance(task, Head) and task.huggingface == "BertForQuestionAnswering"
    return ["start_logits", "end_logits"] if is_span else ["logits"]


def layer_of(task: Task) -> str:
    """Return the name of a task's one layer: of a head, or of the order of sentences."""
    name = task.huggingface if isinstance(task, Head) else None
    return "classifier" if name is None else _SINGLE_LAYERS[name]


def reads_pooled(task: Task) -> bool:
    """Whether a task's layer reads the pooled output, and not the states of tokens."""
    is_order = isinstance(task, NextSentencePrediction)
    return is_order or (isinstance(task, Head) and task.huggingface in _POOLED)


def _is_known(task: Task) -> bool:
    if isinstance(task, NextSentencePrediction):
        return True
    if not isinstance(task, Head) or task.huggingface not in _SINGLE_LAYERS:
        return False
    layer = layer_of(task)
    # a subclass may have a layer more
    return {name for name, _ in task.named_parameters()} == {f"{layer}.weight", f"{layer}.bias"}


def _logits(task: Any, states: Tensor, pooled: Tensor) -> list[Tensor]:  # noqa: ANN401
    """Return what a task says of ``(B, S, H)`` states and the ``(B, H)`` pooled output."""
    if hasattr(task, "log_probabilities"):
        # (B, S, H) -> (B * S, V) -> (B, S, V)
        return [task.logits(states.flatten(0, 1)).view(*states.shape[:2], -1)]
    logits = getattr(task, layer_of(task))(pooled if reads_pooled(task) else states)
    # (B, S, 2) of a span -> (B, S) twice
    return list(logits.unbind(-1)) if len(output_names([task])) == 2 else [logits]


class OnnxExporter(Exporter):
    """One file, ``model.onnx``, with the heads; the tokenizer and a config beside it.

    Args:
        quantize: int8 keeps the weights of matrix products in 8 bits, for CPUs; None: float32.
        validation: labelled rows, by which PyTorch and the file are compared.

    Raises:
        ConfigError: ``quantize`` is something else.
        CommandError: a package that the exporter needs is not installed.
    """

    def __init__(
        self, quantize: Literal["int8"] | None = None, validation: str | None = None
    ) -> None:
        if quantize not in (None, "int8"):  # a call from Python has no parser
            raise ConfigError(f"settings.quantize: found {quantize!r:.80}, expected int8 or None")
        self.quantize, self.validation = quantize, validation
        plain = quantize is None and validation is None
        needed = _PACKAGES if plain else (*_PACKAGES, "onnxruntime")
        missing = [name for name in needed if find_spec(name) is None]
        if missing:
            raise CommandError(
                f"--format onnx: {' and '.join(missing)} not installed; pip install "
                "'bertlab-interop[onnx]'"
            )

    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        """Write the file, the tokenizer and a config."""
        loaded = model_of(replace(model))  # of a copy: the weights of what is loaded are let go
        encoder = loaded.encoder.cpu().float().eval()
        try:
            padded = padded_form(encoder)
        except NotImplementedError as error:
            raise CheckpointError(f"{model.source}: not written as ONNX: {error}") from None
        for task in loaded.tasks.values():
            task.cpu().float().eval()
        from bertlab.api import language_model  # noqa: PLC0415  of bertlab-evaluations

        found: object = None
        offset = 0
        with contextlib.suppress(EvaluationError):  # a task that cannot be read is told below
            found, offset = language_model(model.source, encoder, loaded.tokenizer, loaded.tasks)
        tasks = {n: each for n, each in loaded.tasks.items() if each is found or _is_known(each)}
        if self.validation is not None and not any(isinstance(t, Head) for t in tasks.values()):
            raise CommandError(
                f"--validation: {model.source} has no head in an ONNX file to score; leave it out"
            )
        module = _Outputs(padded, tasks)
        names = ", ".join(output_names(tasks.values()))
        report = ExportReport(names, f"An ONNX model with the outputs {names}")
        report.notes += notes_of(model) if tasks else []
        if offset:
            report.notes.append("the scores at a token are of the token behind it")
        report.notes += [
            f"task {name!r} is not in the file: it is more than one layer on the encoder"
            for name in loaded.tasks
            if name not in tasks
        ]
        report.notes += [
            f"in config.json, as ONNX has no place for it: {name} {value.item():g}"
            for task in tasks.values()
            for name, value in task.named_buffers()
            if value.dim() == 0
        ]
        has_segments = getattr(encoder, "type_vocab_size", 1) > 1
        left = [name for name in loaded.tasks if name not in tasks]
        said = {SECTION: describe_model(model, encoder, tasks, left)}
        write_json(folder / "config.json", _config(model, tasks) | said)
        _write_file(module, folder / FILE, output_names(tasks.values()), has_segments)
        is_tuned = model.head is not None or model.head_config is not None
        trained = model.trained_max_length if is_tuned else None
        lengths = model.model_max_length, trained
        save_tokenizer(loaded.tokenizer, folder, encoder, has_segments, *lengths)
        compared = None if self.validation is None else _comparison(folder, self.validation)
        if compared is not None:
            (head,) = (each for each in tasks.values() if isinstance(each, Head))
            compared.add_model(encoder, head)
            compared.add_file("ONNX fp32")
        if self.quantize is not None:
            from bertlab_interop.int8 import to_int8  # noqa: PLC0415  onnxruntime

            report.notes.append(to_int8(folder / FILE, model.source))
            if compared is not None:
                compared.add_file("ONNX int8")
        if compared is not None:
            report.comparison = compared.content
            write_json(folder / "comparison.json", report.comparison)
        return report

    def loading_code(self, report: ExportReport, address: ModelAddress) -> list[tuple[str, str]]:
        """Return the lines of onnxruntime."""
        del report
        imports = ["import onnxruntime", "from transformers import AutoTokenizer"]
        folder = address.arguments
        if address.on_hub:
            imports.insert(1, "from huggingface_hub import snapshot_download")
            folder = f"snapshot_download({address.arguments})"
        lines = [
            *imports,
            "",
            f"folder = {folder}",
            "tokenizer = AutoTokenizer.from_pretrained(folder)",
            f'model = onnxruntime.InferenceSession(f"{{folder}}/{FILE}")',
            'inputs = tokenizer(["A text.", "Another one."], padding=True, return_tensors="np")',
            "outputs = model.run(None, dict(inputs))  # "
            "in the order of [each.name for each in model.get_outputs()]",
        ]
        return [("onnxruntime", "\n".join(lines))]


def _comparison(folder: Path, validation: str) -> "Comparison":
    from bertlab_interop.onnx_comparison import Comparison  # noqa: PLC0415  onnxruntime

    return Comparison(folder, validation)


def _config(start: Pretrained, tasks: Mapping[str, Task]) -> dict[str, Any]:
    """Return what a user of the file has to know besides: classes by number, lengths."""
    content: dict[str, Any] = {
        "encoder": start.encoder_config["name"],
        "tasks": list(tasks),
        "vocab_size": start.vocab_size,
        "trained_max_length": start.trained_max_length,
    }
    for task in tasks.values():
        if isinstance(task, Head) and task.labels is not None:
            content["id2label"] = {str(n): name for n, name in enumerate(task.labels.names)}
    return content


def _write_file(module: _Outputs, path: Path, outputs: list[str], has_segments: bool) -> None:
    names = ["input_ids", "attention_mask", "token_type_ids"][: 3 if has_segments else 2]
    # two sequences of three tokens; sizes of 0 and 1 would be taken for constants
    example = {name: torch.ones(2, 3, dtype=torch.int64) for name in names}
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    weights = sum(each.numel() * each.element_size() for each in module.state_dict().values())
    with _silent_exporter(), torch.no_grad():
        program = torch.onnx.export(
            module,
            (),
            kwargs=example,
            input_names=names,
            output_names=outputs,
            dynamic_shapes=dict.fromkeys(names, sizes),
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # only the old exporter returns nothing
    _forget_machine(program.model)
    with _silent_exporter():
        program.save(path, external_data=weights > _LARGEST)


def _forget_machine(model: Any) -> None:  # noqa: ANN401  an onnx_ir.Model, which has no types here
    """Drop what the exporter notes beside each part: paths of this machine in stack traces."""
    parts = [model, model.graph, *model.functions.values()]
    for graph in (model.graph, *(function.graph for function in model.functions.values())):
        nodes = list(graph.all_nodes())
        values = [*graph.inputs, *graph.initializers.values()]
        parts += [*nodes, *values, *(value for node in nodes for value in node.outputs)]
    for part in parts:
        part.metadata_props.clear()
        part.doc_string = None


@contextlib.contextmanager
def _silent_exporter() -> Iterator[None]:
    """Keep back what the exporter says of its own parts, as of torchvision's operators."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
