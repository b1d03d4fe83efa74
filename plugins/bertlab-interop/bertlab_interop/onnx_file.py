"""A model as one ONNX file, with its heads, for any number of sequences of any length.

Padded sequences go in (:mod:`bertlab_interop.padded`). Inputs and outputs are called as those of
``transformers``' classes. The exporter is torch's own.
"""

import contextlib
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertlab.api.encoder import Encoder
from bertlab.api.head import Head
from bertlab.api.task import Task
from bertlab.checkpoints.export import AddFiles, ExportReport
from bertlab.checkpoints.export_folder import export_folder, save_tokenizer
from bertlab.checkpoints.one_head import one_head
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.pretrained_model import model_of
from bertlab.checkpoints.restore import read_pretrained
from bertlab.errors import CheckpointError, CommandError
from bertlab.files import write_json
from bertlab.objectives.language_model import TokenPrediction
from bertlab.objectives.next_sentence import NextSentencePrediction
from bertlab_interop.padded import PaddedEncoder, lacks_padded_form

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

    def __init__(self, encoder: Encoder, tasks: Mapping[str, Task]) -> None:
        super().__init__()
        self.encoder = PaddedEncoder(encoder)
        self.tasks = nn.ModuleDict(tasks)

    @property
    def names(self) -> list[str]:
        names = [name for task in self.tasks.values() for name in _output_names(task)]
        if not names:
            return ["last_hidden_state"]
        if names == ["logits", "logits"]:  # as BertForPreTraining
            names = [
                "prediction_logits"
                if isinstance(task, TokenPrediction)
                else "seq_relationship_logits"
                for task in self.tasks.values()
            ]
        return names

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        states, pooled = self.encoder(input_ids, attention_mask, token_type_ids)
        found = [each for task in self.tasks.values() for each in _logits(task, states, pooled)]
        return tuple(found) or (states,)


def _is_known(task: Task) -> bool:
    if isinstance(task, TokenPrediction | NextSentencePrediction):
        return True
    if not isinstance(task, Head) or task.huggingface not in _SINGLE_LAYERS:
        return False
    layer = _SINGLE_LAYERS[task.huggingface]
    # a subclass may have a layer more
    return {name for name, _ in task.named_parameters()} == {f"{layer}.weight", f"{layer}.bias"}


def _output_names(task: Any) -> list[str]:  # noqa: ANN401
    is_span = isinstance(task, Head) and task.huggingface == "BertForQuestionAnswering"
    return ["start_logits", "end_logits"] if is_span else ["logits"]


def _logits(task: Any, states: Tensor, pooled: Tensor) -> list[Tensor]:  # noqa: ANN401
    """Return what a task says of ``(B, S, H)`` states and the ``(B, H)`` pooled output."""
    if isinstance(task, TokenPrediction):
        # (B, S, H) -> (B * S, V) -> (B, S, V)
        return [task.logits(states.flatten(0, 1)).view(*states.shape[:2], -1)]
    if isinstance(task, NextSentencePrediction):
        return [task.classifier(pooled)]
    layer = getattr(task, _SINGLE_LAYERS[task.huggingface])
    logits = layer(pooled if task.huggingface in _POOLED else states)
    is_span = task.huggingface == "BertForQuestionAnswering"
    return list(logits.unbind(-1)) if is_span else [logits]  # (B, S, 2) -> (B, S) twice


def export_onnx(
    source: str,
    output: Path,
    overwrite: bool = False,
    more: Sequence[AddFiles] = (),
    head: str | None = None,
) -> ExportReport:
    """Write a folder with ``model.onnx``, in float32, the tokenizer and a config.

    Args:
        source: a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name.
        output: folder to write.
        overwrite: replace what is there.
        more: write what belongs into the folder besides, such as a model card.
        head: the one of several heads that is written.

    Raises:
        CheckpointError: the source cannot be read, its encoder has no padded form, or the output is
            in use.
        CommandError: a package that the exporter needs is not installed, or several heads need one
            to be named.
        OutputError: the output cannot be written.
    """
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise CommandError(
            f"--format onnx: {' and '.join(missing)} not installed; pip install "
            "'bertlab-lightning[onnx]'"
        )
    start = one_head(read_pretrained(source), head)
    model = model_of(replace(start))  # of a copy: the card tells of the tensors in it
    reason = lacks_padded_form(model.encoder)
    if reason is not None:
        raise CheckpointError(f"{start.source}: not written as ONNX: {reason}")
    encoder = model.encoder.cpu().float().eval()
    tasks = {n: task.cpu().float().eval() for n, task in model.tasks.items() if _is_known(task)}
    module = _Outputs(encoder, tasks)
    report = ExportReport(output, ", ".join(module.names), form="onnx")
    report.notes += [
        f"task {name!r} is not in the file: it is more than one layer on the encoder"
        for name in model.tasks
        if name not in tasks
    ]
    report.notes += [
        f"left behind, as ONNX has no place for it: {name} {value.item():g}"
        for task in tasks.values()
        for name, value in task.named_buffers()
        if value.dim() == 0
    ]
    has_segments = getattr(encoder, "type_vocab_size", 1) > 1
    with export_folder(output, overwrite) as folder:
        write_json(folder / "config.json", _config(start, tasks))
        _write_file(module, folder / FILE, has_segments)
        save_tokenizer(model.tokenizer, folder, encoder, start.model_max_length, has_segments)
        for add in more:
            add(folder, start, report)
    return report


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


def _write_file(module: _Outputs, path: Path, has_segments: bool) -> None:
    names = ["input_ids", "attention_mask", "token_type_ids"][: 3 if has_segments else 2]
    # two sequences of three tokens; sizes of 0 and 1 would be taken for constants
    example = {name: torch.ones(2, 3, dtype=torch.int64) for name in names}
    sizes = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}
    weights = sum(each.numel() * each.element_size() for each in module.state_dict().values())
    with _silent_exporter(), torch.no_grad():
        torch.onnx.export(
            module,
            (),
            path,
            kwargs=example,
            input_names=names,
            output_names=module.names,
            dynamic_shapes=dict.fromkeys(names, sizes),
            dynamo=True,
            external_data=weights > _LARGEST,
            verbose=False,
        )


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
