"""A folder that Hugging Face's ``transformers`` loads: config, weights and tokenizer."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from bertlab import CheckpointError, ClassifierHead, Pretrained
from bertlab.api import Encoder, Head, PluginError, TaskContext, Tokenizer
from bertlab.extend import (
    TRAINED_MAX_LENGTH,
    HuggingFaceForm,
    HuggingFaceHead,
    build_encoder,
    build_tasks,
    installed,
    load_class,
    load_matching,
    read_object,
    write_json,
    write_text,
)
from bertlab_interop.contract import Exporter, ExportReport, ModelAddress


class TransformersExporter(Exporter):
    """A folder that Hugging Face's ``transformers`` loads.

    A fine-tuned model becomes the class of ``transformers`` with the same layers; where there is
    none, the encoder is written alone and a note says so.
    """

    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        """Write config, weights and tokenizer."""
        encoder = build_encoder(model.encoder_config, model.vocab_size)
        if not encoder.huggingface:
            raise CheckpointError(
                f"{model.source}: the encoder {model.encoder_config['name']!r} has no Hugging Face "
                "form; transformers has no class for it"
            )
        if model.tokenizer is None:
            raise CheckpointError(
                f"{model.source}: has no tokenizer (vocab.txt or tokenizer.json) to export"
            )
        loaded = load_matching(encoder, model.encoder_state, model.source, ("pooler.",))
        head: HuggingFaceHead | None = None
        tasks: dict[str, dict[str, Tensor]] = {}
        left: list[str] = []
        if self.has_heads:
            head, tasks, left = _heads_of(model, encoder, model.tokenizer)
        lengths = model.model_max_length, model.trained_max_length
        report = write_huggingface(
            folder, model.source, encoder, tasks, model.tokenizer, head, *lengths
        )
        if left:
            report.notes.append(
                f"left behind, as transformers has no place for it: {', '.join(left)}"
            )
        report.notes += [] if head is None else notes_of(model)
        has_pooler = self.has_heads if head is None else head.layout.has_pooler
        if loaded.newly_initialized and has_pooler:
            report.notes.append(f"new random weights: {', '.join(loaded.newly_initialized)}")
        return report

    def loading_code(self, report: ExportReport, address: ModelAddress) -> list[tuple[str, str]]:
        """Return the lines of ``transformers`` and of bertlab."""
        name, architecture = address.arguments, report.architecture
        theirs = (
            f"from transformers import AutoTokenizer, {architecture}\n\n"
            f"tokenizer = AutoTokenizer.from_pretrained({name})\n"
            f"model = {architecture}.from_pretrained({name})"
        )
        ours = f"import bertlab\n\nmodel = bertlab.load({name})"
        if address.revision is not None:
            ours = (
                "import bertlab\nfrom huggingface_hub import snapshot_download\n\n"
                f"model = bertlab.load(snapshot_download({name}))"
            )
        return [("transformers", theirs), ("bertlab", ours)]


def notes_of(model: Pretrained) -> list[str]:
    """Return what the head of a run says about scores by its layers alone, as ``export_note``."""
    if model.head_config is None:
        return []
    kind = load_class("head", model.head_config["name"], Head)
    return [note] if (note := getattr(kind, "export_note", None)) else []


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
    # without unanswerable questions there is a threshold for none, but nothing asks it
    unused = () if start.head_config.get("unanswerable") else ("null_threshold",)
    left = [name for name in state if name not in head.state and name not in unused]
    return head, tasks, [f"{name} {_show(state[name])}" for name in left]


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
    kind, threshold = head.problem_type, getattr(head, "threshold", None)
    return HuggingFaceHead(architecture, layout, state, start.labels, dropout, kind, threshold)


def write_huggingface(
    folder: Path,
    source: str,
    encoder: Encoder,
    task_states: Mapping[str, Mapping[str, Tensor]],
    tokenizer: Tokenizer,
    head: HuggingFaceHead | None = None,
    model_max_length: int | None = None,
    trained_max_length: int | None = None,
) -> ExportReport:
    """Write config, weights and tokenizer into a folder."""
    form = _form_of(encoder, tokenizer)
    _check_computes_the_same(form, encoder, head, source)
    if tokenizer.vocab_size > encoder.vocab_size:
        raise CheckpointError(
            f"{source}: not written: the tokenizer has {tokenizer.vocab_size} ids, but the "
            f"encoder only {encoder.vocab_size}; give the tokenizer that the encoder was trained "
            "with"
        )
    heads = form.head_names(encoder.causal)
    exported = [task for task in heads if task in task_states and head is None]
    architecture = form.architectures[frozenset(exported)] if head is None else head.architecture
    described = f"A {architecture} of transformers"
    report = ExportReport(architecture, described, form.notes(encoder))
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
        config |= _head_config(head)
    if trained_max_length is not None:
        config[TRAINED_MAX_LENGTH] = trained_max_length
    for task in exported:
        tensors |= _head_tensors(task, task_states[task], heads[task])
    form.before_writing(config, tensors)
    segments = getattr(encoder, "type_vocab_size", 2) > 1 and not form.drops_segments(encoder)
    text = json.dumps(config, indent=2, sort_keys=True)
    write_text(folder / "config.json", text + "\n")
    # transformers asks for "format" and refuses a file without it
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    make_readable(folder / "model.safetensors")
    # what transformers' pipelines cut texts to is what the head has learned to read
    trained = None if head is None else trained_max_length
    save_tokenizer(tokenizer, folder, encoder, segments, model_max_length, trained)
    return report


def _check_computes_the_same(
    form: HuggingFaceForm, encoder: Encoder, head: HuggingFaceHead | None, source: str
) -> None:
    refusal = form.refusal(encoder)
    if refusal is not None:
        raise CheckpointError(
            f"{source}: not written: {refusal}; use the model in bertlab, or export the run that "
            "it was started from"
        )
    if encoder.causal and head is not None and head.layout.has_pooler:
        raise CheckpointError(
            f"{source}: not written: transformers' {head.architecture} pools the first token, "
            "which in a left-to-right encoder (model.encoder.causal true) sees nothing of the "
            "text; bertlab pools the last one, so the logits would differ. Use the model in "
            "bertlab, or export the run that it was started from"
        )


def _form_of(encoder: Encoder, tokenizer: Tokenizer) -> HuggingFaceForm:
    first, *others = _forms_of(encoder)
    return next((form for form in others if form.suits(encoder, tokenizer)), first)


def _forms_of(encoder: Encoder) -> list[HuggingFaceForm]:
    """Return the forms of an encoder: its own, and those that packages add to one of them."""
    forms = list(encoder.huggingface)
    own = {form.model_type for form in forms}
    for name in installed("huggingface_form") if forms else ():
        try:
            added: HuggingFaceForm = load_class("huggingface_form", name, HuggingFaceForm)()
        except PluginError:  # maybe of another encoder
            continue
        if added.extends in own:
            forms.append(added)
    return forms


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


def _head_config(head: HuggingFaceHead) -> dict[str, Any]:
    """Return what ``config.json`` says of a head: dropout, names of classes, ``problem_type``."""
    content: dict[str, Any] = {"classifier_dropout": head.dropout}
    if head.layout.rows is not None:
        return content
    labels = head.labels
    names = [f"LABEL_{n}" for n in range(head.num_rows)] if labels is None else labels.names
    # JSON has texts for keys: {"0": "no", "1": "yes"}
    content["id2label"] = {str(number): name for number, name in enumerate(names)}
    content["label2id"] = {name: number for number, name in enumerate(names)}
    if head.layout.kind == "BertForSequenceClassification":
        kind = "single_label_classification" if head.has_classes else "regression"
        content["problem_type"] = head.problem_type or kind
    if head.threshold is not None:
        content["threshold"] = head.threshold
    return content


def make_readable(path: Path) -> None:
    """Give a file the rights that umask leaves to one made plainly; config.json beside it is one.

    ``safetensors`` and others let the owner alone read what they write.
    """
    path.chmod((path.parent / "config.json").stat().st_mode & 0o777)


def save_tokenizer(
    tokenizer: Tokenizer, folder: Path, encoder: Encoder, has_segments: bool, *lengths: int | None
) -> None:
    """Write the tokenizer as ``transformers`` loads it, with what the model adds to it.

    Texts are cut to the smallest of the ``lengths`` that are known, and of the encoder's.
    """
    tokenizer.save(folder)
    path = folder / "tokenizer_config.json"
    longest = min(filter(None, (encoder.max_position_embeddings, *lengths)))
    more: dict[str, object] = {"model_max_length": longest}
    if not has_segments:
        more["model_input_names"] = ["input_ids", "attention_mask"]
    write_json(path, read_object(path) | more)
