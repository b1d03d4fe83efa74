"""Where weights, tokenizer and labels come from: a checkpoint, a warm start, or new."""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path

import torch
from torchmetrics import Metric

from bertlab.api.encoder import Encoder
from bertlab.api.task import Task, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.huggingface import find_foreign, read_foreign
from bertlab.checkpoints.loading import count_layers, list_limited, load_matching, shape_of
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.run_checkpoint import (
    explain_no_checkpoint,
    find_checkpoint,
    read_run_checkpoint,
)
from bertlab.checkpoints.run_directory import give_up
from bertlab.config.recorded import drop_empty_arguments
from bertlab.config.request import Request, one_head_config
from bertlab.config.yaml_files import Config, differences
from bertlab.data.module import EvaluationRows, TaskData
from bertlab.errors import (
    CheckpointError,
    CommandError,
    ConfigError,
    TokenizerError,
    nearest,
)
from bertlab.model.build import build_encoder
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import read_optimizer
from bertlab.plugins.index import load_class
from bertlab.tokenizer.files import load_tokenizer


def one_head(start: Pretrained, name: str | None, key: str = "--head") -> Pretrained:
    """Return what a checkpoint holds of one of its heads, in the form of a run with one head.

    So all that reads such a run reads this one: prediction, export, demo. What has no several heads
    is returned as it is.
    """
    config = start.config
    # of a Hugging Face folder there is no config, and at most one head
    heads = {} if config is None else config["model"].get("heads") or {}
    if config is None or not heads:
        own = None if start.head_config is None else start.head_config["name"]
        if name not in (None, own):
            there = "it has none" if own is None else f"it has one, {own}"
            raise CommandError(
                f"{key}: found {name!r}, but {start.source} has no several heads ({there}); leave "
                "it out"
            )
        return start
    if name is None and len(heads) == 1:
        (name,) = heads
    if name is None or name not in heads:
        found = "none" if name is None else repr(name)
        raise CommandError(
            f"{key}: found {found}, expected one of the heads of {start.source}: "
            f"{', '.join(heads)}{nearest(name or '', heads)}"
        )
    plugin, prefix = heads[name]["name"], f"tasks.{name}."
    state = {
        # tasks.mrpc.classifier.weight -> tasks.sentence_pair.classifier.weight
        key.replace(prefix, f"tasks.{plugin}.", 1): tensor
        for key, tensor in start.state.items()
        if key.startswith(("encoder.", prefix))
    }
    return replace(
        start,
        config=one_head_config(config, name),
        state=state,
        labels=start.head_labels.get(name),
        head_labels={},
    )


LAST = "last"  # a --ckpt_path: the config's own run


def read_pretrained(source: str, with_optimizer: bool = False) -> Pretrained:
    """Read a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name."""
    file = find_checkpoint(source, best=not with_optimizer)
    # a checkpoint of ours may have been renamed, but not to what a reader knows
    if file is not None and (file.suffix == ".ckpt" or find_foreign(file) is None):
        return _check_sizes(read_run_checkpoint(file, with_optimizer))
    if with_optimizer:
        raise CheckpointError(
            f"model.init_optimizer: model.init_from, {source}, is not a run of bertlab, so it has "
            "no optimiser's state; take the key out"
        )
    if any(Path(source).expanduser().glob("*.ckpt")):
        raise CheckpointError(f"{source}: no run or checkpoint{explain_no_checkpoint(source)}")
    return _check_sizes(read_foreign(source))


def _check_sizes(start: Pretrained) -> Pretrained:
    """Refuse weights that are not of the sizes which their config says; return them.

    The encoder is laid out without memory first (torch's meta device), so that a config that asks
    for terabytes is refused before any of them is taken.
    """
    if start.path is not None:
        name = start.encoder_config["name"]
        known = signature(load_class("encoder", name, Encoder)).parameters
        drop_empty_arguments(
            start.encoder_config, {*known, "name"}, "model.encoder", start.source, start.version
        )
    state = start.encoder_state
    layers, asked = count_layers(state), start.encoder_config.get("num_hidden_layers")
    if layers is not None and isinstance(asked, int) and asked != layers:
        raise CheckpointError(
            f"{start.source}: its config says num_hidden_layers: {asked}, its tensors are of "
            f"{layers} layers"
        )
    try:
        with torch.device("meta"):
            encoder = build_encoder(start.encoder_config, start.vocab_size)
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        reason = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"{start.source}: no encoder can be made of its config: {reason}"
        ) from None
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


def known_tokenizer(start: Pretrained) -> Tokenizer:
    """Return the tokenizer of an earlier model, all of whose ids the encoder knows."""
    tokenizer = start.tokenizer
    if tokenizer is None:
        raise CheckpointError(f"{start.source}: has no tokenizer (vocab.txt or tokenizer.json)")
    if tokenizer.vocab_size > start.vocab_size:
        raise CheckpointError(
            f"{start.source}: its tokenizer has {tokenizer.vocab_size} ids, but its token "
            f"embedding only {start.vocab_size} rows"
        )
    return tokenizer


def inference_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def read_checkpoint(request: Request, command: str) -> Pretrained | None:
    """Read what ``--ckpt_path`` names: to go on with (``fit``, from the last one) or to use.

    ``last`` is the newest checkpoint of the config's own run. Where ``fit`` finds none, it begins
    that run anew.
    """
    path = request.ckpt_path
    if path == LAST:
        run = last_run(request)
        if run is None and command != "fit":
            raise CheckpointError(f"--ckpt_path {LAST}: no run of this config has a checkpoint")
        if run is None and request.run_dir is not None:  # ended before its first checkpoint
            give_up(Path(request.run_dir))
        path = None if run is None else str(run)
    if path is None:
        return None
    file = find_checkpoint(path, best=command != "fit")
    if file is None:
        parent = Path(path).expanduser().parent
        beside = [each.name for each in parent.iterdir()] if parent.is_dir() else []
        hint = explain_no_checkpoint(path) or nearest(Path(path).name, beside)
        raise CheckpointError(f"--ckpt_path: {path}: no such run or checkpoint{hint}")
    return _check_sizes(_read_or_offer(file))


def read_warm_start(request: Request) -> Pretrained | None:
    """Read what ``model.init_from`` names; the encoder is that one's, if the request names none."""
    if request.init_from is None:
        if request.init_optimizer:
            raise ConfigError(
                "model.init_optimizer: expected model.init_from beside it, with the run whose "
                "optimiser is to go on"
            )
        return None
    found = read_pretrained(request.init_from, request.init_optimizer)
    name = found.encoder_config["name"]
    if request.encoder_named and request.encoder != name:
        raise ConfigError(
            f"model.encoder: found {request.encoder}, but the encoder of model.init_from, "
            f"{found.source}, is {name}; set model.encoder.name: {name}, or leave it out"
        )
    return found


def last_run(request: Request) -> Path | None:
    """Return the run of a config with the newest checkpoint; that in ``run_dir`` if it is given."""
    name = request.run_name
    if request.run_dir is not None:
        runs = [Path(request.run_dir)]
    else:
        # quickstart and quickstart-2, not quickstart-large
        numbered = re.compile(rf"{re.escape(name)}(-\d+)?")
        runs = [each for each in Path("runs").glob(f"{name}*") if numbered.fullmatch(each.name)]
    places = ("checkpoints/last.ckpt", "stages/*/checkpoints/last.ckpt")  # of a run in stages
    found = [(file.stat().st_mtime, run) for run in runs for at in places for file in run.glob(at)]
    return max(found, default=(0.0, None))[1]


def choose_tokenizer(
    checkpoint: Pretrained | None, warm: Pretrained | None, data: TaskData
) -> Tokenizer:
    """Return the tokenizer that the weights were trained with, or the one that data gives."""
    if checkpoint is not None and checkpoint.tokenizer is not None:
        return checkpoint.tokenizer
    if warm is None:
        return data.load_tokenizer()
    given = data.tokenizer_path
    tokenizer = data.load_tokenizer() if warm.tokenizer is None else warm.tokenizer
    if given is not None and (load_tokenizer(Path(given)).fingerprint != tokenizer.fingerprint):
        raise TokenizerError(
            f"data.tokenizer: {given} is not the tokenizer that {warm.source} "
            "was trained with; leave data.tokenizer out to use that one"
        )
    if tokenizer.vocab_size != warm.vocab_size:
        raise TokenizerError(
            f"the tokenizer has {tokenizer.vocab_size} tokens, the encoder of "
            f"{warm.source} {warm.vocab_size}; give its own as data.tokenizer"
        )
    return tokenizer


def restore_module(
    checkpoint: Pretrained,
    config: Config,
    tasks: Mapping[str, Task],
    evaluation_sets: Sequence[EvaluationRows] = (EvaluationRows(),),
    metrics: Mapping[str, Metric] | None = None,
) -> BertModule:
    """Make the module of a run's checkpoint, with its weights."""
    assert checkpoint.config is not None
    assert checkpoint.tokenizer is not None
    changed = differences(_structure(config), _structure(checkpoint.config))
    if changed:
        raise CheckpointError(
            f"{checkpoint.path}: the config describes another model (here, there):\n  "
            + "\n  ".join(changed)
        )
    model = checkpoint.config["model"]
    encoder = build_encoder(model["encoder"], checkpoint.vocab_size)
    counts = None if checkpoint.token_counts is None else checkpoint.token_counts.numpy()
    labels = checkpoint.labels, checkpoint.head_labels
    context = TaskContext(encoder, checkpoint.tokenizer, counts, *labels)
    optimizer = read_optimizer(model["optimizer"])
    module = BertModule(encoder, tasks, context, optimizer, evaluation_sets, metrics)
    load_matching(module, checkpoint.state, checkpoint.source)
    return module


def _read_or_offer(file: Path) -> Pretrained:
    """Read a checkpoint; the error of a damaged one names the newest whole one beside it."""
    try:
        return read_run_checkpoint(file)
    except CheckpointError as error:
        others = [other for other in file.parent.glob("*.ckpt") if other != file]
        newest_first = sorted(others, key=lambda each: each.stat().st_mtime, reverse=True)
        # lazily: each look reads a whole file
        whole = next(filter(_is_whole, newest_first), None)
        if whole is None:
            raise
        raise CheckpointError(
            f"{error}; a whole one: --ckpt_path {shlex.quote(str(whole))}"
        ) from None


def _is_whole(file: Path) -> bool:
    try:
        read_run_checkpoint(file)
    except CheckpointError:
        return False
    return True


def _structure(config: Config) -> Config:
    """Return what decides the tensors of a model."""
    model = config["model"]
    head = model.get("head") or {}
    return {
        "encoder": model["encoder"],
        "objectives": dict.fromkeys(model.get("objectives") or {}, "on"),  # their rates may differ
        "head": head.get("name"),
        "heads": {name: each["name"] for name, each in (model.get("heads") or {}).items()},
    }
