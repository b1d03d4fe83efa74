"""bertlab's own checkpoints: Lightning's file plus the resolved config and the tokenizer."""

import re
import zipfile
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertlab.api.encoder import Encoder
from bertlab.api.examples import Labels
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_directory import BEST_CHECKPOINT
from bertlab.checkpoints.tensor_files import (
    check_tensors,
    count_layers,
    list_limited,
    load_torch_file,
    refuse_pipe,
    shape_of,
)
from bertlab.checkpoints.training_state import (
    is_of_type,
    kinds_of_training_state,
    refusing_config,
)
from bertlab.config.checkpoint_config import read_stored_config
from bertlab.config.recorded import check_version, drop_empty_arguments
from bertlab.config.yaml_files import Config
from bertlab.errors import CheckpointError, ConfigError, DamagedCheckpointError
from bertlab.files import read_object
from bertlab.model.build import build_encoder
from bertlab.model.optimizer import EarlierOptimizer
from bertlab.model.optimizer_config import DEFAULT_OPTIMIZER
from bertlab.plugins.index import load_class, of_package, remember_origin
from bertlab.plugins.strangers import named_package
from bertlab.tokenizer.files import tokenizer_from_json

LAST_FILE = "last.ckpt"
RUN_KEY = "bertlab"  # where a checkpoint keeps what is ours

_AFTER_WORDS = re.compile(r"words-\d+[KM]?\.ckpt")  # key checkpoint_words of bertlab-evaluations


def find_checkpoint(path: str | Path, best: bool = True) -> Path | None:
    """Return the checkpoint file of a run directory or file, or None if ``path`` is neither."""
    path = Path(path)
    refuse_pipe(path)
    if path.is_file():
        return path
    if best and (path / BEST_CHECKPOINT).is_file():
        return _best_checkpoint(path)
    if (path / "manifest.json").is_file() or (path / "checkpoints").is_dir():
        last = last_checkpoint(path)
        if last is None:
            said = f"{path}: this run has no checkpoint yet (no {path / 'checkpoints' / LAST_FILE})"
            raise CheckpointError(f"{said}; if it has a checkpoint.dirpath, name a file there")
        return last
    if (path / "stages").is_dir():
        said = f"{path}: the last stage of this run has no checkpoint yet"
        raise CheckpointError(f"{said}; name the run of another, {path / 'stages'}/NAME")
    return None


def last_checkpoint(run: Path) -> Path | None:
    """Return the checkpoint of a run's last step; None if there is none that is whole.

    That is ``last.ckpt``, or a file of a later step: a kill may fall between the two.
    """
    last = run / "checkpoints" / LAST_FILE
    refuse_pipe(last)
    files = [each for each in run.glob("checkpoints/*.ckpt") if each.is_file()]
    files = [each for each in files if zipfile.is_zipfile(each)]
    # those after words are written beside a run's own: it does not go on from them
    files = [each for each in files if not _AFTER_WORDS.fullmatch(each.name)]
    if last.is_file():
        written = last.stat().st_mtime_ns
        files = [each for each in files if each.stat().st_mtime_ns > written]
        if not files:
            return last
        files.append(last)
    # in a copied run any file may be the newest, but of one step the first, last.ckpt, is returned
    return max(reversed(files), key=_step_of, default=None)


def _step_of(file: Path) -> int:
    """Return the step of a checkpoint; -1 of what is none."""
    try:
        content = load_torch_file(file)
    except CheckpointError:
        return -1
    step = content.get("global_step") if isinstance(content, dict) else None
    return step if type(step) is int else -1


def _best_checkpoint(run: Path) -> Path:
    """Return the checkpoint that ``best.json`` names."""
    try:
        name = read_object(run / BEST_CHECKPOINT, {"checkpoint": str})["checkpoint"]
        # the run may have been moved; and a name such as ../../x leads nowhere
        file = run / "checkpoints" / Path(name).name
    except (OSError, ValueError, KeyError, TypeError) as error:
        told = f"{run / BEST_CHECKPOINT}: damaged: {error}"
        raise DamagedCheckpointError(f"{told}; name a checkpoint file") from None
    if not file.is_file():
        raise DamagedCheckpointError(
            f"{run / BEST_CHECKPOINT}: names {name}, which is not there; name another file"
        )
    return file


def read_run_checkpoint(path: Path, with_optimizer: bool = False) -> Pretrained:
    """Read a checkpoint as data: nothing in it is executed."""
    content = load_torch_file(path)
    if not isinstance(content, dict) or not isinstance(content.get(RUN_KEY), dict):
        said = f"{path}: not a bertlab checkpoint (it has no {RUN_KEY!r} entry)"
        raise CheckpointError(f"{said}; Hugging Face models are read from their folder")
    ours = content[RUN_KEY]
    missing = [key for key in ("config", "tokenizer", "token_counts") if key not in ours]
    missing += [key for key in ("state_dict", "global_step") if key not in content]
    if missing:
        lacks = ", ".join(missing)
        raise DamagedCheckpointError(f"{path}: a damaged bertlab checkpoint: it lacks {lacks}")
    writer = ours.get("version")
    check_version(ours.get("config_version"), writer, str(path))
    config, left_out = read_stored_config(ours["config"], str(path))
    check_tensors(path, content)
    _check_kinds(path, content, ours)
    _remember_plugins(path, ours.get("made_with", {}))
    tokenizer = tokenizer_from_json(ours["tokenizer"], str(path))
    start = Pretrained(
        source=str(path),
        encoder_config=config["model"]["encoder"],
        vocab_size=_rows(content["state_dict"], tokenizer.vocab_size),
        state=content["state_dict"],
        tokenizer=tokenizer,
        labels=_labels(ours.get("labels"), path),  # checkpoints of pre-training may lack it
        head_labels=_head_labels(ours.get("head_labels", {}), path),
        trained_max_length=_trained_max_length(config),
        path=path,
        config=config,
        left_out=left_out,
        global_step=content["global_step"],
        token_counts=ours["token_counts"],
        optimizer=_optimizer(path, content, config) if with_optimizer else None,
        data=dict(ours.get("data", {})),
        version=writer if isinstance(writer, str) else None,
    )
    return _checked(start)


def _checked(start: Pretrained) -> Pretrained:
    """Refuse weights that are not of the sizes which their config says; return them."""
    known = signature(load_class("encoder", start.encoder_config["name"], Encoder)).parameters
    drop_empty_arguments(
        start.encoder_config, {*known, "name"}, "model.encoder", start.source, start.version
    )
    state = start.encoder_state
    # without memory: a config may ask for terabytes
    with refusing_config(start.source, "encoder"), torch.device("meta"):
        encoder = build_encoder(start.encoder_config, start.vocab_size)
    layers, expected = count_layers(state), count_layers(encoder.state_dict())
    if layers is not None and layers != expected:  # layers with shared weights count once
        asked = start.encoder_config.get("num_hidden_layers")
        said = f"{start.source}: its config says num_hidden_layers: {asked}"
        raise CheckpointError(f"{said}, its tensors are of {layers} layers, expected {expected}")
    differing = [
        f"{name}: in the file {shape_of(state[name])}, by its config {shape_of(each)}"
        for name, each in encoder.state_dict().items()
        if name in state and shape_of(state[name]) != shape_of(each)
    ]
    if differing:
        raise CheckpointError(
            f"{start.source}: its tensors are not of the sizes in its config:\n"
            + list_limited(differing)
        )
    return start


def _rows(state: dict[str, Tensor], ids: int) -> int:
    """Return the rows of the token embedding: as many as ids, or more where they are padded."""
    table = state.get("encoder.token_embedding.weight")
    # fewer, or no table at all: what is expected, for the check of sizes
    return max(ids, len(table)) if table is not None and table.dim() == 2 else ids


def _trained_max_length(config: Config) -> int | None:
    """Return the largest ``data.max_seq_length`` of a run, which may change as it goes."""
    match config["data"].get("max_seq_length"):
        case int(length):
            return length
        case {"from": int() | float() as first, "to": int() | float() as last}:
            return round(max(first, last))
    return None


def _check_kinds(path: Path, content: dict[str, Any], ours: dict[str, Any]) -> None:
    """Refuse a checkpoint whose parts are of other kinds than a run writes."""
    fits = {
        "state_dict": is_of_type(content["state_dict"], dict[str, Tensor]),
        "global_step": type(content["global_step"]) is int and content["global_step"] >= 0,
        "tokenizer": isinstance(ours["tokenizer"], str),
        "token_counts": isinstance(ours["token_counts"], Tensor | None),
        "data": is_of_type(ours.get("data", {}), dict[str, str]),
        "made_with": is_of_type(ours.get("made_with", {}), dict[str, dict[str, str]]),
        "history": is_of_type(ours.get("history", {}), dict[int, dict[str, float]]),
        **kinds_of_training_state(content),
    }
    wrong = [key for key, each in fits.items() if not each]
    if wrong:
        said = f"{path}: a damaged bertlab checkpoint: {', '.join(wrong)}"
        raise DamagedCheckpointError(f"{said}: of another kind than a run writes")


def _remember_plugins(path: Path, made_with: dict[str, dict[str, str]]) -> None:
    """Keep which packages the run's plugins are from, for the message that one is not installed."""
    versions = made_with.get("plugins", {})
    for named, package in made_with.get("plugin_names", {}).items():
        kind, _, name = named.partition(" ")
        words = named_package(package, versions.get(package, "unknown"))
        remember_origin(kind, name, f"{path} was written with that of the package {words}")


def _optimizer(path: Path, content: dict[str, Any], config: Config) -> EarlierOptimizer:
    kind = of_package("model.OptimizerState", ConfigError, "model.init_optimizer")
    named = config["model"].get("optimizer") or {}
    name = named.get("name", DEFAULT_OPTIMIZER)
    parameters = content[RUN_KEY].get("optimizer_parameters")  # older checkpoints lack them
    state: EarlierOptimizer = kind.of_checkpoint(str(path), content, name, parameters)
    return state


def _head_labels(found: object, path: Path) -> dict[str, Labels]:
    """Return the labels of each of several heads, by name; those without classes are not kept."""
    named = found.items() if isinstance(found, dict) else [("head_labels", found)]
    labels = {str(name): _labels(each, path) for name, each in named}
    return {name: each for name, each in labels.items() if each is not None}


def _labels(found: object, path: Path) -> Labels | None:
    """Return what was kept as ``{"names": [...], "counts": [...]}``."""
    if found is None:
        return None
    if isinstance(found, dict) and set(found) == {"names", "counts"}:
        names, counts = found["names"], found["counts"]
        are_lists = is_of_type(names, list[str]) and is_of_type(counts, list[int])
        if are_lists and len(names) == len(counts):
            return Labels.from_dict(found)
    said = f"{path}: a damaged bertlab checkpoint: its labels are {str(found)[:80]}"
    raise DamagedCheckpointError(f"{said}, expected equally many names and counts")
