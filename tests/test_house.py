"""The rules of the house, as far as ruff, mypy and import-linter do not keep them."""

import ast
import importlib
import importlib.util
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "bertlab"
MODULES = sorted(PACKAGE.rglob("*.py"))
OF_PACKAGES = sorted((ROOT / "plugins").glob("bertlab-*/bertlab_*/**/*.py"))
ENTRIES, SHORTEST, LONGEST = 23, 60, 450
LINES, FILES = 25_000, 140


def test_the_package_root_is_small():
    entries = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= ENTRIES, sorted(entries)


def test_the_core_is_small():
    lines = sum(map(_lines, MODULES))
    assert lines <= LINES, f"{lines} lines: what one run does not need belongs into a package"
    assert len(MODULES) <= FILES, f"{len(MODULES)} files: join neighbours"


def test_no_module_is_too_short():
    found = {_name(path) for path in MODULES if _lines(path) < SHORTEST and not _may_be_short(path)}
    assert not found, "join it with its neighbour, or give it what belongs there"


def test_no_module_is_too_long():
    found = {_name(path) for path in [*MODULES, *OF_PACKAGES] if _lines(path) > LONGEST}
    assert not found, "give a part of it a module of its own"


def test_what_is_printed_goes_through_say():
    """Names and texts of others come without a terminal's commands then."""
    found = {_name(path) for path in MODULES if "sys.stdout.write(" in path.read_text("utf-8")}
    assert found == set()


def test_nothing_writes_into_lightnings_trainer():
    paths = [*MODULES, *(ROOT / "plugins").rglob("*.py")]
    texts = {path: path.read_text("utf-8") for path in paths}
    found = [
        f"{_name(path)}:{line}"
        for path, text in texts.items()
        if "trainer" in text
        for line in trainer_writes(text)
    ]
    assert found == [], "a callback's setup() or the Trainer's arguments do the same"


@pytest.mark.parametrize(
    "code",
    [
        "trainer.fit_loop.epoch_loop.max_steps = 3",
        "self.trainer.loggers = []",
        "trainer.callbacks.insert(0, record)",
        "trainer.callbacks[2] = other",
        "trainer.limit_val_batches += 1",
        "setattr(trainer, 'loggers', [])",
        "callbacks = trainer.callbacks\ncallbacks[0] = other",
        "loop = self.trainer.fit_loop\nloop.max_epochs = 3",
        "del trainer.loggers[0]",
    ],
)
def test_a_write_into_the_trainer_is_found(code):
    assert list(trainer_writes(code)) == [len(code.splitlines())]


@pytest.mark.parametrize(
    "code",
    [
        "self.trainer = Trainer()",
        "trainer.should_stop = True",
        "steps = trainer.max_steps\nsteps += 1",
        "trainer.lightning_module.guard.policy = 'skip'",
        "trainer.save_checkpoint(path)",
    ],
)
def test_what_is_no_write_into_the_trainer_is_not_found(code):
    assert list(trainer_writes(code)) == []


_LISTS = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort", "update"}
_OURS = {"lightning_module", "model", "datamodule"}  # what hangs on the Trainer and is not its own


def trainer_writes(code: str) -> Iterator[int]:
    """Yield the lines that change a Trainer or what belongs to it, directly or by a name for it.

    ``trainer.should_stop = True`` is how Lightning's documentation ends a training.
    """
    tree = ast.parse(code)
    names = {"trainer"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute):
            of_trainer = _belongs_to(node.value.value, names)
            found = node.targets[0]
            if of_trainer and isinstance(found, ast.Name) and node.value.attr not in _OURS:
                names.add(found.id)
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.Delete):
            changed = list(node.targets)
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            changed = [node.target]
        elif isinstance(node, ast.Call):
            changed = _changed_by(node)
        else:
            continue
        for target in changed:
            inside = isinstance(target, ast.Attribute | ast.Subscript)
            if inside and _belongs_to(target.value, names) and not _ends_training(target):
                yield node.lineno


def _changed_by(call: ast.Call) -> list[ast.expr]:
    """Return what a call changes: the list of ``a.list.append(…)``, the object of ``setattr``."""
    if isinstance(call.func, ast.Name) and call.func.id in ("setattr", "delattr"):
        return [ast.Attribute(call.args[0], "any")]
    changes = isinstance(call.func, ast.Attribute) and call.func.attr in _LISTS
    return [call.func.value] if changes else []


def _belongs_to(node: ast.expr, names: set[str]) -> bool:
    """Tell whether ``a.b[0].c`` starts at, or goes through, one of the names."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute) and node.attr in names:
            return True
        if isinstance(node, ast.Attribute) and node.attr in _OURS:
            return False
        node = node.value
    return isinstance(node, ast.Name) and node.id in names


def _ends_training(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr == "should_stop"


def _may_be_short(path: Path) -> bool:
    """Tell whether a module is a contract, a command, one plugin class, hooks or fixtures."""
    if path.name in ("__init__.py", "__main__.py") or path.parent == PACKAGE / "api":
        return True
    module = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    top = ast.parse(path.read_text("utf-8")).body
    if path.parent == PACKAGE / "cli":
        return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in top)
    if path.name in ("extend.py", "testing.py"):  # names for others
        return True
    entry_points = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
        "entry-points"
    ]
    targets = [target for group in entry_points.values() for target in group.values()]
    return any(target.partition(":")[0] == module for target in targets)


def _lines(path: Path) -> int:
    return len(path.read_text("utf-8").splitlines())


def _name(path: Path) -> str:
    return path.relative_to(PACKAGE if path.is_relative_to(PACKAGE) else ROOT).as_posix()


@pytest.mark.slow
def test_benchmarks_find_what_they_import():
    """They are not run here, and what they take may be renamed."""
    folder = ROOT / "benchmarks"
    missing = []
    for path in sorted(folder.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(node, ast.ImportFrom) or node.module is None:
                continue
            if (beside := folder / f"{node.module}.py").is_file():
                there = _defined(beside)
            elif node.module.startswith("bertlab"):
                there = {*dir(importlib.import_module(node.module))}
            else:
                continue
            for each in node.names:
                if each.name not in there and not _is_module(f"{node.module}.{each.name}"):
                    missing.append(f"{path.name}: {node.module}.{each.name}")
    assert missing == []


def _defined(path: Path) -> set[str]:
    """Return the names that a module has at its top."""
    found = set()
    for node in ast.parse(path.read_text("utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {each.asname or each.name for each in node.names}
        else:
            found |= {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
    return found


def _is_module(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False
