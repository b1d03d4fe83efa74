"""Writing a folder that Hugging Face's ``transformers`` loads."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from bertlab.api.encoder import Encoder
from bertlab.api.head import Head
from bertlab.api.huggingface import HuggingFaceForm
from bertlab.api.task import TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.export_folder import (
    add_sentence_transformers,
    export_folder,
    make_readable,
    save_tokenizer,
)
from bertlab.checkpoints.huggingface import TRAINED_MAX_LENGTH, forms_of
from bertlab.checkpoints.huggingface_head import HuggingFaceHead, head_config
from bertlab.checkpoints.loading import load_matching
from bertlab.checkpoints.one_head import one_head
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import read_pretrained
from bertlab.errors import CheckpointError
from bertlab.heads.classification import ClassifierHead
from bertlab.model.build import build_encoder, build_tasks

ExportForm = Literal["transformers", "onnx", "sentence-transformers"]


@dataclass
class ExportReport:
    """What was written.

    Attributes:
        output: the folder.
        architecture: the ``transformers`` class that loads it; of ONNX, the names of its outputs.
        notes: sentences for the user about what changed or stayed behind.
        form: what was written.
    """

    output: Path
    architecture: str
    notes: list[str] = field(default_factory=list)
    form: ExportForm = "transformers"


AddFiles = Callable[[Path, Pretrained, ExportReport], None]
"""Writes further files into the new folder: given the folder, what was exported, and as what."""


def export_model(
    source: str,
    output: Path,
    overwrite: bool = False,
    more: Sequence[AddFiles] = (),
    form: Literal["transformers", "sentence-transformers"] = "transformers",
    head: str | None = None,
) -> ExportReport:
    """Write the encoder, its heads and its tokenizer as a Hugging Face folder.

    A fine-tuned model becomes the class of ``transformers`` with the same layers; where there is
    none, the encoder is written alone and a note says so.

    Args:
        source: a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name.
        output: folder to write.
        overwrite: replace what is there.
        more: write what belongs into the folder besides, such as a model card.
        form: ``sentence-transformers`` has the encoder alone, and the mean over its tokens.
        head: the one of several heads that is written; ``sentence-transformers`` needs none.

    Raises:
        CommandError: if there is no such head, or several and none is named.
        CheckpointError: if the source cannot be read, the encoder has no Hugging Face form,
            or the output is in use.
    """
    start = read_pretrained(source)
    if form == "transformers" or head is not None:
        start = one_head(start, head)
    encoder = build_encoder(start.encoder_config, start.vocab_size)
    if not encoder.huggingface:
        raise CheckpointError(
            f"{source}: the encoder {start.encoder_config['name']!r} has no Hugging Face form; "
            "transformers has no class for it"
        )
    if start.tokenizer is None:
        raise CheckpointError(f"{source}: has no tokenizer (vocab.txt or tokenizer.json) to export")
    loaded = load_matching(encoder, start.encoder_state, start.source, ("pooler.",))
    written: HuggingFaceHead | None = None
    tasks: dict[str, dict[str, Tensor]] = {}
    left: list[str] = []
    if form == "transformers":
        written, tasks, left = _heads_of(start, encoder, start.tokenizer)
    notes = []
    if left:
        notes.append(f"left behind, as transformers has no place for it: {', '.join(left)}")
    has_pooler = form == "transformers" if written is None else written.layout.has_pooler
    if loaded.newly_initialized and has_pooler:
        notes.append(f"new random weights: {', '.join(loaded.newly_initialized)}")

    def add_files(folder: Path, report: ExportReport) -> None:
        report.notes += notes
        report.form = form
        if form == "sentence-transformers":
            add_sentence_transformers(folder, encoder, start.model_max_length)
        for add in more:
            add(folder, start, report)

    lengths = start.model_max_length, start.trained_max_length
    return export_huggingface(
        encoder, tasks, start.tokenizer, output, overwrite, written, *lengths, add_files
    )


def _heads_of(
    start: Pretrained, encoder: Encoder, tokenizer: Tokenizer
) -> tuple[HuggingFaceHead | None, dict[str, dict[str, Tensor]], list[str]]:
    """Return the fine-tuned head, the states of the other tasks, and what of the head is left."""
    tasks = start.task_states
    if start.head_config is None:
        return start.head, tasks, []
    head = _head_of_run(start, start.head_config, encoder, tokenizer)
    if head is None:
        return None, tasks, []
    state = tasks.pop(start.head_config["name"])
    return head, tasks, [f"{name} {_show(state[name])}" for name in state if name not in head.state]


def _show(tensor: Tensor) -> str:
    """Return the value of a number, the shape of anything larger."""
    return f"{tensor.item():g}" if tensor.dim() == 0 else str(tuple(tensor.shape))


def _head_of_run(
    start: Pretrained, config: dict[str, Any], encoder: Encoder, tokenizer: Tokenizer
) -> HuggingFaceHead | None:
    """Return the head of a fine-tuned run; None if ``transformers`` has no class of its layers."""
    name = config["name"]
    head = build_tasks({"head": config})[name]
    assert isinstance(head, Head)
    form = _form_of(encoder, tokenizer)
    texts = [column.name for column in head.columns if not column.is_truth]
    if len(texts) > 1 and form.drops_segments(encoder):
        raise CheckpointError(
            f"{start.source}: not exported: its head, {name}, reads {' and '.join(texts)} as two "
            f"segments, and transformers' {form} has one; use the model in bertlab, or fine-tune "
            "one of model.encoder.type_vocab_size 0"
        )
    layouts = form.heads
    named = [each for each, layout in layouts.items() if layout.kind == head.huggingface]
    if not named:
        return None
    architecture, layout = named[0], layouts[named[0]]
    head.build(TaskContext(encoder, tokenizer, labels=start.labels))
    load_matching(head, start.task_states[name], start.source)
    # a subclass with a layer more than the class of transformers
    if {each for each, _ in head.named_parameters()} != set(layout.names):
        return None
    state = {each: tensor for each, tensor in head.state_dict().items() if each in layout.names}
    dropout = head.dropout_prob if isinstance(head, ClassifierHead) else None
    return HuggingFaceHead(architecture, layout, state, start.labels, dropout, head.problem_type)


def export_huggingface(
    encoder: Encoder,
    task_states: Mapping[str, Mapping[str, Tensor]],
    tokenizer: Tokenizer,
    output: Path,
    overwrite: bool = False,
    head: HuggingFaceHead | None = None,
    model_max_length: int | None = None,
    trained_max_length: int | None = None,
    add_files: Callable[[Path, ExportReport], None] | None = None,
) -> ExportReport:
    """Write config, weights and tokenizer; the folder appears whole or not at all.

    Args:
        encoder: written with its dtype. Sinusoidal positions become a table of the same values.
        task_states: states of the heads by task; those but ``mlm`` and ``nsp``, of a causal encoder
            those but ``clm``, have no place in ``transformers`` and are noted in the report.
        tokenizer: saved into the same folder.
        output: folder to make; may exist if it is empty.
        overwrite: replace an older export, that is a folder with ``config.json``.
        head: of a fine-tuned model, written in place of pre-training's heads.
        model_max_length: tokens to which ``transformers`` cuts a text; the encoder's longest
            sequence if not given or more than that.
        trained_max_length: longest sequence in training, recorded under this name.
        add_files: writes further files into the folder, before it takes its place.

    Raises:
        OutputError: if ``output`` cannot be written.
        CheckpointError: if ``output`` is in the way, a head's tensors are not all there, the
            tokenizer has ids that the encoder lacks, or ``transformers`` would compute something
            else from these weights: a BiLSTM, or the pooled output of a causal encoder under a
            head.
    """
    form = _form_of(encoder, tokenizer)
    _check_computes_the_same(form, encoder, head, output)
    if tokenizer.vocab_size > encoder.vocab_size:
        raise CheckpointError(
            f"{output}: not written: the tokenizer has {tokenizer.vocab_size} ids, but the encoder "
            f"only {encoder.vocab_size}; give the tokenizer that the encoder was trained with"
        )
    heads = form.head_names(encoder.causal)
    exported = [task for task in heads if task in task_states and head is None]
    architecture = form.architectures[frozenset(exported)] if head is None else head.architecture
    report = ExportReport(output, architecture, form.notes(encoder))
    if encoder.causal and head is None:
        report.notes.append(
            "pooler_output differs: transformers pools the first token, bertlab the last one, as "
            "only that has seen the text in a left-to-right encoder"
        )
    report.notes += [
        f"task {task!r} is not exported: transformers' {report.architecture} has no such head"
        for task in task_states
        if task not in exported
    ]
    # names in a BertModel have no prefix; a class with a head puts "bert." before them
    tensors = _encoder_tensors(form, encoder, form.prefix if exported or head else "")
    config = form.config(encoder, architecture)
    if head is not None:
        if head.layout.has_pooler:
            state = encoder.state_dict()
            tensors |= {t: _own_copy(state[ours]) for ours, t in form.pooler_names().items()}
        else:
            pooler = f"{form.prefix}pooler."
            tensors = {n: t for n, t in tensors.items() if not n.startswith(pooler)}
        tensors |= {
            theirs: _own_copy(head.state[ours])
            for ours, theirs in zip(head.layout.names, head.layout.written_names, strict=True)
        }
        config |= head_config(head)
    if trained_max_length is not None:
        config[TRAINED_MAX_LENGTH] = trained_max_length
    for task in exported:
        tensors |= _head_tensors(task, task_states[task], heads[task])
    form.before_writing(config, tensors)
    segments = getattr(encoder, "type_vocab_size", 2) > 1 and not form.drops_segments(encoder)
    text = json.dumps(config, indent=2, sort_keys=True)
    # last, so that an export that cannot be made leaves the old one as it is
    with export_folder(output, overwrite) as folder:
        (folder / "config.json").write_text(text + "\n", encoding="utf-8")
        # transformers asks for "format" and refuses a file without it
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        make_readable(folder / "model.safetensors")
        save_tokenizer(tokenizer, folder, encoder, model_max_length, segments)
        if add_files is not None:
            add_files(folder, report)
    return report


def _check_computes_the_same(
    form: HuggingFaceForm, encoder: Encoder, head: HuggingFaceHead | None, output: Path
) -> None:
    refusal = form.refusal(encoder)
    if refusal is not None:
        raise CheckpointError(
            f"{output}: not written: {refusal}; use the model in bertlab, or export the run that "
            "it was started from"
        )
    if encoder.causal and head is not None and head.layout.has_pooler:
        raise CheckpointError(
            f"{output}: not written: transformers' {head.architecture} pools the first token, "
            "which in a left-to-right encoder (model.encoder.causal true) sees nothing of the "
            "text; bertlab pools the last one, so the logits would differ. Use the model in "
            "bertlab, or export the run that it was started from"
        )


def _form_of(encoder: Encoder, tokenizer: Tokenizer) -> HuggingFaceForm:
    first, *others = forms_of(encoder)
    return next((form for form in others if form.suits(encoder, tokenizer)), first)


def _encoder_tensors(form: HuggingFaceForm, encoder: Encoder, prefix: str) -> dict[str, Tensor]:
    """Return the encoder's tensors by Hugging Face's names, each with memory of its own."""
    state = form.state(encoder)
    return {
        prefix + name: _own_copy(part)
        for ours, theirs in form.encoder_names(encoder.num_hidden_layers).items()
        if ours in state
        # qkv (3H, H) -> query, key and value, each (H, H); all others are one chunk
        for name, part in zip(theirs, state[ours].chunk(len(theirs)), strict=True)
    }


def _head_tensors(
    task: str, state: Mapping[str, Tensor], names: Mapping[str, str]
) -> dict[str, Tensor]:
    if set(state) != set(names):
        raise CheckpointError(
            f"tasks.{task}: found tensors {sorted(state)}, expected {sorted(names)}"
        )
    return {theirs: _own_copy(state[ours]) for ours, theirs in names.items()}


def _own_copy(tensor: Tensor) -> Tensor:
    # safetensors refuses tensors that share memory, as chunks and tied weights do
    return tensor.detach().cpu().clone(memory_format=torch.contiguous_format)
