"""Behaviour that packages add to bertlab, through pluggy.

A package names a module under the entry-point group ``bertlab.hooks``; its functions that are
marked with :data:`hookimpl` are called. Our own callbacks come in the same way.

A hook is called although nobody named its package, so that one which fails is left out, with a
warning that names it. Only a :class:`bertlab.errors.BertlabError` that it raises ends the command.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from bertlab.errors import (
    BertlabError,
    CommandError,
    PluginError,
    nearest,
    told_with_place,
    warn,
)
from bertlab.plugins.first_party import where_to_get
from bertlab.plugins.index import (
    brought_by,
    check_contract,
    entry_package,
    entry_points_of,
    tell_of_a_wait,
)

if TYPE_CHECKING:
    from lightning.pytorch import Callback

    from bertlab.api.batch import PackedBatch
    from bertlab.api.exporter import Address, ExportReport
    from bertlab.api.study_scores import StudyScores
    from bertlab.checkpoints.pretrained import Pretrained

GROUP = "bertlab.hooks"
hookspec = pluggy.HookspecMarker("bertlab")
hookimpl = pluggy.HookimplMarker("bertlab")


@dataclass(frozen=True)
class Subcommand:
    """A subcommand of ``bertlab`` that a package adds.

    Attributes:
        name: what is typed after ``bertlab``; one of bertlab's own cannot be replaced.
        help: one line.
        main: takes the arguments after the name, returns the exit code.
    """

    name: str
    help: str
    main: Callable[[list[str]], int]


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
def bertlab_subcommands() -> list[Subcommand]:  # type: ignore[empty-body]
    """Return subcommands; called for ``bertlab --help`` and for a command that bertlab lacks."""


@hookspec
def bertlab_report_sections(scores: "StudyScores") -> list[ReportSection]:  # type: ignore[empty-body]
    """Return sections to add to the report of a study, of which ``scores`` has all figures."""


@hookspec
def bertlab_inspect_batch(batch: "PackedBatch", stage: str, step: int) -> None:
    """Look at a batch, before the encoder reads it; do not change it.

    Called during ``fit``; ``stage`` is ``train`` or ``validate``, ``step`` the optimiser steps done
    so far. Input that an objective rewrites on the device is seen as it was before that.
    """


Table = tuple[str, list[tuple[str, str]]]
"""A title, and rows of a name and what it is."""
Push = Callable[[Path, str | None], str]
"""Uploads a folder to a branch, the main one if None; returns the address of the commit."""


@hookspec
def bertlab_run_ended(run_dir: Path, results: "dict[str, float]", tables: "list[Table]") -> None:
    """Write what belongs to a run that has come to its end, such as a page.

    Called once, in the main process, before ``results.json`` says that the run is whole. The
    directory has config, manifest, logs and checkpoints. Whatever it raises is a warning: a run
    that was trained does not fail for it.

    ``results`` are the held-out metrics of the last step by ``task/metric``, ``tables`` what was
    printed of the data.
    """


@hookspec
def bertlab_export_files(
    folder: Path,
    model: "Pretrained",
    report: "ExportReport",
    loading_code: "list[tuple[str, str]]",
    address: "Address",
) -> None:
    """Write further files into the folder of an export, such as a model card.

    Called when all files of the form are there, and before the folder takes its place. ``model`` is
    what was exported, ``report`` what was written; ``loading_code`` has libraries and the lines of
    Python by which they load it from ``address``.
    """


@hookspec
def bertlab_push(repository: str, private: bool) -> Push:  # type: ignore[empty-body]
    """Return what uploads the folder of an export: ``bertlab export --push REPOSITORY``.

    Called before anything is read; the first package that has the hook is taken. A
    ``CommandError`` refuses the name. ``private``: a repository that is made is the user's alone.
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


def subcommands() -> dict[str, Subcommand]:
    """Return the subcommands of all plugins by name; the first of a name counts."""
    found: dict[str, Subcommand] = {}
    for command in _joined("bertlab_subcommands"):
        found.setdefault(command.name, command)
    return found


def report_sections(scores: "StudyScores") -> list[ReportSection]:
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


def run_ended(run_dir: Path, results: dict[str, float], tables: list[Table]) -> None:
    """Tell all plugins that a run has come to its end; what they raise is a warning."""
    try:
        for _ in _results("bertlab_run_ended", run_dir=run_dir, results=results, tables=tables):
            pass
    except BertlabError as error:
        warn(f"{run_dir}: {error}")


def add_export_files(
    folder: Path,
    model: "Pretrained",
    report: "ExportReport",
    loading_code: list[tuple[str, str]],
    address: "Address",
) -> None:
    """Let all plugins add files to an export."""
    given = {"model": model, "report": report, "loading_code": loading_code, "address": address}
    for _ in _results("bertlab_export_files", folder=folder, **given):
        pass


def push_to(repository: str, private: bool) -> Push:
    """Return what uploads a folder to a repository.

    Raises:
        CommandError: no package does, or the name is none of a repository.
    """
    for push in _results("bertlab_push", repository=repository, private=private):
        found: Push = push
        return found
    raise CommandError(f"--push: nothing uploads a model{where_to_get('key', 'push')}")


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
