"""What a run will cost on this machine: time, memory and disk, before its text is prepared.

A few steps are timed with a module as the config has it. Where there is no prepared text yet, it
reads documents of the same lengths, whose words are made up.
"""

import math
import random
import re
import resource
import string
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.utilities.seed import isolate_rng

from bertlab import load_tokenizer
from bertlab.api import BertlabError, ConfigError, TaskContext
from bertlab.extend import (
    BertModule,
    Config,
    Corpus,
    PretrainingData,
    build_encoder,
    build_tasks,
    read_optimizer,
    read_raw_documents,
    read_request,
    resolve_request,
    whole_ends,
    write_text,
)
from bertlab_pages.step_cost import StepCost, Steps

HOUR = 3600.0
_PRESETS = ("large", "base", "medium", "small", "mini", "tiny")
_SAMPLE = 300_000  # characters of the user's own text whose lengths are taken
_WORDS_A_TOKEN = 0.75  # of natural text
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


@dataclass(frozen=True)
class RunCost:
    """What a run takes of this machine.

    Attributes:
        steps: optimizer steps; None where only the prepared text will tell.
        step: what one takes.
        seconds: of training with its evaluations; None where the steps are not known.
        disk: bytes of checkpoints.
        memory: bytes, of the whole process on a CPU, of the device on a GPU.
    """

    steps: int | None
    step: StepCost
    seconds: float | None
    disk: float
    memory: float

    def line(self) -> str:
        """Return a line for people."""
        size = f"{in_bytes(self.memory)} of memory, {in_bytes(self.disk)} of disk"
        second = self.step.seconds
        each = f"{second:.2g} s" if second >= 1 else f"{1000 * second:.0f} ms"
        if self.steps is None or self.seconds is None:
            return f"on this machine: {each} a step, {size}"
        return f"on this machine: about {in_time(self.seconds)} ({each} a step), {size}"


def estimate(config: str | Path | Config, overrides: Mapping[str, Any] | None = None) -> RunCost:
    """Return what a pre-training takes of this machine: a few steps of its shape are timed.

    Its text need not be prepared: documents of the same lengths stand for it, or typical ones.

    Args:
        config: a config file, its name, or a config as a mapping.
        overrides: values by config key: ``{"model.encoder.preset": "mini"}``.

    Returns:
        Its steps; seconds of one and of all, with evaluations; bytes of memory and of disk.

    Raises:
        ConfigError: it has a head, compiled layers, or several devices.
    """
    base = dict(config) if isinstance(config, Mapping) else None
    named = ["--config", str(config)] if base is None else []
    request = read_request(named, base=base, base_name="run", settings=overrides)
    found = None if request.fine_tunes else measure_pretraining(resolve_request(request))
    if found is None:
        raise ConfigError("estimate: expected a pre-training on one device, without compile")
    return found


def measure_pretraining(
    config: Config, clock: Callable[[], float] = time.perf_counter
) -> RunCost | None:
    """Return what a pre-training costs, whose text need not be prepared, nor even be there.

    Args:
        config: of ``fit``, as plain data.
        clock: seconds of one.

    Returns:
        None for what is not timed: several devices, or compiled layers.
    """
    device = device_of(config)
    if device is None:
        return None
    with tempfile.TemporaryDirectory() as folder, isolate_rng():
        data = _made_up_data(config, Path(folder))
        tasks = build_tasks(config["model"])
        data.connect(data.load_tokenizer(), tasks)
        data.prepare("fit")
        return _cost(config, data, tasks, device, clock)


def _cost(
    config: Config,
    data: PretrainingData,
    tasks: Mapping[str, Any],
    device: torch.device,
    clock: Callable[[], float],
) -> RunCost:
    trainer, model = config["trainer"], config["model"]
    tokenizer = data.tokenizer
    assert tokenizer is not None  # it is connected
    encoder = build_encoder(model["encoder"], tokenizer.vocab_size)
    known = (data.token_counts, data.labels, data.head_labels)
    optimizer = read_optimizer(_optimizer_section(model["optimizer"]))
    module = BertModule(encoder, tasks, TaskContext(encoder, tokenizer, *known), optimizer)
    module.to(device)
    data.trainer = cast("Trainer", _AloneTrainer(max_steps=trainer.get("max_steps") or 1000))
    data.train_dataloader()
    low, high = whole_ends(data.sequences_per_step())
    parts = trainer.get("accumulate_grad_batches") or 1
    precision, loads = str(trainer.get("precision") or "32-true"), not data.num_workers
    sequences, recompute = round((low + high) / 2), config.get("recompute")
    step = Steps(
        module, data.training_steps.first, sequences, 1 if parts == "auto" else parts,
        precision, loads, clock, None if recompute == "auto" else recompute,
    ).measure()  # fmt: skip
    # what Python and its libraries take beside a step
    other = process_memory() if device.type == "cpu" else 0
    held_out = config["data"].get("validation_sequences", 0)
    steps = steps_of(config, sequences * step.tokens)
    evaluations = _evaluations(trainer, steps)
    return whole_cost(config, step, steps, evaluations, held_out, other + step.memory)


def whole_cost(
    config: Config,
    step: StepCost,
    steps: int | None,
    evaluations: int,
    held_out: float,
    memory: float,
) -> RunCost:
    """Return what a run takes.

    Args:
        config: of it.
        step: what one of its steps takes.
        steps: of the run; None where they are not known.
        evaluations: of the run, its end included.
        held_out: sequences of an evaluation.
        memory: bytes.
    """
    kept = config.get("checkpoint", {}).get("save_top_k", 1)
    files = 1 + (evaluations if kept == -1 else min(kept, evaluations))
    seconds = None
    if steps is not None:
        seconds = steps * step.seconds + evaluations * held_out * step.evaluation
    return RunCost(steps, step, seconds, files * step.checkpoint, memory)


def process_memory() -> float:
    """Return the most bytes of memory that this process has had so far."""
    # ru_maxrss begins with that of the process which started this one, a notebook's for instance
    status = Path("/proc/self/status")
    own = re.search(r"VmHWM:\s*(\d+) kB", status.read_text()) if status.is_file() else None
    if own is not None:
        return 1024.0 * int(own[1])
    unit = 1.0 if sys.platform == "darwin" else 1024.0
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@dataclass
class _AloneTrainer:
    """What data asks of a Trainer, where there is none yet."""

    max_steps: int
    max_epochs: int = -1
    global_step: int = 0
    global_rank: int = 0
    world_size: int = 1
    accumulate_grad_batches: int = 1
    limit_train_batches: int | float = 1.0
    strategy: object = field(
        default_factory=lambda: SimpleNamespace(root_device=torch.device("cpu"))
    )


def device_of(config: Config) -> torch.device | None:
    """Return the one device that a run uses; None if these are several, or layers are compiled."""
    trainer = config["trainer"]
    asked = str(trainer.get("accelerator") or "auto")
    on_gpu = torch.cuda.is_available() and asked in ("auto", "cuda", "gpu")
    if asked not in ("auto", "cpu", "cuda", "gpu") or (asked in ("cuda", "gpu") and not on_gpu):
        return None
    devices, here = trainer.get("devices", "auto"), torch.cuda.device_count() if on_gpu else 1
    count = here if devices in ("auto", -1, "-1") else devices
    alone = count in (1, "1", [0]) and trainer.get("num_nodes", 1) == 1
    if not alone or config.get("compile"):
        return None
    return torch.device("cuda" if on_gpu else "cpu")


def steps_of(config: Config, tokens: float) -> int | None:
    """Return the optimizer steps of a run; None if its text has to be prepared to know them.

    Args:
        config: of it.
        tokens: of a step.
    """
    trainer = config["trainer"]
    found = [math.inf]
    if trainer.get("max_steps", -1) not in (None, -1):
        found.append(trainer["max_steps"])
    if config.get("max_tokens"):
        found.append(config["max_tokens"] / tokens)
    if config.get("max_words"):
        found.append(config["max_words"] / (tokens * _WORDS_A_TOKEN))
    return None if min(found) == math.inf else max(1, round(min(found)))


def _evaluations(trainer: Mapping[str, Any], steps: int | None) -> int:
    """Return how often a run evaluates, its end included."""
    interval = trainer.get("val_check_interval")
    if steps is None or not isinstance(interval, int) or isinstance(interval, bool):
        return 1
    parts = trainer.get("accumulate_grad_batches") or 1
    return max(1, math.ceil(steps / max(1, interval // (1 if parts == "auto" else parts))))


def _optimizer_section(section: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section as a config file has it: a schedule without arguments is its name."""
    found = dict(section)
    schedule = found.get("schedule")
    if isinstance(schedule, Mapping) and list(schedule) == ["name"]:
        found["schedule"] = schedule["name"]
    return found


# --- what ends within an hour ---


def within_an_hour(config: Config, cost: RunCost) -> str | None:
    """Return what to train in an hour, of a run that takes longer; None of a shorter one.

    Args:
        config: of the run; smaller encoders are timed for a pre-training.
        cost: of it.
    """
    if cost.seconds is None or cost.seconds <= HOUR or cost.steps is None:
        return None
    here = int(HOUR * cost.steps / cost.seconds)
    words = f"within an hour: {here:,} of the {cost.steps:,} steps (--trainer.max_steps {here})"
    model = config["model"]
    given = None if model.get("head") or model.get("heads") else model["encoder"].get("preset")
    smaller = _PRESETS[_PRESETS.index(given) + 1 :] if given in _PRESETS else ()
    for preset in smaller:
        other = measure_pretraining(with_preset(config, preset))
        if other is not None and other.seconds is not None and other.seconds <= HOUR:
            return f"{words}, or all with --model.encoder.preset {preset}"
    return words


def with_preset(config: Config, preset: str) -> Config:
    """Return a config with another size of the encoder."""
    sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
    encoder = {**config["model"]["encoder"], "preset": preset, **dict.fromkeys(sizes)}
    return {**config, "model": {**config["model"], "encoder": encoder}}


# --- text that is made up ---


def _made_up_data(config: Config, folder: Path) -> PretrainingData:
    """Return the data of a pre-training with documents as long as its own, of made-up words."""
    given = dict(config["data"])
    given.pop("tokenizer_kind", None)
    size = _vocabulary(given)
    words = [f"w{number:x}" for number in range(size - len(_SPECIAL) - len(string.punctuation))]
    write_text(folder / "vocab.txt", "\n".join([*_SPECIAL, *string.punctuation, *words]) + "\n")
    draw = random.Random(1)  # noqa: S311  no secret
    texts, needed = [], _needed_words(given)
    documents = list(_own_documents(given)) or [*_typical_documents(draw)]
    while needed > 0:
        text = _made_up(draw.choice(documents), words, draw)
        texts.append(text)
        needed -= len(text.split())
        if len(texts) > 50_000:
            break
    while len(texts) < 40:  # some are held out
        texts.append(_made_up(draw.choice(documents), words, draw))
    write_text(folder / "text.txt", "\n\n".join(texts) + "\n")
    made = {"corpus": [str(folder / "text.txt")], "corpus_format": "sentences"}
    made |= {"tokenizer": str(folder / "vocab.txt"), "cache_dir": str(folder / "cache")}
    fixed = {"prepare_workers": 1, "text_column": "text"}
    return PretrainingData(**{**given, **made, **fixed}, seed=1)


def _made_up(text: str, words: list[str], draw: random.Random) -> str:
    """Return a text with other words, of one token each, and with ASCII's punctuation alone."""
    text = re.sub(r"[^\W_]+", lambda _: draw.choice(words), text)
    return "".join(each if each.isascii() else "," for each in text)


def _vocabulary(data: Mapping[str, Any]) -> int:
    if data.get("tokenizer"):
        return load_tokenizer(Path(data["tokenizer"])).vocab_size
    return max(200, int(data.get("vocab_size") or 30_000))


def _needed_words(data: Mapping[str, Any]) -> int:
    """Return the words of a first step, twice, as lengths and held-out documents take some."""
    lengths = data.get("max_seq_length") or 128
    _, length = whole_ends(lengths) if isinstance(lengths, int) else (0, 512)
    if data.get("batch_tokens"):
        return (
            2 * int(whole_ends(data["batch_tokens"])[1])
            if isinstance(data["batch_tokens"], int)
            else 2**18
        )
    size = data.get("batch_size")
    return min(2 * (size if isinstance(size, int) else 256) * length, 2**19)


def _typical_documents(draw: random.Random) -> Iterator[str]:
    """Yield documents of some twenty sentences of some fifteen words, one a line."""
    for _ in range(50):
        sentences = (" ".join(["a"] * draw.randint(6, 25)) for _ in range(draw.randint(5, 40)))
        yield "\n".join(f"{each}." for each in sentences)


def _own_documents(data: Mapping[str, Any]) -> Iterator[str]:
    """Yield the first documents of the user's files; of anything else none."""
    sources = data.get("corpus") or []
    sources = [sources] if isinstance(sources, str) else sources
    if not sources or isinstance(sources, dict) or not all(Path(each).exists() for each in sources):
        return
    names = {"corpus_format": "format", "text_column": "text_column", "errors": "errors"}
    settings = {new: data[old] for old, new in names.items() if data.get(old)}
    read = 0
    try:
        for document in read_raw_documents(Corpus(sources=sources, **settings)):
            # one sentence a line
            text = (
                document.text
                if document.presplit
                else re.sub(r"(?<=[.!?])\s+", "\n", document.text)
            )
            read += len(text)
            if text.strip():
                yield text
            if read > _SAMPLE:
                return
    except BertlabError:
        return  # the run itself says what is wrong


# --- words ---


def in_time(seconds: float) -> str:
    """Return a time as people say it: 100 s, 12 min, 3.5 h, 12 days."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.2g} h" if seconds < 48 * 3600 else f"{seconds / 86400:,.2g} days"


def in_bytes(size: float) -> str:
    """Return a size as people say it."""
    return f"{size / 1e9:.2g} GB" if size >= 0.995e9 else f"{size / 1e6:.0f} MB"
