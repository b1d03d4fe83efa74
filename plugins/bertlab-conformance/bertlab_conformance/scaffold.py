"""``bertlab new-plugin``: a complete package for a plugin of one's own, from templates.

All of its files are written, or none.
"""

import keyword
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from string import Template

import yaml

from bertlab import CommandError, __version__, nearest
from bertlab.api import CONTRACT
from bertlab.extend import (
    GROUPS,
    HOOKS,
    OWN_PACKAGE,
    OutputError,
    entry_package,
    make_folder,
    needs_value,
    new_folder,
    say,
    split_arguments,
    write_text,
)

ARTICLES = {
    "encoder": "An encoder",
    "objective": "An objective",
    "head": "A head",
    "adapter": "An adapter",
    "source": "A data source",
    "masking_unit": "A masking unit",
    "transform": "A transform of rows",
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
    kind: group for kind, group in [*GROUPS.items(), ("hooks", HOOKS)] if kind in ARTICLES
}
_USAGE = """usage: bertlab new-plugin KIND NAME [--output FOLDER]

Write a package with a small plugin that works, its config and its tests.

  KIND             {kinds}
  NAME             of the package, as in my-objective; my_objective in configs.
                   bertlab-my-objective is my_objective in configs, too
  --output FOLDER  folder to write, which must not exist; ./NAME by default
"""
LINE_LENGTH = 100  # of the templates' pyproject.toml
_VOCABULARY = "bertlab tokenizer --corpus python-english --vocab_size 2000 --output vocabulary"
_TEMPLATES = files("bertlab_conformance") / "templates"
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
            package = " ".join(entry_package(entry))
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


def demonstration(names: PluginNames, config: str | None) -> list[str]:
    """Return the commands that show the plugin at work."""
    if config is None:
        return [f"bertlab {USES[names.kind].format(name=names.name)}"]
    needs_vocabulary = names.kind in (
        "head",
        "metric",
        "transform",
    )  # their encoder is new, without a corpus
    # [] * False is []
    return [_VOCABULARY] * needs_vocabulary + [f"bertlab fit --config {config}"]


def package_files(names: PluginNames) -> dict[str, str]:
    """Return the content of each file by its path in the package."""
    paths = {
        "pyproject.toml": "common/pyproject.toml",
        "README.md": "common/README.md",
        "LICENSE": "common/LICENSE",
        ".github/workflows/tests.yml": "common/tests.yml",
        f"{names.module}/__init__.py": "common/__init__.py",
        names.code: f"{names.kind}/plugin.py",
        f"tests/test_{names.name}.py": f"{names.kind}/test.py",
    }
    if names.config is not None:
        paths[names.config] = f"{names.kind}/config.yaml"
    if names.kind == "hooks":
        paths[f"{names.module}/gradient_norm.py"] = "hooks/gradient_norm.py"
    templates = {path: _read(template) for path, template in paths.items()}
    # "import torch", and "from a import (\n    b,\n    c,\n)" over its lines
    imports = re.findall(
        r"^(?:from|import) (?:[^\n(]*\([^)]*\)|.*)", "\n".join(templates.values()), re.MULTILINE
    )
    # head head: class Head beside "from bertlab.api.task import Head"
    if any(re.search(rf"\b{names.class_name}\b", each) for each in imports):
        raise CommandError(
            f"NAME: found {names.package!r}: its class would be called {names.class_name}, as "
            "something that it imports is; choose another name"
        )
    words = _words(names)
    return {path: Template(text).substitute(words) for path, text in templates.items()}


def write_package(folder: Path, content: Mapping[str, str]) -> None:
    """Write files by their path in a new folder; if one fails, there is no folder."""
    if os.path.lexists(folder):
        raise OutputError(f"{folder}: is there already; choose another --output")
    with new_folder(folder) as partial:
        for path, text in content.items():
            file = partial / path
            make_folder(file.parent)
            write_text(file, text)


def _words(names: PluginNames) -> dict[str, str]:
    """Return what stands for each placeholder of the templates."""
    major, minor, *_ = __version__.split(".")
    versions = f">={major}.{minor},<{int(major) + 1}"  # 0.1.0 -> >=0.1,<1
    class_in_module = "" if names.kind == "hooks" else f":{names.class_name}"
    words = {
        "article": ARTICLES[names.kind],
        "class_name": names.class_name,
        "code": names.code,
        "config": names.config or "",
        "its_config": "" if names.config is None else f", its config `{names.config}`",
        "contract": str(CONTRACT),
        "demonstration": "\n".join(f"    {line}" for line in demonstration(names, names.config)),
        "group": GROUP_OF_KIND[names.kind],
        "module": names.module,
        "name": names.name,
        "package": names.package,
        "requirement": f"{OWN_PACKAGE}{versions}",
        "test_requirement": f"bertlab-conformance{versions}",
        "year": str(datetime.now(UTC).year),
        "python_module": names.code.removesuffix(".py").replace("/", "."),
    }
    words["target"] = words["python_module"] + class_in_module
    words["import_line"] = _import_line(
        words["python_module"], "bertlab_callbacks" if names.kind == "hooks" else names.class_name
    )
    words["usage"] = Template(_read(f"{names.kind}/usage.md")).substitute(words).strip()
    return words


def _import_line(module: str, name: str) -> str:
    """Return an import as ``ruff format`` writes it."""
    line = f"from {module} import {name}"
    return line if len(line) <= LINE_LENGTH else f"from {module} import (\n    {name},\n)"


def _read(template: str) -> str:
    return _TEMPLATES.joinpath(f"{template}.template").read_text("utf-8")


def main(command: str, argv: list[str]) -> int:
    """Write a plugin's package and say what to do with it; return the exit code."""
    if not argv or "-h" in argv or "--help" in argv:
        say(_USAGE.format(kinds=", ".join(GROUP_OF_KIND)))
        return 0
    output, rest = None, []
    for key, value, tokens in split_arguments(argv):
        if key == "--output":
            output = needs_value(key, value)
        else:
            rest += tokens
    if len(rest) != 2 or rest[0].startswith("-") or rest[1].startswith("-"):
        raise CommandError(
            f"{command}: found {shlex.join(argv)!r}, expected KIND NAME, as in "
            f"bertlab {command} objective my-objective; see bertlab {command} --help"
        )
    names = plugin_names(*rest)
    folder = Path(output or names.package)
    content = package_files(names)
    write_package(folder, content)
    place = shlex.quote(str(folder))
    config = None if names.config is None else shlex.quote(str(folder / names.config))
    lines = [
        f"{folder}: {names.kind} {names.name!r}, {len(content)} files",
        f"  pip install -e {shlex.quote(f'{folder}[test]')} && pytest {place}",
        "  " + " && ".join(demonstration(names, config)),
    ]
    say("\n".join(lines))
    return 0
