"""What the parts of a new plugin are called, and which names cannot be used."""

import keyword
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from importlib.util import find_spec

import yaml

from bertlab.errors import CommandError, nearest
from bertlab.plugins import hooks
from bertlab.plugins.index import GROUPS, brought_by, entry_package

ARTICLES = {
    "encoder": "An encoder",
    "objective": "An objective",
    "head": "A head",
    "source": "A data source",
    "metric": "A metric",
    "evaluation": "An evaluation",
    "optimizer": "An optimizer",
    "schedule": "A schedule",
    "tokenizer": "A kind of tokenizer",
    "command": "A command",
    "exporter": "An exporter",
    "reader": "A reader of checkpoints",
    "executor": "An executor",
    "format": "A named format",
    "hooks": "Hooks",
}
"""The kinds that have a template, and how a package's description begins."""
USES = {
    "command": "{name} README.md",
    "exporter": "export RUN exported --format {name}",
    "reader": "export CHECKPOINT exported",
    "executor": "prepare --corpus TEXT --tokenizer FOLDER --output store --executor {name}",
    "format": "fit finetune/single-sentence --data.format {name} --data.source FOLDER",
}
"""How a kind that has no config is used, after ``bertlab``."""
GROUP_OF_KIND: dict[str, str] = {
    kind: group for kind, group in [*GROUPS.items(), ("hooks", hooks.GROUP)] if kind in ARTICLES
}
_LONGEST = 40
_OWN_FOLDERS = ("configs", "tests")
_PREFIX = "bertlab-"


@dataclass(frozen=True)
class PluginNames:
    """A new plugin's names.

    Attributes:
        kind: a key of :data:`GROUP_OF_KIND`.
        package: of the distribution, as pip knows it: ``bertlab-my-task``.
        name: in configs, which is the entry point's: ``my_task``.
    """

    kind: str
    package: str
    name: str

    @property
    def module(self) -> str:
        """What is imported: ``bertlab_my_task``."""
        return self.package.replace("-", "_")

    @property
    def code(self) -> str:
        """Path of the file with the class, or the hooks, in the package."""
        return f"{self.module}/{'hooks' if self.kind == 'hooks' else self.name}.py"

    @property
    def config(self) -> str | None:
        """Path of the config in the package; None of a kind that ``fit`` does not train with."""
        return None if self.kind in USES else f"configs/{self.package}.yaml"

    @property
    def class_name(self) -> str:
        """Name of the class: ``MyTask``."""
        return "".join(part.capitalize() for part in self.name.split("_"))


def plugin_names(kind: str, package: str) -> PluginNames:
    """Return the names that follow from a kind and a package's name.

    The name in configs is the package's, without ``bertlab-`` before it, and with underscores.
    """
    if kind not in GROUP_OF_KIND:
        raise CommandError(
            f"KIND: found {kind!r}{nearest(kind, GROUP_OF_KIND)} "
            f"(there are: {', '.join(GROUP_OF_KIND)})"
        )
    _check_form(package)
    names = PluginNames(kind, package, package.removeprefix(_PREFIX).replace("-", "_"))
    if reason := _taken(names):
        raise CommandError(f"NAME: found {package!r}: {reason}; choose another name")
    return names


def _check_form(package: str) -> None:
    # my-objective, bert2; not My, my--x, 2x
    if len(package) <= _LONGEST and re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", package):
        return
    # MyObjective_2 -> my-objective_2 -> my-objective-2
    parted = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", package).lower()
    better = "-".join(re.findall(r"[a-z0-9]+", parted.lstrip("0123456789")))[:_LONGEST].rstrip("-")
    hint = f"; did you mean {better!r}?" if better else ""
    raise CommandError(
        f"NAME: found {package!r}, expected at most {_LONGEST} small letters and digits, a "
        f"letter first, with hyphens between words, as in my-objective{hint}"
    )


def _taken(names: PluginNames) -> str | None:
    """Return why the names cannot be used; nothing is imported."""
    for entry in entry_points(group=GROUP_OF_KIND[names.kind]):
        if entry.name in (names.name, names.name.replace("_", "-")):  # my_task, my-task
            package = brought_by(*entry_package(entry))
            return f"{package} has a plugin {entry.name!r} of the kind {names.kind}"
    for word in (names.module, names.name, names.class_name):
        if not word.isidentifier() or keyword.iskeyword(word):
            return f"{word} cannot be a name in Python"
    # YAML reads on, no and null as other things than names
    if not isinstance(yaml.safe_load(names.name), str):
        return f"{names.name} is no name in a YAML config"
    try:
        return f"the package {names.package} {distribution(names.package).version} is installed"
    except PackageNotFoundError:
        pass
    if names.module in _OWN_FOLDERS or find_spec(names.module) is not None:
        return f"a module {names.module} is there already"
    return None
