"""Behaviour that packages add to bertlab, through pluggy.

A package names a module under the entry-point group ``bertlab.hooks``; its functions that are
marked with :data:`hookimpl` are called.

A hook is called although nobody named its package, so that one which fails is left out, with a
warning that names it. Only a :class:`bertlab.errors.BertlabError` that it raises ends the command.
"""

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from bertlab.errors import BertlabError, ConfigError, PluginError, nearest, told_with_place, warn
from bertlab.plugins.index import (
    FIRST_PARTY,
    HOOKS,
    check_contract,
    entry_package,
    entry_points_of,
    package_of,
    tell_of_a_wait,
)

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from jsonargparse import ArgumentParser, Namespace
    from lightning.pytorch import Callback, Trainer
    from lightning.pytorch.cli import LightningArgumentParser
    from lightning.pytorch.strategies import Strategy

    from bertlab.api.batch import PackedBatch
    from bertlab.api.command import Opened
    from bertlab.api.format import PredictionFile
    from bertlab.config.request import Request
    from bertlab.data.corpus.prepare import OrderedMap
    from bertlab.data.module import TaskData
    from bertlab.model.module import BertModule

SPECS = "bertlab.hookspecs"
hookspec: pluggy.HookspecMarker = pluggy.HookspecMarker("bertlab")
hookimpl = pluggy.HookimplMarker("bertlab")


@dataclass(frozen=True)
class FitKeys:
    """What a package says of the keys that it adds to ``fit``.

    A key that is not mentioned decides what a run gives: ``config.yaml`` and checkpoints record it,
    and a stage may set it.

    Attributes:
        not_recorded: keys that do not change what a run computes or writes into its results. They
            are never taken from a checkpoint; a key that names a place to write to belongs here.
        stored: keys whose values may come from a checkpoint, which may come from anywhere: they
            name no place to write to and start no processes. A run whose checkpoint has another one
            that is not at its default goes on with the user's own ``--config`` only.
        not_in_stages: keys that do not go with ``stages``, and why:
            ``{"checkpoint_words": "a stage counts its own words only"}``.
        check_stored: is called with the config of a checkpoint, which may come from anywhere, and
            its file, before the values are used. It raises ``CheckpointError`` if a value names a
            class or a function. Needed only for a key whose values the package parses further:
            types of the parser are checked without it.
        decides: keys of a change in which a resumed run would compute something else: it is refused
            as one of the core's is.
        as_recorded: returns the resolved config as it is recorded, printed and compared, all keys
            in their order. A key that came later than others is best left out where it is not
            given: runs of before then go on as they are.
    """

    not_recorded: tuple[str, ...] = ()
    stored: tuple[str, ...] = ()
    not_in_stages: Mapping[str, str] = field(default_factory=dict)
    check_stored: Callable[[Mapping[str, Any], str], None] | None = None
    as_recorded: Callable[[dict[str, Any]], dict[str, Any]] | None = None
    decides: tuple[str, ...] = ()


@hookspec
def bertlab_fit_arguments(parser: "LightningArgumentParser") -> FitKeys | None:
    """Add keys to ``fit``: ``parser.add_argument("--KEY", type=…, default=…, help=…)``.

    They are typed, checked, shown in ``--help all`` and ``--print_config``, and recorded, as the
    core's own. A default has to compute what was computed before there was the key. The name before
    the first dot must not be one of the core's or of another package's. The hook is called more
    than once, each time with a new parser; what it returns says more of its keys, if need be.
    """


@hookspec
def bertlab_callbacks(  # type: ignore[empty-body]
    run_dir: Path, config: "Namespace"
) -> "list[Callback]":
    """Return Lightning callbacks to add to every ``fit``.

    ``run_dir`` is the run's directory, which may not be there yet. ``config`` has the value of each
    key: ``config.evaluate_every``, ``config.trainer.max_steps``; do not change it.

    A callback may have ``checkpoint_io``, the plugin of Lightning's that writes the checkpoints,
    and ``trackers``, loggers to add to the run's. A progress bar gives way to one of the config's.
    It may have a method ``prepare(trainer, data)``. It is called when Trainer, DataModule
    and module are ready, before the run's directory is made; of a run in stages, for every stage
    before the first one is trained. What would stop the run later is raised here, as a
    :class:`bertlab.errors.BertlabError`. It returns what ``manifest.json`` is to say, or None;
    ``shares`` there has the metrics from 0 to 1 that it logs, by task: ``{"blimp": ["accuracy"]}``.
    """


@hookspec(firstresult=True)
def bertlab_opens(command: str, request: "Request") -> "Opened | None":
    """Return what runs instead of bertlab's own ``fit``, ``validate``, ``test`` or ``predict``.

    Called before torch is imported; None leaves it to the next package and to bertlab. What it
    raises ends the command. ``request`` has what files and arguments give, merged and not parsed:
    ``request.values["stages"]``; ``bertlab.extend.open_command`` is what bertlab itself would run.
    """


@hookspec
def bertlab_inspect_batch(batch: "PackedBatch", stage: str, step: int) -> None:
    """Look at a batch, before the encoder reads it; do not change it.

    Called during ``fit``; ``stage`` is ``train`` or ``validate``, ``step`` the optimiser steps done
    so far. Input that an objective rewrites on the device is seen as it was before that.
    """


@hookspec
def bertlab_accelerate(module: "BertModule", data: "TaskData", trainer: "Trainer") -> None:
    """Make the steps of a ``fit`` with ``compile: true`` quicker, on the device that trains.

    Called when data, module and Trainer are ready, before layers are compiled. A package may set
    ``module.passes`` to other ``bertlab.extend.Passes``, ``data.finish_batch`` to a function
    of each batch of training, and add a kernel by ``bertlab.extend.add_attention_kernel``. What is
    computed may change by rounding only.
    """


@hookspec
def bertlab_step_parts(
    module: "BertModule", data: "TaskData", trainer: "Trainer", choose: bool
) -> int | None:
    """Return the parts of ``trainer.accumulate_grad_batches: auto``, if ``choose`` is true.

    Called before every ``fit``. A step without room raises :class:`bertlab.errors.TrainerError`.
    """


@hookspec
def bertlab_strategy(name: str) -> "Strategy | None":
    """Return the Lightning strategy of a name that ``trainer.strategy`` gives; None: another's.

    A strategy that divides the weights among processes has ``divide(module)``, called as
    ``configure_model`` of the module, and ``take_optimizer_state(module, optimizer, state)``, which
    loads the ``state_dict`` of an earlier run's optimiser.
    """


# takes its own options out of all of them
PreparesElsewhere = Callable[[dict[str, Any]], "AbstractContextManager[OrderedMap | None]"]


@hookspec
def bertlab_prepare(parser: "ArgumentParser", argv: Sequence[str]) -> PreparesElsewhere | None:
    """Add options to ``bertlab prepare``; return what has the text tokenised elsewhere.

    Its context is left when the store is written or has failed; None in it: here.
    """


@hookspec
def bertlab_prediction_file(path: Path, form: str) -> "PredictionFile | None":
    """Return what writes the rows of ``bertlab predict --output`` in a form, ``csv``; or None."""


Table = tuple[str, list[tuple[str, str]]]
"""A title, and rows of a name and what it is."""


@hookspec
def bertlab_checkpoint_written(path: Path, step: int) -> None:
    """Take note of a checkpoint, such as to copy it elsewhere.

    Called in the main process when the file at ``path`` is whole, after optimiser step ``step``;
    with ``background_checkpoints`` in another thread, while training continues. A later checkpoint
    may replace or remove the file once this returns. Whatever it raises is a warning.
    """


@hookspec
def bertlab_run_written(run_dir: Path) -> None:
    """Take note of a run that is whole, ``results.json`` included, such as to upload it.

    Called once, in the main process. Whatever it raises is a warning.
    """


@hookspec
def bertlab_run_ended(run_dir: Path, results: "dict[str, float]", tables: "list[Table]") -> None:
    """Write what belongs to a run that has come to its end, such as a page.

    Called once, in the main process, before ``results.json`` says that the run is whole. The
    directory has config, manifest, logs and checkpoints. Whatever it raises is a warning: a run
    that was trained does not fail for it.

    ``results`` are the held-out metrics of the last step by ``task/metric``, ``tables`` what was
    printed of the data.
    """


@dataclass
class HookModules:
    """The hook modules of installed packages that could be loaded."""

    manager: pluggy.PluginManager
    fit_keys: dict[str, FitKeys] | None = None  # what is said of each key; None: nobody has asked
    left_out: frozenset[object] = frozenset()  # those of packages that ``without_hooks`` names


@cache
def hook_modules() -> HookModules:
    """Load every installed hook module, one by one; one that fails is left out with a warning."""
    loaded = HookModules(pluggy.PluginManager("bertlab"))
    for module in spec_modules(tells=True):
        try:
            loaded.manager.add_hookspecs(module)
            RETURNS.update({**getattr(module, "RETURNS", {}), **RETURNS})
        except ValueError as error:  # another package declares a hook of that name
            _leave_out(module.__name__, error)
    # by name: callbacks are called in an order that no disk decides
    for entry in sorted(entry_points_of(HOOKS), key=lambda each: (entry_package(each), each.name)):
        try:
            loaded.manager.register(load_module(entry), name=name_of_hooks(entry))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # whatever a stranger's module raises
            _leave_out(name_of_hooks(entry), error)
    return loaded


def leave_out_hooks(packages: Sequence[str]) -> None:
    """Call the hooks of all packages but these from now on.

    Raises:
        ConfigError: a package has no hooks, or is not installed.
    """
    modules = hook_modules()
    entries = [(entry_package(each)[0], name_of_hooks(each)) for each in entry_points_of(HOOKS)]
    known = [package for package, _ in entries]
    for package in packages:
        if package not in known:
            raise ConfigError(
                f"without_hooks: no package with hooks is called {package!r}"
                f"{nearest(package, known)} (there are: {', '.join(known)})"
            )
    left_out = (name for package, name in entries if package in packages)
    modules.left_out = frozenset(modules.manager.get_plugin(name) for name in left_out)
    modules.fit_keys = None


def spec_modules(tells: bool = False) -> list[Any]:
    """Return the modules that declare hooks: this one, and those of packages."""
    found = [sys.modules[__name__]]
    for entry in sorted(entry_points_of(SPECS), key=entry_package):
        try:
            found.append(entry.load())
        except Exception as error:
            if tells and entry_package(entry)[0] not in FIRST_PARTY:  # these are half removed
                _leave_out(name_of_hooks(entry), error)
    return found


def load_module(entry: EntryPoint) -> object:
    """Import a hook module; what its import raises comes through.

    Raises:
        PluginError: it was written for another contract, or has a hook that there is not.
    """
    if entry.dist is not None:
        check_contract(entry.dist.name)
    # what it prints on import would stand among the predictions of `bertlab predict`
    with (
        contextlib.redirect_stdout(sys.stderr),
        tell_of_a_wait(name_of_hooks(entry), name_of_hooks(entry)),
    ):
        module = entry.load()
    _check_names(module)
    return module


def name_of_hooks(entry: EntryPoint) -> str:
    """Return what to call a hook module in messages."""
    return f"hooks {entry.name!r} of {' '.join(entry_package(entry))} ({entry.value})"


def add_fit_arguments(parser: "LightningArgumentParser") -> dict[str, FitKeys]:
    """Add the keys of all packages to a parser of ``fit``; return what is said of each key.

    A package with a key that there is already is left out.
    """
    found: dict[str, FitKeys] = {}
    for each in _implementations("bertlab_fit_arguments"):
        with _left_out_if_it_fails(each):
            trial = type(parser)(exit_on_error=False)
            said = _call(each, {"parser": trial}) or FitKeys()
            keys = _sections(trial) - {"help"}
            if taken := keys & _sections(parser):
                raise ValueError(f"there is a key {', '.join(sorted(taken))} already")
            _call(each, {"parser": parser})
            found |= dict.fromkeys(sorted(keys), said)
    return found


def package_keys() -> dict[str, FitKeys]:
    """Return the keys that packages add to ``fit``, with what they say of them."""
    modules = hook_modules()
    if modules.fit_keys is None:  # of another command than fit
        from lightning.pytorch.cli import LightningArgumentParser  # noqa: PLC0415  torch

        modules.fit_keys = add_fit_arguments(LightningArgumentParser(exit_on_error=False))
    return modules.fit_keys


def _sections(parser: "LightningArgumentParser") -> set[str]:
    """Return the names before the first dot of a parser's keys."""
    return {action.dest.partition(".")[0] for action in parser._actions}


def is_hooked(hook: str) -> bool:
    """Whether any package has a function for a hook."""
    return bool(_implementations(hook))


def hook_results(hook: str, **arguments: Any) -> list[Any]:  # noqa: ANN401  a hook's own
    """Call a hook of all packages; return what each returns, without None."""
    return list(_results(hook, arguments))


def first_result(hook: str, **arguments: Any) -> Any:  # noqa: ANN401  a hook's own
    """Return what the first package returns that has something else than None, or None."""
    return next(_results(hook, arguments), None)


def run_callbacks(run_dir: Path, config: "Namespace") -> "list[Callback]":
    """Return the callbacks of all packages for a run in ``run_dir``."""
    found = hook_results("bertlab_callbacks", run_dir=run_dir, config=config)
    return [callback for each in found for callback in each]


def opened_by_package(command: str, request: "Request") -> "Opened | None":
    """Return what a package runs instead of bertlab; None if none does."""
    leave_out_hooks(request.without_hooks)
    if request.helps:
        return None
    given = {"command": command, "request": request}
    found = (_call(each, given) for each in _implementations("bertlab_opens"))
    return next((each for each in found if each is not None), None)  # what is raised ends all


def announce(hook: str, **arguments: Any) -> None:  # noqa: ANN401  a hook's own
    """Tell all packages of what is done; what one raises is a warning, and the others are told."""
    for each in _implementations(hook):
        try:
            with _left_out_if_it_fails(each):
                _call(each, arguments)
        except BertlabError as error:
            warn(f"{each.plugin_name}: {hook}: {error}")


def _results(hook: str, arguments: Mapping[str, Any]) -> Iterator[Any]:
    """Yield what each package returns; one that fails is left out from then on."""
    for each in _implementations(hook):
        with _left_out_if_it_fails(each):
            found = _call(each, arguments)
            if found is not None:
                yield found


def _has(name: str) -> Callable[[Any], bool]:
    return lambda found: not isinstance(found, type) and callable(getattr(found, name, None))


# what a hook returns if it is not None, in words and as a test
RETURNS: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "bertlab_fit_arguments": ("FitKeys", lambda found: isinstance(found, FitKeys)),
    "bertlab_callbacks": (
        "a list of callbacks",
        lambda found: isinstance(found, list | tuple) and all(map(_has("on_fit_start"), found)),
    ),
    "bertlab_opens": ("an object with run()", _has("run")),
    "bertlab_step_parts": ("a number from 1", lambda found: type(found) is int and found > 0),
    "bertlab_strategy": ("a strategy", _has("setup_environment")),
    "bertlab_prepare": ("a function of options", callable),
    "bertlab_prediction_file": ("a PredictionFile", _has("write")),
}


def _implementations(hook: str) -> list[pluggy.HookImpl]:
    modules = hook_modules()
    return modules.manager.subset_hook_caller(hook, modules.left_out).get_hookimpls()


def _call(implementation: pluggy.HookImpl, arguments: Mapping[str, Any]) -> Any:  # noqa: ANN401
    # pluggy itself calls all packages, and ends at the first error
    found = implementation.function(*(arguments[name] for name in implementation.argnames))
    words, fits = RETURNS.get(implementation.function.__name__, ("", None))
    if fits is not None and found is not None and not fits(found):
        raise PluginError(
            f"{implementation.plugin_name}: {implementation.function.__name__} returned "
            f"{repr(found)[:80]}, expected {words} or None"
        )
    return found


@contextlib.contextmanager
def _left_out_if_it_fails(implementation: pluggy.HookImpl) -> Iterator[None]:
    """Leave a package's hooks out from then on, with one warning, if the block fails."""
    try:
        yield
    except BertlabError:
        raise
    except Exception as error:
        hook_modules().manager.unregister(implementation.plugin)
        _leave_out(f"{implementation.plugin_name}: {implementation.function.__name__}", error)


def _check_names(module: object) -> None:
    """Raise PluginError if a function is named as a hook, but there is no such one."""
    # pluggy takes bertlab_callback without a word, and never calls it
    known = [name for each in spec_modules() for name in vars(each) if name.startswith("bertlab_")]
    for name in dir(module):
        is_hook = name in known or package_of("hook", name) is not None
        if name.startswith("bertlab_") and not is_hook:
            raise PluginError(f"there is no hook {name}{nearest(name, known)}")


def _leave_out(name: str, error: BaseException) -> None:
    warn(f"{name} is left out: {told_with_place(error)}")
