"""What a command is asked for: files, arguments and stored configs, merged into one mapping.

``source`` says where each value comes from. The plugins are named as well, as they decide which
keys there are.

``seed_everything`` decides all draws of a run. A seed in the section ``seed`` takes a part of them
away from it, so that two runs can differ in their initial weights alone (Dodge et al. 2020,
Fine-tuning pretrained language models: weight initializations, data orders, and early stopping).
"""

import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from bertlab.config.yaml_files import Config, plain, put_at, value_at, yaml_inline
from bertlab.errors import CommandError, ConfigError, nearest

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
# of what is logged beside the figures of heads: val/loss, val/heads/mean, train/objectives
_TAKEN = ("loss", "heads", "objectives", "auto")
# mappings of keys; what stands at any other key is a value, and replaced as a whole
SECTION = re.compile(
    r"model|data|trainer|checkpoint|seed|data\.(tokenizer_kind|mixing|objectives)"
    r"|model\.(encoder|head|adapter|optimizer(\.schedule)?)"
    r"|(model\.(objectives|metrics|heads)|data\.(heads|transforms))(\.[^.]+)?"
)
OBJECTIVES_SHARE = 0.5  # of all steps are of objectives beside heads, if data.mixing does not say


def take_dotted(content: Config, above: str = "") -> list[tuple[str, object]]:
    """Take keys such as ``trainer.max_steps: 3`` out of sections; return them with their values."""
    found: list[tuple[str, object]] = []
    for name in [*content]:
        key = f"{above}{name}"
        if isinstance(name, str) and "." in name and above != "model.heads.":
            found.append((key, content.pop(name)))
        elif SECTION.fullmatch(key) and isinstance(content[name], dict):
            found += take_dotted(content[name], f"{key}.")
    return found


def check_head_name(name: object, key: str) -> None:
    """Raise ConfigError if one of several heads cannot be called so; names ``key``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or name in _TAKEN:
        told = f"{key}: found the name {name!r}, expected letters"
        raise ConfigError(f"{told}, digits and _, and none of {', '.join(_TAKEN)}")


def check_one_kind(head: str | None, heads: Iterable[str], objectives: Iterable[str]) -> None:
    """Raise ConfigError if a run has a single head, and heads by name or objectives as well."""
    for key, names in (("heads", [*heads]), ("objectives", [*objectives])):
        if head is not None and names:
            beside = "" if key == "heads" else "; beside objectives a head is model.heads.NAME"
            told = f"model.head and model.{key}: found {head} and {', '.join(names)}"
            raise ConfigError(f"{told}, expected one of the two keys{beside}")


def choose_head(config: Config, name: str | None, source: str, key: str) -> str | None:
    """Return the one of several heads that ``name`` means; None where a checkpoint has but one."""
    heads = config["model"].get("heads") or {}
    if not heads:
        own = (config["model"].get("head") or {}).get("name")
        if name not in (None, own):
            there = "it has none" if own is None else f"it has one, {own}"
            several = f"{source} does not have several ({there})"
            raise CommandError(f"{key}: found {name!r}, but {several}; leave it out")
        return None
    if name is None and len(heads) == 1:
        return str(next(iter(heads)))
    if name is None or name not in heads:
        found = "none" if name is None else repr(name)
        told = f"{key}: found {found}, expected one of the heads of {source}"
        raise CommandError(f"{told}: {', '.join(heads)}{nearest(name or '', heads)}")
    return name


def one_head_config(config: Config, name: str) -> Config:
    """Return the config of a run with several heads as if it had this one alone."""
    model, data = dict(config["model"]), dict(config["data"])
    head = model.pop("heads")[name]
    own = data.pop("heads")[name]
    model.pop("objectives", None)
    for key in ("mixing", "objectives"):
        data.pop(key, None)
    return {**config, "model": {**model, "head": head}, "data": {**data, **own}}


# step-{step}, not ../x, and no {step:999999999} or {step.__class__}
_FILE_NAME = re.compile(r"(?!\.)(?:[\w.=+-]|\{[A-Za-z_][\w/]*(?::\.?\d{1,2}[df]?)?\})+")


def check_file_name(found: object) -> None:
    """Refuse ``checkpoint.filename`` if it is no form that a name can be made of."""
    if found is not None and not is_file_name(found):
        told = f"checkpoint.filename: found {str(found)[:80]!r}"
        raise ConfigError(f"{told}, expected a file's name such as step-{{step}}")


def is_file_name(found: object) -> bool:
    """Whether checkpoints can be named so: ``step-{step}``."""
    return isinstance(found, str) and len(found) < 150 and bool(_FILE_NAME.fullmatch(found))


DEFAULT_OBJECTIVES = ("mlm", "nsp")
TEXTS = ("data.text", "data.text_pair")  # taken as they are, and never read as YAML
ARGUMENT = "--"  # how the source of a value begins that an argument gives


@dataclass
class Request:
    """Config files and arguments of one command, merged.

    Attributes:
        argv: the arguments as they were given, files included.
        files: each config file's path and content, in the order given.
        checkpoint: the file whose stored config is the first of ``files``, if one is.
        values: all of it merged, below the sections of the plugins that are named.
        source: where each value comes from, by key: a file, or the argument.
        encoder: entry-point name of the encoder.
        encoder_named: whether a file or argument named it; else it is the default one.
        objectives: entry-point names of the objectives, in order.
        objectives_named: whether a file or argument named them; else they are the default ones.
        metrics: entry-point names of further metrics.
        transforms: entry-point names of what changes labelled rows, in order.
        adapter: entry-point name of what trains a part of the encoder; None if all of it.
        optimizer: entry-point name of the optimiser, or a class of ``torch.optim``.
        schedule: entry-point name of the learning rate's schedule.
        tokenizer: entry-point name of the kind of tokenizer to train, if given anywhere.
        corpus_source: ``data.corpus.source``, if the corpus is a source with settings.
        head: entry-point name of the head, for fine-tuning; there are no objectives then.
        heads: those of several heads at once, by name; objectives may stand beside them.
        one_head: ``--head``: the one of several that is asked for.
        ckpt_path: ``--ckpt_path``, if given.
        helps: ``all`` with ``--help all``, ``short`` with ``--help`` alone; else empty.
        prints: what stands behind ``--print_config``; None without it.
        sizes: ``name`` and arguments of the encoder of given weights: defaults of its keys.
        not_brought: values of the stored config that only the user may give, by key.
        without_hooks: packages whose hooks are not called.
        left_out: keys of files that belong to another plugin than is named now, in words.
    """

    argv: tuple[str, ...] = ()
    files: list[tuple[Path, Config]] = field(default_factory=list)
    checkpoint: Path | None = None
    values: Config = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    encoder: str = "bert"
    encoder_named: bool = False
    objectives: list[str] = field(default_factory=lambda: list(DEFAULT_OBJECTIVES))
    objectives_named: bool = False
    metrics: list[str] = field(default_factory=list)
    transforms: list[str] = field(default_factory=list)
    adapter: str | None = None
    optimizer: str = "adamw"
    schedule: str = "linear"
    tokenizer: str | None = None
    corpus_source: str | None = None
    head: str | None = None
    heads: dict[str, str] = field(default_factory=dict)
    one_head: str | None = None
    ckpt_path: str | None = None
    helps: str = ""
    prints: str | None = None
    sizes: Config | None = None
    not_brought: Config = field(default_factory=dict)
    without_hooks: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def run_name(self) -> str:
        """What a run is called by default: its config's name; ``finetune-…`` with a head."""
        name = self.files[-1][0].stem if self.files else "run"
        return f"finetune-{name}" if self.fine_tunes else name

    @property
    def fine_tunes(self) -> bool:
        """Whether there is a head, or several."""
        return self.head is not None or bool(self.heads)

    @property
    def head_sections(self) -> dict[str, str]:
        """The plugin of each head by its section: ``model.head``, ``model.heads.NAME``."""
        single = {} if self.head is None else {"model.head": self.head}
        return single | {f"model.heads.{name}": plugin for name, plugin in self.heads.items()}

    @property
    def init_from(self) -> str | None:
        """``model.init_from``, if given anywhere."""
        found = self._text("model.init_from")
        if found and found.lower() in ("none", "nil", "no", "false") and not Path(found).exists():
            key = "model.init_from"
            raise ConfigError(f"{self.where(key)}{key}: found {found!r}; did you mean null?")
        return found

    @property
    def init_optimizer(self) -> bool:
        """``model.init_optimizer``."""
        return str(value_at(self.values, "model.init_optimizer")).lower() == "true"

    @property
    def run_dir(self) -> str | None:
        """``run_dir``, if given anywhere."""
        return (found := self._text("run_dir")) and str(Path(found).expanduser())

    def take_sizes(self, sizes: Config) -> None:
        """Take encoder and sizes of given weights, which a config need not repeat."""
        self.sizes = sizes
        self.encoder = self.encoder if self.encoder_named else sizes["name"]

    def where(self, key: str) -> str:
        """Return ``"FILE: "`` of the file that a value comes from; ``""`` of an argument."""
        parts = key.split(".")
        above = (".".join(parts[:number]) for number in range(len(parts), 0, -1))
        below = (each for each in self.source if each.startswith(f"{key}."))
        return place(next((self.source[at] for at in (*below, *above) if at in self.source), ""))

    def is_argument(self, key: str) -> bool:
        """Whether an argument gives a value, or something below a key."""
        given = (each for each in self.source if f"{each}.".startswith(f"{key}."))
        return any(self.source[each].startswith(ARGUMENT) for each in given)

    def part_of(self, source: str) -> Config:
        """Return the values that come from a source."""
        found: Config = {}
        for key, each in self.source.items():
            if each == source:
                put_at(found, key, value_at(self.values, key))
        return found

    def check_weights(self, command: str) -> None:
        """Refuse a command that needs weights and is given none, and a head of no run."""
        if command != "fit" and not (self.ckpt_path or self.init_from or self.helps):
            raise CommandError(
                f"{command}: no model; expected one first, as in bertlab {command} "
                "runs/quickstart; beside a config, --ckpt_path RUN or --model.init_from MODEL"
            )
        if self.one_head is not None and (command == "fit" or self.ckpt_path is None):
            told = f"--head {self.one_head}: expected --ckpt_path with a run of several heads"
            raise CommandError(f"{told}, to validate, test or predict")
        if self.one_head is not None and self.files:
            told = f"--head {self.one_head}: found beside --config, expected one of them"
            raise CommandError(f"{told}: the config of the checkpoint is used")

    def check_scored(self, command: str) -> None:
        """Refuse ``test`` of what has no head."""
        if command == "test" and not self.fine_tunes:
            raise CommandError(
                "test: pre-training has no test rows, expected a model with a head; "
                "bertlab validate scores a pre-trained one on held-out text"
            )

    def check_text(self) -> None:
        """Refuse text of objectives beside heads that is given otherwise than it is read."""
        key, wrong = "data.objectives", ""
        data = self.values.get("data") or {}
        if self.objectives and self.heads:
            if "corpus" in data:
                key = "data.corpus"
                wrong = "beside heads the text of objectives is data.objectives.corpus"
        # with --ckpt_path the run's config may have what an argument needs
        elif data.get("objectives") and not self.is_argument(key):
            if not self.objectives_named:
                wrong = "found text of objectives, but no objectives beside heads; expected "
                wrong += "model.objectives, as in [mlm]"
            elif not self.heads:
                wrong = "without model.heads the text is data.corpus"
        if wrong:
            raise ConfigError(f"{self.where(key)}{key}: {wrong}")
        if self.objectives_named and not self.objectives:  # they are taken out
            data.pop("objectives", None)
            if isinstance(mixing := data.get("mixing"), dict):
                mixing.pop("objectives", None)

    def _text(self, key: str) -> str | None:
        found = value_at(self.values, key)
        if not isinstance(found, str | None):
            place = f"{self.where(key)}{key}"
            raise ConfigError(f"{place}: found {str(found)[:80]}, expected a text or null")
        return None if found == "null" else found


def place(source: str) -> str:
    """Return ``"FILE: "`` for messages; ``""`` where the source is an argument, or is not known."""
    return "" if not source or source.startswith(ARGUMENT) else f"{source}: "


def to_arguments(overrides: Mapping[str, Any]) -> list[str]:
    """Return command-line arguments."""
    return [f"--{key}={yaml_inline(plain(value, f'{key}: '))}" for key, value in overrides.items()]


LARGEST_SEED = 2**32 - 1  # NumPy takes no larger one
_DRAWN = "BERTLAB_SEED"  # environment variable: the seed that was drawn, for further processes


@dataclass(frozen=True)
class GivenSeeds:
    """The config's section ``seed``: seeds of parts of a run, ``seed_everything`` if not given.

    Args:
        weights: of the initial weights of encoder, objectives and head.
        order: of what a batch holds: order, chunks, lengths and pairs of text; order of rows.
        masks: of what objectives draw for a batch: positions, replacements. Pre-training only.
        dropout: of what is drawn while the model computes: dropout.
    """

    weights: int | None = None
    order: int | None = None
    masks: int | None = None
    dropout: int | None = None


SEED_PARTS = tuple(field.name for field in fields(GivenSeeds))
SEED_SECTION = "seed"


@dataclass(frozen=True)
class Seeds:
    """The seed of each part of a run; see :class:`GivenSeeds`."""

    weights: int
    order: int
    masks: int
    dropout: int

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> "Seeds":
        """Return those of a resolved config; one from before there was ``seed`` has none apart."""
        return cls(
            **dict.fromkeys(SEED_PARTS, config["seed_everything"])
            | (config.get(SEED_SECTION) or {})
        )

    def apart(self, seed: int) -> dict[str, int]:
        """Return the parts whose seed is another than ``seed``."""
        return {part: own for part, own in asdict(self).items() if own != seed}


def check_seeds(given: Mapping[str, int | None], has_objectives: bool) -> dict[str, int]:
    """Return those of a config's section ``seed`` that are given."""
    found = {part: seed for part, seed in given.items() if seed is not None}
    for part, seed in found.items():
        check_seed(seed, f"{SEED_SECTION}.{part}")
    if not has_objectives and "masks" in found:
        raise ConfigError(
            f"{SEED_SECTION}.masks: found {found['masks']}, but a fine-tuning draws no masks; "
            f"leave it out, or expected {SEED_SECTION}.weights, {SEED_SECTION}.order or "
            f"{SEED_SECTION}.dropout"
        )
    return found


def check_seed(seed: int, key: str) -> int:
    """Return a seed.

    Raises:
        ConfigError: if it is out of range; names ``key``.
    """
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigError(f"{key}: found {seed}, expected 0 to {LARGEST_SEED}")
    return int(seed)


def choose_seed(given: int | bool, resumed: int | None = None) -> int:
    """Return the seed of a run.

    Args:
        given: ``seed_everything``; True for any.
        resumed: that of the run that goes on, if there is one.

    Raises:
        ConfigError: if it is out of range, or several processes would draw different ones.
    """
    if given is False:
        raise ConfigError("seed_everything: found false, expected a number, or true for any")
    if given is True:
        given = _fresh_seed() if resumed is None else resumed
    return check_seed(given, "seed_everything")


def _fresh_seed() -> int:
    """Draw a seed; processes that Lightning starts inherit the first one's."""
    # not PL_GLOBAL_SEED, where Lightning leaves a seed for them: that is the seed of dropout
    inherited = os.environ.get(_DRAWN) if os.environ.get("LOCAL_RANK") else None
    if inherited:
        return int(inherited)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 or int(os.environ.get("SLURM_NTASKS", "1")) > 1:
        raise ConfigError("seed_everything: give one where torchrun or SLURM starts the processes")
    drawn = secrets.randbelow(2**31)  # not random's, which the caller may have seeded
    os.environ[_DRAWN] = str(drawn)
    return drawn
