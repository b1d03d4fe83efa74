"""Behaviour that packages add to bertlab, through pluggy.

A package names a module under the entry-point group ``bertlab.hooks``; its functions that are
marked with :data:`hookimpl` are called. Our own callbacks come in the same way.

A hook is called although nobody named its package, so that one which fails is left out, with a
warning that names it. Only a :class:`bertlab.errors.BertlabError` that it raises ends the command.
"""

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from bertlab.errors import BertlabError, PluginError, nearest, told_with_place, warn
from bertlab.plugins.index import (
    brought_by,
    check_contract,
    entry_package,
    entry_points_of,
    tell_of_a_wait,
)

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.cli import LightningArgumentParser

    from bertlab.api.batch import PackedBatch

GROUP = "bertlab.hooks"
hookspec = pluggy.HookspecMarker("bertlab")
hookimpl = pluggy.HookimplMarker("bertlab")


@dataclass(frozen=True)
class ReportSection:
    """A section that a package adds to a study's report.

    Attributes:
        title: its heading.
        text: paragraphs, plain text.
        headings: of the columns of a table below; no table if empty.
        rows: its cells, one for each column.
    """

    title: str
    text: tuple[str, ...] = ()
    headings: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()


@hookspec
def bertlab_callbacks(run_dir: Path) -> "list[Callback]":  # type: ignore[empty-body]
    """Return Lightning callbacks to add to every ``fit``; ``run_dir`` is the run's directory."""


@hookspec
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> None:
    """Add keys to ``fit``: ``parser.add_argument("--KEY", type=…, default=…, help=…)``."""


@hookspec(firstresult=True)
def bertlab_runs_fit(arguments: list[str], keys: frozenset[str]) -> int | None:
    """Run what ``bertlab fit`` was asked for instead of bertlab, and return the exit code.

    Called before torch is imported; None leaves it to the next package and to bertlab. What it
    raises ends the command. ``arguments`` are those of ``fit``, ``keys`` the first parts of all
    keys that they and the config files give: ``seeds``, and ``model`` for ``model.init_from``.
    """


@hookspec
def bertlab_report_sections(scores: Any) -> list[ReportSection]:  # type: ignore[empty-body]  # noqa: ANN401
    """Return sections to add to the report of a study.

    bertlab-studies calls it; ``scores`` is a ``bertlab.StudyScores``, which has all figures.
    """


@hookspec
def bertlab_inspect_batch(batch: "PackedBatch", stage: str, step: int) -> None:
    """Look at a batch, before the encoder reads it; do not change it.

    Called during ``fit``; ``stage`` is ``train`` or ``validate``, ``step`` the optimiser steps done
    so far. Input that an objective rewrites on the device is seen as it was before that.
    """


@dataclass
class HookModules:
    """The hook modules of installed packages.

    Attributes:
        manager: has those that could be loaded.
        left_out: why each other one could not, by entry point.
    """

    manager: pluggy.PluginManager
    left_out: dict[EntryPoint, str] = field(default_factory=dict)


@cache
def hook_modules() -> HookModules:
    """Load every installed hook module, one by one; one that fails is left out with a warning."""
    loaded = HookModules(pluggy.PluginManager("bertlab"))
    loaded.manager.add_hookspecs(sys.modules[__name__])
    for entry in entry_points_of(GROUP):
        try:
            loaded.manager.register(load_module(entry), name=name_of(entry))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a stranger's module raises
            loaded.left_out[entry] = told_with_place(error)
            _leave_out(name_of(entry), error)
    return loaded


def load_module(entry: EntryPoint) -> object:
    """Import a hook module; what its import raises comes through.

    Raises:
        PluginError: it was written for another contract, or has a hook that there is not.
    """
    if entry.dist is not None:
        check_contract(entry.dist.name)
    # what it prints on import would stand among the predictions of `bertlab predict`
    with contextlib.redirect_stdout(sys.stderr), tell_of_a_wait(name_of(entry), name_of(entry)):
        module = entry.load()
    _check_names(module)
    return module


def name_of(entry: EntryPoint) -> str:
    """Return what to call a hook module in messages."""
    return f"hooks {entry.name!r} of {brought_by(*entry_package(entry))} ({entry.value})"


def run_callbacks(run_dir: Path) -> "list[Callback]":
    """Return the callbacks of all plugins for a run in ``run_dir``."""
    return _joined("bertlab_callbacks", run_dir=run_dir)


def add_fit_arguments(parser: "LightningArgumentParser") -> None:
    """Add the keys of all packages to the parser of ``fit``."""
    for _ in _results("bertlab_fit_arguments", parser=parser):
        pass


def run_elsewhere(arguments: list[str], keys: frozenset[str]) -> int | None:
    """Return the exit code of the package that runs a ``fit`` itself; None if none does."""
    hook = hook_modules().manager.hook.bertlab_runs_fit
    code: int | None = hook(arguments=arguments, keys=keys)
    return code


def report_sections(scores: Any) -> list[ReportSection]:  # noqa: ANN401  of bertlab-studies
    """Return the sections that plugins add to a study's report."""
    return _joined("bertlab_report_sections", scores=scores)


def inspects_batches() -> bool:
    """Whether any plugin wants to see batches."""
    return bool(hook_modules().manager.hook.bertlab_inspect_batch.get_hookimpls())


def inspect_batch(batch: "PackedBatch", stage: str, step: int) -> None:
    """Show a batch to all plugins that want to see it."""
    # a generator calls nobody until it is asked
    for _ in _results("bertlab_inspect_batch", batch=batch, stage=stage, step=step):
        pass


def _joined(hook: str, **arguments: Any) -> list[Any]:  # noqa: ANN401  a hook's own
    return [item for items in _results(hook, **arguments) for item in items]


def _results(hook: str, **arguments: Any) -> Iterator[Any]:  # noqa: ANN401  a hook's own
    """Yield what each plugin returns; one that fails is left out from then on."""
    manager = hook_modules().manager
    implementations = getattr(manager.hook, hook).get_hookimpls()
    plugins = [implementation.plugin for implementation in implementations]
    for plugin in plugins:
        others = [other for other in plugins if other is not plugin]
        try:
            # pluggy calls all and ends at the first error; without the others, each is called alone
            yield from manager.subset_hook_caller(hook, others)(**arguments)
        except BertlabError:
            raise
        except Exception as error:
            name = manager.get_name(plugin) or str(plugin)
            manager.unregister(plugin)  # fails once, and warns once
            _leave_out(f"{name}: {hook}", error)


def _check_names(module: object) -> None:
    """Raise PluginError if a function is named as a hook, but there is no such one."""
    # pluggy takes bertlab_callback without a word, and never calls it
    known = [name for name in globals() if name.startswith("bertlab_")]
    for name in dir(module):
        if name.startswith("bertlab_") and name not in known:
            raise PluginError(f"there is no hook {name}{nearest(name, known)}")


def _leave_out(name: str, error: BaseException) -> None:
    warn(f"{name} is left out: {told_with_place(error)}")
