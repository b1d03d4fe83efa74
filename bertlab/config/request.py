"""What config files and command-line arguments ask for: plugins by name, and their arguments.

Objectives are a mapping from entry-point name to arguments. Config files may also write a list
(``objectives: [mlm, nsp]``), and a later file or argument may take one out with ``nsp: null``.
This module turns all of these into the mapping that jsonargparse parses.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import signature
from pathlib import Path

from bertlab.config.heads import NamedHeads, check_one_kind
from bertlab.config.named_tasks import (
    add_objectives,
    keep_named,
    keep_text,
    name_metrics,
    name_objectives,
)
from bertlab.config.shipped import find_config
from bertlab.config.yaml_files import (
    Config,
    as_arguments,
    needs_value,
    parse_inline,
    read_config,
    split_arguments,
    text_at,
    yaml_inline,
)
from bertlab.errors import CommandError, ConfigError
from bertlab.plugins.index import installed, load_class

DEFAULT_OBJECTIVES = ("mlm", "nsp")
# sections of one plugin, and the attribute of a request that names it; a section above comes first
_SECTIONS = {
    "model.encoder": "encoder",
    "model.head": "head",
    "model.optimizer": "optimizer",
    "model.optimizer.schedule": "schedule",
    "data.tokenizer_kind": "tokenizer",
}
# keys of model.optimizer that stay where another optimiser is chosen
OF_EVERY_OPTIMIZER = (
    *("learning_rate", "weight_decay", "warmup_steps", "schedule", "schedule_steps"),
    *("layer_decay", "frozen_layers"),
)


@dataclass
class Request:
    """Config files and arguments of one command, normalised.

    Attributes:
        argv: the arguments as they were given, files included.
        files: each config file's path and content, in the order given.
        arguments: command-line arguments that override them.
        encoder: entry-point name of the encoder.
        encoder_named: whether a file or argument named it; else it is the default one.
        objectives: entry-point names of the objectives, in order.
        objectives_named: whether a file or argument named them; else they are the default ones.
        metrics: entry-point names of further metrics.
        optimizer: entry-point name of the optimiser, or a class of ``torch.optim``.
        schedule: entry-point name of the learning rate's schedule.
        tokenizer: entry-point name of the kind of tokenizer to train, if given anywhere.
        head: entry-point name of the head, for fine-tuning; there are no objectives then.
        named_heads: several heads at once, ``model.heads``; objectives may stand beside them.
        one_head: ``--head``: the one of several that is asked for.
        init_from: ``model.init_from``, if given anywhere.
        init_optimizer: ``model.init_optimizer``.
        ckpt_path: ``--ckpt_path``, if given.
        run_dir: ``run_dir``, if given anywhere.
        checkpoint: the file whose stored config is the first of ``files``, if one is.
        stages: ``stages``, if given anywhere; not checked yet.
        left_out: keys of files that belong to another plugin than is named now, in words.
    """

    argv: tuple[str, ...] = ()
    files: list[tuple[Path, Config]] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)
    encoder: str = "bert"
    encoder_named: bool = False
    objectives: list[str] = field(default_factory=lambda: list(DEFAULT_OBJECTIVES))
    objectives_named: bool = False
    metrics: list[str] = field(default_factory=list)
    optimizer: str = "adamw"
    schedule: str = "linear"
    tokenizer: str | None = None
    head: str | None = None
    named_heads: NamedHeads = field(default_factory=NamedHeads)
    one_head: str | None = None
    init_from: str | None = None
    init_optimizer: bool = False
    ckpt_path: str | None = None
    run_dir: str | None = None
    checkpoint: Path | None = None
    stages: object = None
    left_out: list[str] = field(default_factory=list)

    @property
    def run_name(self) -> str:
        """What a run is called by default: its config's name; ``finetune-…`` with a head."""
        name = self.files[-1][0].stem if self.files else "run"
        return f"finetune-{name}" if self.fine_tunes else name

    @property
    def heads(self) -> dict[str, str]:
        """Entry-point name of each of several heads, by name; empty for a single one, and none."""
        return self.named_heads.resolved()

    @property
    def fine_tunes(self) -> bool:
        """Whether there is a head, or several."""
        return self.head is not None or bool(self.named_heads.plugins)

    @property
    def named_head(self) -> str:
        """What messages call the head, or the heads."""
        return self.head or ", ".join(self.heads)

    def check_tasks(self) -> None:
        """Refuse tasks of two kinds; heads take the default objectives out."""
        named = self.objectives if self.objectives_named else []
        check_one_kind(self.head, self.heads, named)
        if self.fine_tunes:
            self.objectives = named


def read_request(
    argv: Sequence[str],
    base: Config | None = None,
    base_name: str = "",
    checkpoint: Path | None = None,
) -> Request:
    """Read the config files that ``argv`` names and say which plugins they ask for.

    Args:
        argv: arguments after the subcommand; ``--config`` takes a file or a name.
        base: a config to start from, that of a checkpoint or a mapping of Python's.
        base_name: what messages call it.
        checkpoint: the file that stores the base, if one does: nothing of the base may name a
            class then.
    """
    request = Request(tuple(argv), checkpoint=checkpoint)
    if base is not None:
        _add_content(request, Path(base_name), deepcopy(base))  # it is changed there
    overrides = []
    for key, value, tokens in split_arguments(argv):
        if key in ("--config", "-c"):
            path = find_config(needs_value(key, value))
            _add_content(request, path, read_config(path))
        elif key == "--print_config":
            raise CommandError(f"{key}: is an option of the command bertlab fit alone")
        else:
            overrides.append((key, value, tokens))
    # after all files: an argument wins wherever it stands on the line
    for key, value, tokens in overrides:
        _add_argument(request, key, value, tokens)
    request.check_tasks()
    for path, content in request.files:
        request.named_heads.keep_own(path, content)
        keep_text(path, content, request)
        for section in _SECTIONS:
            _drop_others(request, path, content, section)
        keep_named(content, "objectives", request.objectives)
        keep_named(content, "metrics", request.metrics)
    return request


def _add_content(request: Request, path: Path, content: Config) -> None:
    for section in ("model", "data"):
        if not isinstance(content.get(section) or {}, dict):
            raise ConfigError(
                f"{path}: {section}: found {content[section]!r}, expected a mapping of keys to "
                "values"
            )
    for section in _SECTIONS:
        _name(request, section, _named_plugin(path, content, section))
    model = content.get("model") or {}
    if model.get("objectives") is not None:
        model["objectives"] = name_objectives(request, model["objectives"], f"{path}: ")
    if model.get("metrics") is not None:
        model["metrics"] = name_metrics(request, model["metrics"], f"{path}: ")
    if "heads" in model:
        model["heads"] = request.named_heads.add(model["heads"], f"{path}: ")
    request.init_from = text_at(model, "init_from", request.init_from, f"{path}: model.")
    request.init_optimizer = model.get("init_optimizer", request.init_optimizer) is True
    request.run_dir = text_at(content, "run_dir", request.run_dir, f"{path}: ")
    request.stages = content.get("stages", request.stages)
    if text_at(content, "ckpt_path", None, f"{path}: ") is not None:
        raise ConfigError(
            f"{path}: ckpt_path: found in a config, expected an argument: --ckpt_path"
        )
    request.files.append((path, content))


def _above(content: Config, section: str) -> Config:
    """Return the mapping that a section stands in: ``model`` of ``model.head``; {} if none."""
    found: object = content
    for key in section.split(".")[:-1]:
        found = found.get(key) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else {}


def _named_plugin(path: Path, content: Config, section: str) -> str | None:
    """Return the plugin name of a section such as ``model.head``; it may be just that name."""
    above, key = _above(content, section), section.rpartition(".")[2]
    if isinstance(above.get(key), str):
        above[key] = {"name": above[key]}
    if not isinstance(above.get(key), dict):
        return None
    name = above[key].get("name")
    if name is not None and not isinstance(name, str):
        raise ConfigError(f"{path}: {section}.name: found {name!r}, expected a name")
    return name


def _add_argument(request: Request, key: str, value: str | None, tokens: list[str]) -> None:
    # --model.objectives.nsp, not --model.objectives.mlm.rate
    one_objective = key.startswith("--model.objectives.") and key.count(".") == 2
    if key == "--model.objectives" or one_objective:
        add_objectives(request, key if one_objective else None, needs_value(key, value))
    elif key == "--model.metrics":
        given = parse_inline(needs_value(key, value), "model.metrics", "[NAME, …]")
        for name, arguments in name_metrics(request, given, "").items():
            request.arguments += as_arguments(f"--model.metrics.{name}", arguments)
    elif (section := key.removeprefix("--").removesuffix(".name")) in _SECTIONS:
        _add_section(request, section, needs_value(key, value))
    elif key in ("--ckpt_path", "--head"):
        setattr(request, "one_head" if key == "--head" else "ckpt_path", needs_value(key, value))
    elif (more := request.named_heads.arguments(key, value)) is not None:
        request.arguments += more
    else:
        _note(request, key, value)
        request.arguments += tokens


def _note(request: Request, key: str, value: str | None) -> None:
    """Keep the value of an argument that is needed before all are parsed."""
    if key == "--model.init_from":
        request.init_from = None if value == "null" else value  # takes a file's out
    elif key == "--model.init_optimizer":
        request.init_optimizer = (value or "").lower() == "true"
    elif key == "--run_dir":
        request.run_dir = value
    elif key == "--stages":
        example = "{NAME: {share: 0.9}, …}"
        request.stages = parse_inline(needs_value(key, value), "stages", example)


def _add_section(request: Request, section: str, value: str) -> None:
    """Name the plugin of a section; a mapping gives its arguments as well."""
    given = parse_inline(value, section, "a name, or {name: NAME, …}")
    if not isinstance(given, dict):
        _name(request, section, value)
        return
    for name, each in given.items():
        key, text = f"--{section}.{name}", yaml_inline(each)
        _add_argument(request, key, text, [f"{key}={text}"])


def _name(request: Request, section: str, name: str | None) -> None:
    """Name the plugin of a section, if there is a name."""
    if name is not None:
        setattr(request, _SECTIONS[section], name)
        request.encoder_named |= section == "model.encoder"


def _named(request: Request, section: str) -> str | None:
    """Return the plugin that a request names for a section."""
    name: str | None = getattr(request, _SECTIONS[section])
    return name


def _drop_others(request: Request, path: Path, content: Config, section: str) -> None:
    """Drop the arguments that a file gives to a plugin which the request does not name.

    Another encoder keeps those that it takes as well, another optimiser those of every optimiser.
    """
    above, key, name = (
        _above(content, section),
        section.rpartition(".")[2],
        _named(request, section),
    )
    given = above.get(key)
    if isinstance(given, dict) and given.get("name", name) != name:
        kept: Iterable[str] = ()
        if section == "model.optimizer":
            kept = OF_EVERY_OPTIMIZER
        elif section == "model.encoder" and name in installed("encoder"):
            kept = signature(load_class("encoder", name, object)).parameters
        above[key] = {"name": name, **{each: given[each] for each in given if each in kept}}
        gone = [f"{section}.{each}" for each in given if each not in above[key]]
        if gone:
            keys = ", ".join(gone)
            request.left_out.append(f"{path}: {keys}: set for {given['name']}, not for {name}")
