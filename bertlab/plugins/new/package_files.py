"""From names and templates to the files of a plugin's package, all of them or none."""

import os
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from string import Template

from bertlab import __version__
from bertlab.api import CONTRACT
from bertlab.errors import CommandError, OutputError
from bertlab.files import new_folder
from bertlab.plugins.first_party import OWN_PACKAGE
from bertlab.plugins.new.names import ARTICLES, GROUP_OF_KIND, USES, PluginNames

LINE_LENGTH = 100  # of the templates' pyproject.toml
_VOCABULARY = "bertlab tokenizer --corpus python-english --vocab_size 2000 --output vocabulary"
_TEMPLATES = files("bertlab.plugins.new") / "templates"


def demonstration(names: PluginNames, config: str | None) -> list[str]:
    """Return the commands that show the plugin at work."""
    if config is None:
        return [f"bertlab {USES[names.kind].format(name=names.name)}"]
    needs_vocabulary = names.kind in ("head", "metric")  # their encoder is new, without a corpus
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
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")


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
