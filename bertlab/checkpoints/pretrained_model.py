"""``bertlab.load``: an earlier model to use from Python: encoder, tokenizer and tasks."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from html import escape
from pathlib import Path
from typing import Any

import torch

from bertlab.api.encoder import Encoder
from bertlab.api.examples import Example
from bertlab.api.task import Head, Task, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.pretrained import Pretrained, head_settings, known_tokenizer, one_head
from bertlab.checkpoints.restore import (
    check_trained,
    inference_device,
    load_weights,
    read_pretrained,
    restore_module,
)
from bertlab.checkpoints.tensor_files import load_matching
from bertlab.checkpoints.training_state import refusing_config
from bertlab.data.examples.values import checked_string
from bertlab.data.inputs import InputRows, TextRows
from bertlab.data.rows.lines import words_of
from bertlab.errors import CheckpointError, CommandError, DataError
from bertlab.model.build import build_encoder, build_tasks, check_lengths
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab.objectives.changing import largest_of
from bertlab.plugins.index import WithAddedMethods, of_package

Input = str | tuple[Any, ...] | Mapping[str, Any]  # a text, a pair of texts, an example


def load(source: str | Path, head: str | None = None) -> "PretrainedModel":
    """Load a model to use it: ``load("runs/quickstart").predict(["Return the [MASK]."])``.

    Args:
        source: run directory (its best checkpoint, else the last), checkpoint file, Hugging Face
            folder or hub name.
        head: of a run with several heads the one to predict with, by its name in the run's config.
            Of a fine-tuned Hugging Face model the name of the plugin; by default what its class
            says, and ``single_sentence`` for ``BertForSequenceClassification``.

    Raises:
        CommandError: if a run has no such head.
        CheckpointError: if it is none of these, damaged or hostile, or has no tokenizer
            whose ids its encoder knows.
    """
    return model_of(read_pretrained(str(source)), head)


def model_of(found: Pretrained, head: str | None = None) -> "PretrainedModel":
    """Make the model of what was read; see :func:`load`. The weights in ``found`` are released."""
    if found.config is not None and head is not None:
        found = one_head(found, head, "head")
    tokenizer = known_tokenizer(found)
    module: BertModule | Encoder
    if found.config is not None:
        with refusing_config(found.source, "model"):
            module = restore_module(found, found.config, build_tasks(found.config["model"]))
            longest = largest_of(found.config["data"]["max_seq_length"])
            check_lengths(longest, module.encoder)
    else:
        module = _huggingface_module(found, tokenizer, head)
        encoder = module.encoder if isinstance(module, BertModule) else module
        longest = found.longest_read(encoder.max_position_embeddings)
    found.release_weights()
    module.to(inference_device()).eval()
    transforms = found.config and found.config["data"].get("transforms")
    made = found.source, module, tokenizer, longest, found.path, found.global_step
    return PretrainedModel(*made, transforms)


class PretrainedModel(WithAddedMethods):
    """A loaded model in evaluation mode, on the GPU if there is one.

    Args:
        source: where it comes from.
        module: the LightningModule; an encoder alone if the source has no task.
        tokenizer: that the weights were trained with.
        max_seq_length: most tokens of a sequence, special tokens included.
        path: the file of a run's checkpoint.
        global_step: optimiser steps that the run had done.
        transforms: ``data.transforms`` of the run, which change what the head predicts on.

    Attributes:
        encoder: maps a :class:`bertlab.PackedBatch` to hidden states.
        tasks: objectives or the head, by name; empty for an encoder alone.
        tokenizer: text to ids and back.
    """

    def __init__(
        self,
        source: str,
        module: BertModule | Encoder,
        tokenizer: Tokenizer,
        max_seq_length: int,
        path: Path | None = None,
        global_step: int = 0,
        transforms: Mapping[str, Any] | None = None,
    ) -> None:
        self.source = source
        self.transforms = transforms
        self.tokenizer = tokenizer
        self.max_seq_length = max_seq_length
        self.path = path
        self.global_step = global_step
        self._module = module
        self.encoder: Encoder = module.encoder if isinstance(module, BertModule) else module
        tasks = module.named_tasks() if isinstance(module, BertModule) else {}
        self.tasks: Mapping[str, Task] = tasks

    def predict(self, texts: Input | Sequence[Input]) -> list[dict[str, Any]]:
        """Return a prediction for each text, as ``bertlab predict`` writes them.

        Args:
            texts: one text or several; pairs of texts as tuples; for a head also mappings from its
                columns to values, ``{"question": …, "context": …}``, or a DataFrame with them.

        Raises:
            CheckpointError: if the model has no task to predict with.
            CommandError: if it has several heads, and none was named.
            DataError: if a text is not of a form that the head reads.
            ConfigError: if a text is empty; of objectives also if it is too long. A head reads the
                start of what is too long, or several windows; a warning says so.
        """
        if not isinstance(self._module, BertModule):
            told = "has an encoder and no head that bertlab reads, nothing to predict with"
            raise CheckpointError(f"{self.source}: {told}")
        if len(heads := self._module.heads) > 1:
            told = f"{self.source}: has several heads, expected one"
            raise CommandError(f"{told}: load(…, head=NAME) with NAME one of {', '.join(heads)}")
        inputs = _one_by_one(texts)
        return _predict(self._module, self.tokenizer, inputs, self.max_seq_length, self.transforms)

    def __repr__(self) -> str:
        sizes = f"{self.encoder.num_hidden_layers} layers of {self.encoder.hidden_size}"
        tasks = ", ".join(self.tasks) or "no task"
        return f"<{type(self.encoder).__name__} of {self.source}: {sizes}, {tasks}>"

    def _repr_html_(self) -> str:
        return f"<code>{escape(repr(self))}</code>"


def _huggingface_module(
    found: Pretrained, tokenizer: Tokenizer, head: str | None
) -> BertModule | Encoder:
    """Return a module with the head or objectives that the folder has; else the encoder alone."""
    encoder = build_encoder(found.encoder_config, found.vocab_size)
    if found.head is None and head is not None:
        raise CheckpointError(f"{found.source}: has no trained head, found head={head!r}")
    if found.head is not None:
        tasks = build_tasks({"head": head_settings(found.head, head)})
    else:
        tasks = build_tasks({"objectives": dict.fromkeys(found.task_states)})
    if not tasks:
        load_matching(encoder, found.encoder_state, found.source, ("pooler.",))
        return encoder
    context = TaskContext(encoder, tokenizer, labels=found.class_labels)
    module = BertModule(encoder, tasks, context, OptimizerConfig())
    check_trained(load_weights(found, module), module, found.source)
    return module


def _one_by_one(texts: Any) -> list[Input]:  # noqa: ANN401  a DataFrame may be one of pandas
    """Return the inputs; a text or a tuple is a sequence itself, but here it is one input."""
    if isinstance(texts, str | tuple | Mapping):
        return [texts]
    if hasattr(texts, "columns") and hasattr(texts, "to_dict"):  # its own items are its columns
        texts = texts.to_dict("records")
    if isinstance(texts, bytes | Set) or not isinstance(texts, Iterable):
        raise DataError(f"found {texts!r:.80}, expected a text, or several in their order")
    return list(texts)


@torch.no_grad()
def _predict(
    module: BertModule,
    tokenizer: Tokenizer,
    inputs: Sequence[Input],
    max_seq_length: int,
    transforms: Mapping[str, Any] | None,
) -> list[dict[str, Any]]:
    """Return a prediction for each input, as ``bertlab predict`` writes them."""
    head = module.head
    if head is None:
        return _of_objectives(module, tokenizer, inputs, max_seq_length)
    examples = [_example(each, number, head) for number, each in enumerate(inputs)]
    if transforms:
        change = of_package("data.change_inputs", CheckpointError, "data.transforms of the run")
        examples = change(transforms, head.columns, examples)
    (name,) = module.named_tasks()  # a head is the only task
    batches = InputRows(iter(examples), head, name, tokenizer, max_seq_length)
    parts: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for step in batches:
        for batch in step:
            predicted = module.predict_step(batch.to(module.device), 0)
            # rows [0, 0, 1]: a long text was cut in two, and row 0 has two parts to merge
            for number, part in zip(batch.fields["row"].tolist(), predicted, strict=True):
                parts[number].append(part)
    batches.warn_of_cut()
    return [head.merge(example, parts[number]) for number, example in enumerate(examples)]


def _of_objectives(
    module: BertModule, tokenizer: Tokenizer, inputs: Sequence[Input], limit: int
) -> list[dict[str, Any]]:
    rows = []
    for number, each in enumerate(inputs):
        texts = (each,) if isinstance(each, str) else each
        is_text = isinstance(texts, tuple) and all(isinstance(text, str) for text in texts)
        if not is_text or not 0 < len(texts) <= 2:
            raise DataError(f"text {number}: found {each!r}, expected a text or a pair of texts")
        values = dict(zip(("text", "text_pair"), texts, strict=False))
        rows.append(Example(values, f"text {number}"))
    batches = TextRows(iter(rows), tokenizer, limit)
    return [
        prediction
        for step in batches
        for batch in step
        for prediction in module.predict_step(batch.to(module.device), 0)
    ]


def _example(given: Input, number: int, head: Head) -> Example:
    """Return an input under the names of the head's columns."""
    where = f"input {number}"
    columns = [column for column in head.columns if not column.is_truth and column.required]
    if isinstance(given, Mapping):
        values, row = dict(given), given
        for column in head.columns:
            if known := [name for name in (column.name, *column.aliases) if name in given]:
                values[column.name] = given[known[0]]
        if missing := [column.name for column in columns if column.name not in values]:
            raise DataError(f"{where}: found {', '.join(map(str, given))}, expected {missing[0]}")
    else:
        several = isinstance(given, tuple if len(columns) == 1 else tuple | list)
        texts, row = given if several else (given,), {"text": given}
        if len(texts) != len(columns):
            names = ", ".join(column.name for column in columns)
            raise DataError(f"{where}: found {given!r}, expected values for {names}")
        values = {column.name: value for column, value in zip(columns, texts, strict=True)}
    for name in (column.name for column in columns if column.kind == "texts"):
        found = values[name]
        if len(columns) == 1 and isinstance(found, str):
            found = words_of(found)  # a text is a sequence, too: of its characters
        parts = found if isinstance(found, Iterable) else [found]
        values[name] = [checked_string(part, f"{where}: {name}") for part in parts]
    return Example(values, where, row)
