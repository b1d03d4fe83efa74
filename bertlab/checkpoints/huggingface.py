"""Reading encoders that have a Hugging Face form: from its folders and hub, or by a reader."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertlab.api.encoder import Encoder
from bertlab.api.exchange import CheckpointReader, ForeignCheckpoint
from bertlab.api.huggingface import HuggingFaceForm
from bertlab.checkpoints.pretrained import Pretrained, read_head
from bertlab.checkpoints.tensor_files import list_limited, read_tensors
from bertlab.data.sources import WEIGHT_FILES, find_model_folder
from bertlab.encoders.layers import MOST_LAYERS
from bertlab.errors import CheckpointError, ConfigError, PluginError, nearest
from bertlab.files import names_in, read_object
from bertlab.model.build import build_encoder
from bertlab.plugins.index import FILES_OF_READERS, FIRST_PARTY, installed, load_class, where_to_get
from bertlab.tokenizer.files import load_tokenizer

CONFIG_FILES = ("config.json", "bert_config.json")  # the second of BERT's own checkpoints
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt")
TRAINED_MAX_LENGTH = "trained_max_length"  # bertlab's own key of config.json


@dataclass
class _Parts:
    """Tensors by Hugging Face's names: encoder and heads without prefix, and all others."""

    encoder: dict[str, Tensor]
    heads: dict[str, Tensor]
    others: dict[str, Tensor]
    root: str  # what stands before the prefix of encoder and heads in the file


def find_foreign(path: Path) -> tuple[CheckpointReader, Path] | None:
    """Return the first installed reader, by name, that knows a path, and the file that it reads."""
    for name in installed("reader"):
        try:
            reader: CheckpointReader = load_class("reader", name, CheckpointReader)()
        except PluginError:  # it may not be the one that is needed
            continue
        if (file := reader.find(path)) is not None:
            return reader, file
    for name, ending in FILES_OF_READERS.items():
        there = path.with_name(path.name.removesuffix(ending) + ending) if path.name else path
        if name not in installed("reader") and (there.is_file() or any(path.glob(f"*{ending}"))):
            told = f"{path}: a checkpoint that the reader {name!r} reads"
            raise CheckpointError(f"{told}, which is not installed{where_to_get('reader', name)}")
    return None


def read_foreign(source: str | Path) -> Pretrained:
    """Read what is no run of bertlab's: in Hugging Face's form, or in one that a reader knows."""
    path = Path(source).expanduser()
    has_weights = all(_first_file(path, names) for names in (CONFIG_FILES, WEIGHT_FILES))
    found = None if has_weights else find_foreign(path)
    if found is None:
        return read_huggingface(source)
    reader, file = found
    return _pretrained(reader.read(file), source)


def read_huggingface(folder_or_hub_name: str | Path) -> Pretrained:
    """Read an encoder that Hugging Face's ``transformers`` saved, such as a BERT or a ModernBERT.

    Every class that holds one of it is read (``BertModel``, ``BertForPreTraining``,
    ``BertForMaskedLM``, ``BertForSequenceClassification``, …), with the old names ``gamma`` and
    ``beta`` of LayerNorms too. ``is_decoder`` becomes ``causal``; ``seq_relationship`` of such a
    model is left out, as ``transformers`` pools the first token and bertlab the last.
    """
    folder = find_model_folder(folder_or_hub_name)
    path = config_file(folder)
    content = read_huggingface_config(path)
    form_of(content, path)[1].arguments(content, path)  # what it refuses needs no weights
    weights = _first_file(folder, WEIGHT_FILES)
    if weights is None:
        expected = " or ".join(WEIGHT_FILES)
        raise CheckpointError(f"{folder}: holds no weights that can be read, expected {expected}")
    found = ForeignCheckpoint(content, read_tensors(weights), path, weights)
    return _pretrained(found, folder_or_hub_name)


def _pretrained(found: ForeignCheckpoint, source: str | Path) -> Pretrained:
    """Return a checkpoint by bertlab's names, checked."""
    content, path, weights = found.config, found.config_file, found.weights_file
    folder = path.parent
    name, form = form_of(content, path)
    config = form.arguments(content, path)
    parts = _split(found.tensors, form, weights)
    _check_layers(parts, form, config, weights)
    form.after_reading(content, parts.encoder, parts.heads)
    _check_shapes(parts, form, {"name": name, **config}, path, weights)
    _drop_tied_decoder(parts, form, weights)
    state = {
        f"encoder.{ours}": _join([parts.encoder.pop(name) for name in theirs])
        for ours, theirs in form.encoder_names(config["num_hidden_layers"]).items()
        if theirs[0] in parts.encoder
    }
    used: set[str] = set()
    # a task's tensors are read if all are there, as are the pooler's
    heads = form.head_names(config.get("causal", False)).items()
    owners = [("encoder", form.pooler_names()), *((f"tasks.{task}", each) for task, each in heads)]
    for owner, names in owners:
        if names and all(theirs in parts.heads for theirs in names.values()):
            state |= {f"{owner}.{ours}": parts.heads[theirs] for ours, theirs in names.items()}
            used |= set(names.values())
    others = {name.removeprefix(parts.root): tensor for name, tensor in parts.others.items()}
    head = read_head(form, content | config, others, weights)
    taken = () if head is None else tuple(parts.root + n for n in head.layout.written_names)
    left = [name for name in parts.others if name not in taken]
    has_tokenizer = _first_file(folder, TOKENIZER_FILES) is not None
    file = folder / "tokenizer_config.json"
    settings = read_huggingface_config(file) if file.is_file() else {}
    return Pretrained(
        source=str(source),
        encoder_config={"name": name} | {k: v for k, v in config.items() if k != "vocab_size"},
        vocab_size=config["vocab_size"],
        state=state,
        # by its folder, whose tokenizer_config.json says whether it is cased
        tokenizer=load_tokenizer(folder) if has_tokenizer else None,
        labels=None if head is None else head.labels,
        head=head,
        model_max_length=_length(settings, "model_max_length"),
        trained_max_length=_length(content, TRAINED_MAX_LENGTH),
        unused=[*parts.encoder, *(name for name in parts.heads if name not in used), *left],
    )


def form_of(content: Mapping[str, Any], path: Path) -> tuple[str, HuggingFaceForm]:
    """Return the encoder, by its entry point, and its form that a ``config.json`` names."""
    model_type = content.get("model_type", "bert")  # checkpoints of before 2020 have none
    added = installed("huggingface_form")
    form: HuggingFaceForm | None = None
    if isinstance(model_type, str) and model_type in added:
        form = load_class("huggingface_form", model_type, HuggingFaceForm)()
    wanted = model_type if form is None else form.extends
    known: list[str] = []
    encoders = installed("encoder")
    for name in sorted(encoders, key=lambda each: encoders[each].package not in FIRST_PARTY):
        try:
            forms = load_class("encoder", name, Encoder).huggingface
        except PluginError:  # of a model that another encoder may know
            continue
        for own in forms:
            if own.model_type == wanted:
                return name, form or own
            known.append(own.model_type)
    known += added
    get = where_to_get("model_type", str(model_type))
    raise CheckpointError(
        f"{path}: found model_type {str(model_type)[:80]!r}, expected "
        f"{' or '.join(repr(each) for each in known)}{get or nearest(str(model_type), known)}"
    )


def read_huggingface_config(path: Path) -> dict[str, Any]:
    """Return the content of a ``config.json``."""
    try:
        return read_object(path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read as JSON: {error}") from None


def config_file(folder: Path) -> Path:
    """Return a folder's ``config.json``, or the ``bert_config.json`` of BERT's own code."""
    if path := _first_file(folder, CONFIG_FILES):
        return path
    told = f"{folder}: holds no model ({names_in(folder)}); expected a run"
    raise CheckpointError(f"{told}, a checkpoint, or a folder with {CONFIG_FILES[0]} and weights")


def _length(content: Mapping[str, Any], key: str) -> int | None:
    """Return a number of tokens that a file records; None if there is none that can be."""
    found = content.get(key)
    return found if type(found) is int and found > 0 else None  # to isinstance(), True is an int


def _first_file(folder: Path, names: tuple[str, ...]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _join(tensors: list[Tensor]) -> Tensor:
    return tensors[0] if len(tensors) == 1 else torch.cat(tensors)  # three (H, H) -> (3H, H)


def _split(tensors: Mapping[str, Tensor], form: HuggingFaceForm, weights: Path) -> _Parts:
    """Sort tensors into encoder, heads and others, without prefixes and with today's names."""
    # "", "bert." and "model.bert." before the word embedding of a BERT; not "roberta."
    prefix, embedding = re.escape(form.prefix), re.escape(form.word_embedding)
    pattern = re.compile(rf"((?:.*\.)?{prefix}|){embedding}")
    roots = [match[1] for name in tensors if (match := pattern.fullmatch(name))]
    if len(roots) != 1:
        raise CheckpointError(
            f"{weights}: found {len(roots)} tensors named …{form.word_embedding}, expected one of "
            f"a {form.model_type}; the first tensors are {', '.join(list(tensors)[:3])}"
        )
    encoder_root = roots[0]
    root = encoder_root.removesuffix(form.prefix)  # model.bert. -> model.
    inside = tuple(encoder_root + part for part in form.parts)
    heads = tuple(root + part for part in form.head_parts)
    parts = _Parts({}, {}, {}, root)
    for name, tensor in tensors.items():
        # names of TensorFlow's checkpoints, which the first PyTorch conversions kept
        modern = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        modern = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", modern)
        if name.startswith(heads):
            parts.heads[modern.removeprefix(root)] = tensor
        elif not name.startswith(inside):
            parts.others[name] = tensor
        elif not name.endswith("embeddings.position_ids"):  # a buffer of old versions
            parts.encoder[modern.removeprefix(encoder_root)] = tensor
    return parts


def _check_layers(
    parts: _Parts, form: HuggingFaceForm, config: Mapping[str, Any], weights: Path
) -> None:
    pattern = re.compile(rf"{re.escape(form.layers)}(\d+)\.")
    layers = {int(m[1]) for name in parts.encoder if (m := pattern.match(name))}
    named = form.encoder_names(min(config["num_hidden_layers"], MOST_LAYERS)).values()
    # ALBERT's layers are one; {0, 1, 3} of 3: the count is right, but layer 2 is missing
    expected = {int(m[1]) for names in named for name in names if (m := pattern.match(name))}
    if layers != expected:
        raise CheckpointError(
            f"{weights}: holds {len(layers)} layers, but config.json beside it says "
            f"num_hidden_layers {config['num_hidden_layers']}"
        )


def _check_shapes(
    parts: _Parts, form: HuggingFaceForm, config: Mapping[str, Any], path: Path, weights: Path
) -> None:
    """Compare the tensors with what config.json says of them."""
    try:
        with torch.device("meta"):  # shapes without memory
            arguments = {key: value for key, value in config.items() if key != "vocab_size"}
            encoder = build_encoder(arguments, config["vocab_size"])
    except (ConfigError, RuntimeError, OverflowError) as error:
        raise CheckpointError(f"{path}: {str(error).splitlines()[0]}") from None
    shapes = {name: tuple(tensor.shape) for name, tensor in form.state(encoder).items()}
    expected: dict[str, tuple[int, ...]] = {}
    optional: set[str] = set()
    for ours, theirs in form.encoder_names(config["num_hidden_layers"]).items():
        if ours in shapes:
            # (3H, H) of qkv -> (H, H) of each
            first, *rest = shapes[ours]
            expected |= dict.fromkeys(theirs, (first // len(theirs), *rest))
            optional |= set(theirs) if ours.startswith("pooler.") else set()
    missing = [name for name in expected if name not in parts.encoder and name not in optional]
    if missing:
        raise CheckpointError(
            f"{weights}: lacks {len(missing)} of the encoder's {len(expected)} tensors:\n"
            + list_limited(missing)
        )
    for head in form.head_names(encoder.causal).values():
        for ours, name in head.items():
            expected[name] = _head_shape(ours, encoder)
    present = parts.heads | parts.encoder
    differing = [
        f"{name}: tensor {tuple(present[name].shape)} "
        f"{str(present[name].dtype).removeprefix('torch.')}, config.json {shape} float"
        for name, shape in expected.items()
        if name in present
        and (tuple(present[name].shape) != shape or not present[name].is_floating_point())
    ]
    if differing:
        raise CheckpointError(
            f"{weights}: {len(differing)} tensors are not as config.json beside it says:\n"
            + list_limited(differing)
        )


def _head_shape(name: str, encoder: Encoder) -> tuple[int, ...]:
    """Return the shape of a tensor of ``mlm``, ``clm`` or ``nsp``, by bertlab's name."""
    embedded = encoder.token_embedding.embedding_dim
    special = {
        "bias": (encoder.vocab_size,),
        "dense.weight": (embedded, encoder.hidden_size),
        "classifier.weight": (2, encoder.hidden_size),
        "classifier.bias": (2,),
    }
    return special.get(name, (embedded,))


def _drop_tied_decoder(parts: _Parts, form: HuggingFaceForm, weights: Path) -> None:
    """Drop the decoder's copies of tied tensors; refuse a decoder of its own."""
    bias = parts.heads.pop(f"{form.decoder}.bias", None)
    if bias is not None:
        parts.heads.setdefault(form.decoder_bias, bias)
    # pytorch_model.bin has copies of tied tensors, model.safetensors leaves them out
    weight = parts.heads.pop(f"{form.decoder}.weight", None)
    tied = (
        ("weight", weight, parts.encoder[form.word_embedding]),
        ("bias", bias, parts.heads.get(form.decoder_bias)),
    )
    for kind, copy, original in tied:
        if copy is None or original is None:
            continue
        if copy.dtype != original.dtype or not torch.equal(copy, original):
            shared = "the token embedding" if kind == "weight" else form.decoder_bias
            raise CheckpointError(
                f"{weights}: {form.decoder}.{kind} is not tied to {shared}; untied "
                "decoders are not supported, as bertlab's language-model heads share that tensor"
            )
