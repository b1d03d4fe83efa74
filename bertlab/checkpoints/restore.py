"""Where weights and tokenizer of a command come from: a checkpoint, a warm start, or new."""

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torchmetrics import Metric

from bertlab.api.examples import Labels
from bertlab.api.task import Head, Task, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.huggingface import CONFIG_FILES, find_foreign, read_foreign
from bertlab.checkpoints.pretrained import Pretrained, head_settings, known_tokenizer
from bertlab.checkpoints.run_checkpoint import (
    LAST_FILE,
    find_checkpoint,
    last_checkpoint,
    read_run_checkpoint,
)
from bertlab.checkpoints.run_directory import MANIFEST_FILE, give_up, is_first_process
from bertlab.checkpoints.tensor_files import LoadReport, load_matching
from bertlab.checkpoints.training_state import refusing_config
from bertlab.config.request import Request
from bertlab.config.yaml_files import Config, differences, split_arguments, value_at, yaml_inline
from bertlab.data.module import EvaluationRows, TaskData
from bertlab.data.sources import explain_no_checkpoint, is_hub_name, no_such_run
from bertlab.errors import CheckpointError, ConfigError, TokenizerError, say
from bertlab.model.build import build_encoder
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import read_optimizer
from bertlab.tokenizer.files import load_tokenizer

_LONGEST = 512  # tokens that are read unless the arguments say otherwise: as the models of BERT
_MAX_NAMED = 8
_PADDED = 128  # the most rows, to a multiple of which embeddings are padded; 8 are the fewest
LAST = "last"  # a --ckpt_path: the config's own run


def read_pretrained(source: str, with_optimizer: bool = False) -> Pretrained:
    """Read a run directory, a bertlab checkpoint, a Hugging Face folder or a hub name."""
    file = find_checkpoint(source, best=not with_optimizer)
    # a checkpoint of ours may have been renamed, but not to what a reader knows
    if file is not None and (file.suffix == ".ckpt" or find_foreign(file) is None):
        return read_run_checkpoint(file, with_optimizer)
    if with_optimizer:
        told = f"model.init_optimizer: model.init_from, {source}, is not a run of bertlab"
        raise CheckpointError(f"{told}, so it has no optimiser's state; take the key out")
    if any(Path(source).expanduser().glob("*.ckpt")):
        raise CheckpointError(f"{source}: no run or checkpoint{explain_no_checkpoint(source)}")
    return read_foreign(source)


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
        there = Path(str(value_at(request.values, "checkpoint.dirpath")), LAST_FILE)
        if there.is_file():
            goes_on = f"--ckpt_path {there} goes on with it, in a new run directory"
            raise CheckpointError(f"--ckpt_path {LAST}: found checkpoint.dirpath; {goes_on}")
        if run is None and request.run_dir is not None:  # ended before its first checkpoint
            give_up(Path(request.run_dir))
        path = None if run is None else str(run)
    if path is None:
        return None
    file = find_checkpoint(path, best=command != "fit")
    if file is None:
        raise no_such_run(path)
    if command == "fit" and Path(path).is_dir() and file.name != LAST_FILE and is_first_process():
        say(f"continues from {file}: {LAST_FILE} is of an earlier step, or not there")
    return _read_or_offer(file)


def is_model(path: str) -> bool:
    """Return whether a path is a folder of Hugging Face's or BERT's, and not a run of bertlab's."""
    folder = Path(path).expanduser()
    if not os.path.lexists(folder):
        return "/" in path and is_hub_name(path)
    named = any((folder / name).is_file() for name in CONFIG_FILES)
    return named and not (folder / MANIFEST_FILE).exists()


def use_folder(request: Request) -> list[str]:
    """Return the arguments of a request, with ``--ckpt_path FOLDER`` as weights to start from.

    The head or the objectives are those of the folder, where the request names none.
    """
    assert request.ckpt_path is not None
    found = read_foreign(request.ckpt_path)
    given = split_arguments(request.argv)
    rest = [token for key, _, tokens in given if key != "--ckpt_path" for token in tokens]
    rest += ["--model.init_from", request.ckpt_path]
    if not request.fine_tunes and not request.objectives_named:
        if found.head is not None:
            # the head that reads two texts has the same layers
            is_pair = request.is_argument("data.text_pair") and "Sequence" in found.head.layout.kind
            settings = head_settings(found.head, "sentence_pair" if is_pair else None)
            rest += ["--model.head", yaml_inline(settings)]
        elif found.task_states:
            rest += ["--model.objectives", yaml_inline(list(found.task_states))]
        else:
            left = f" and what is of no head here ({', '.join(found.unused[:3])})"
            raise CheckpointError(
                f"{found.source}: has an encoder{left if found.unused else ' only'}, nothing to "
                "predict with; fine-tune it with "
                f"--model.init_from {request.ckpt_path}, or see bertlab embed"
            )
    if not request.is_argument("data.max_seq_length") and not request.files:
        most = found.encoder_config.get("max_position_embeddings", _LONGEST)
        rest += ["--data.max_seq_length", str(found.longest_read(most, _LONGEST))]
    return rest


def read_warm_start(request: Request) -> Pretrained | None:
    """Read what ``model.init_from`` names; the encoder is that one's, if the request names none."""
    if request.init_from is None:
        if request.init_optimizer:
            told = "model.init_optimizer: expected model.init_from beside it"
            raise ConfigError(f"{told}, with the run whose optimiser is to go on")
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
    # a run in stages has checkpoints of each
    places = ((run, at) for run in runs for at in (run, *run.glob("stages/*")))
    files = ((last_checkpoint(at), run) for run, at in places)
    found = [(file.stat().st_mtime, run) for file, run in files if file is not None]
    return max(found, default=(0.0, None))[1]


def warm_tokenizer(warm: Pretrained, data: TaskData) -> Tokenizer:
    """Return the tokenizer that weights were trained with, or the one that data gives for them."""
    given = data.tokenizer_path
    tokenizer = data.load_tokenizer() if warm.tokenizer is None else known_tokenizer(warm)
    if given is not None and (load_tokenizer(Path(given)).fingerprint != tokenizer.fingerprint):
        told = f"data.tokenizer: {given} is not the tokenizer that {warm.source} was trained with"
        raise TokenizerError(f"{told}; leave data.tokenizer out to use that one")
    ids, rows = tokenizer.vocab_size, warm.vocab_size
    is_own = warm.tokenizer is not None
    is_padded = (is_own or given is not None) and 0 <= rows - ids < _PADDED and not rows % 8
    if ids != rows and not is_padded:
        told = f"{warm.source}: its tokenizer has {ids} tokens, its encoder {rows} rows, which no "
        told += f"padding to a multiple of 8 to {_PADDED} explains; give the folder its own"
        if not is_own:
            told = f"{warm.source}: has no tokenizer (vocab.txt or tokenizer.json), and that of "
            told += f"this run has {ids} tokens, its encoder {rows}; give its own as data.tokenizer"
        raise TokenizerError(told)
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
    with refusing_config(checkpoint.source, "optimizer"):
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
        named = shlex.quote(str(whole))
        raise CheckpointError(f"{error}; a whole one: --ckpt_path {named}") from None


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


def warm_start(start: Pretrained, module: BertModule, trains: bool = True) -> list[str]:
    """Give a new module the weights, and the optimiser that was read; return lines for the user."""
    report = load_weights(start, module)
    if not trains:
        check_trained(report, module, start.source)
    lines = [f"initialised from {start.source}: {len(report.loaded)} tensors"]
    if report.newly_initialized:
        lines.append(f"newly initialised: {', '.join(report.newly_initialized)}")
    lines += [f"note: {note}" for note in report.notes]
    state, start.optimizer = start.optimizer, None  # twice the weights: the module drops it, too
    if state is not None:
        state.check(module, module.optimizer_config)
        module.continued = state
        goes_on = module.optimizer_config.schedule_steps is not None
        schedule = f"at step {state.steps:,} of the schedule" if goes_on else "its schedule anew"
        lines.append(f"its optimiser continues too, {schedule}")
    return lines


def load_weights(start: Pretrained, module: BertModule) -> LoadReport:
    """Copy the weights into a BertModule; tasks, pooler and BiLSTM that the source lacks stay new.

    A head takes the layers of the source's head if that is of the same kind (the same name in a
    run's config, the same class of ``transformers``) and has the same labels in the same order;
    else it stays new and a note says why. Its buffers, which its own data decides, stay as well.
    """
    state = {f"encoder.{name}": tensor for name, tensor in start.encoder_state.items()}
    heads = {name: task for name, task in module.named_tasks().items() if isinstance(task, Head)}
    states = start.task_states
    for task, tensors in states.items():
        if task not in heads:
            state |= _named(task, tensors)
    notes: list[str] = []
    left: list[str] = []
    for name, head in heads.items():
        source = states.get(name, {}) if start.head is None else start.head.state
        reason = _mismatch(start, source, name, head) if source else None
        if reason is not None:
            notes.append(f"the head {name} starts anew: {reason}")
        wanted = () if reason is not None else tuple(each for each, _ in head.named_parameters())
        state |= _named(name, {each: source[each] for each in wanted if each in source})
        left += [f"tasks.{name}.{each}" for each in source if each not in wanted]
    # not encoder.layers: an encoder with some layers new would be a silent mistake
    may_lack = ("tasks.", "encoder.pooler.", "encoder.bilstm.")
    report = load_matching(module, state, start.source, may_lack)
    report.unused += left
    report.notes += notes
    return report


def check_trained(report: LoadReport, module: BertModule, source: str) -> None:
    """Raise CheckpointError if a task would predict with layers that nobody has trained."""
    pools = any(task.uses_pooled for task in module.named_tasks().values())
    parts = ("tasks.", *(["encoder.pooler."] if pools else []))
    layers = [each for each, _ in module.named_parameters() if each.startswith(parts)]
    if new := [each for each in layers if each in report.newly_initialized]:
        raise untrained(source, f"weights for {', '.join(new)}", report.notes)


def untrained(source: str, lacking: str, notes: Sequence[str] = ()) -> CheckpointError:
    """Return the refusal of weights that lack what predictions are made with."""
    told = f"{source}: has no {lacking}, so predictions would be random; fine-tune it: "
    return CheckpointError(f"{told}--model.init_from {source}{''.join(f' ({n})' for n in notes)}")


def _named(task: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    # mlm, dense.weight -> tasks.mlm.dense.weight
    return {f"tasks.{task}.{name}": tensor for name, tensor in tensors.items()}


def _mismatch(start: Pretrained, source: Mapping[str, Tensor], name: str, head: Head) -> str | None:
    """Say why a head cannot take over the tensors of the source's head; None if it can."""
    if start.head is not None and start.head.layout.kind != head.huggingface:
        return f"the source has that of a {start.head.architecture}"
    if start.head is not None and start.head.problem_type != head.problem_type:
        return f"the source's is for {start.head.problem_type or 'single labels or numbers'}"
    is_causal = start.encoder_config.get("causal", False)  # ModernBERT's has no such key
    if start.head is not None and start.head.layout.has_pooler and is_causal:
        return "the source's reads the first token of a left-to-right encoder, bertlab's the last"
    theirs, ours = start.head_labels.get(name, start.class_labels), head.labels or None
    if (theirs and theirs.names) != (ours and ours.names):
        is_unnamed = start.head is not None and start.labels is None
        there = "unnamed" if theirs is not None and is_unnamed else _list_names(theirs)
        return f"labels differ: {there} in the source, {_list_names(ours)} here"
    differing = [
        name
        for name, tensor in head.named_parameters()
        if name not in source or source[name].shape != tensor.shape
    ]
    return f"the source's has other layers ({', '.join(differing)})" if differing else None


def _list_names(labels: Labels | None) -> str:
    if labels is None:
        return "none"
    shown = ", ".join(labels.names[:_MAX_NAMED])
    return shown if len(labels) <= _MAX_NAMED else f"{shown}, … ({len(labels)})"
