"""``conformance``: a test function with one case for each check of a plugin's kind."""

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bertlab import nearest
from bertlab.api import Encoder, Example, Features, PackedBatch, PluginError, Task
from bertlab.extend import HOOKS, Kind, collate, entry_points_of, installed, load_class
from bertlab_conformance.cases import (
    KINDS,
    NO_CLASSES,
    Case,
    MetricCase,
    Options,
    SourceCase,
    TokenizerCase,
    TransformCase,
    bases,
    kind_of,
)
from bertlab_conformance.check import SHOWN_ALONE, Check, CheckRunner
from bertlab_conformance.checks import (
    adapters,
    answers,
    building,
    classes,
    commands,
    data_modules,
    encoder_use,
    encoders,
    evaluations,
    exchange,
    executors,
    formats,
    forms,
    input_formats,
    losses,
    masking_units,
    metric_plugins,
    metrics,
    names,
    odd_rows,
    optimizers,
    prepare,
    schedules,
    sources,
    speed,
    tokenizer_models,
    tokenizers,
    training,
    transforms,
    whole_runs,
)
from bertlab_conformance.checks import (
    hooks as hook_checks,
)
from bertlab_conformance.checks import (
    rows as row_checks,
)
from bertlab_conformance.checks.exchange import ExporterCase, ReaderCase
from bertlab_conformance.checks.forms import FormCase
from bertlab_conformance.checks.names import NAMES
from bertlab_conformance.checks.tokenizer_models import TokenizerModelCase
from bertlab_conformance.plugin_list import base_of
from bertlab_conformance.task_cases import (
    AdapterCase,
    EncoderCase,
    EvaluationCase,
    HeadCase,
    ObjectiveCase,
)

# in the order in which their checks run
_MODULES: tuple[ModuleType, ...] = (
    classes,
    building,
    encoders,
    encoder_use,
    adapters,
    masking_units,
    input_formats,
    transforms,
    prepare,
    row_checks,
    losses,
    answers,
    metrics,
    metric_plugins,
    odd_rows,
    training,
    sources,
    evaluations,
    optimizers,
    schedules,
    tokenizers,
    commands,
    exchange,
    executors,
    formats,
    data_modules,
    tokenizer_models,
    forms,
    names,
    hook_checks,
    whole_runs,
    speed,
)
_CASES: dict[Kind, type[Case]] = {
    "encoder": EncoderCase,
    "objective": ObjectiveCase,
    "head": HeadCase,
    "adapter": AdapterCase,
    "masking_unit": Case,
    "input_format": Case,
    "transform": TransformCase,
    "metric": MetricCase,
    "source": SourceCase,
    "evaluation": EvaluationCase,
    "optimizer": Case,
    "schedule": Case,
    "tokenizer": TokenizerCase,
    "command": Case,
    "exporter": ExporterCase,
    "reader": ReaderCase,
    "executor": Case,
    "format": Case,
    "data_module": Case,
    "tokenizer_model": TokenizerModelCase,
    "huggingface_form": FormCase,
    "name": Case,
    "hooks": Case,
}
_OPTIONS: dict[str, tuple[Kind, ...]] = {  # the kinds that an option is for
    "rows": ("head", "metric", "transform", "evaluation"),
    "vocabulary": ("encoder", "objective", "head", "evaluation"),
    "encoder": ("objective", "head", "adapter", "evaluation"),
    "companions": ("objective",),
}


class RefusedPlugin(PluginError, SHOWN_ALONE):  # type: ignore[misc]  # noqa: N818
    """``conformance`` cannot check what it is given; pytest prints the message alone."""

    def __init__(self, message: str) -> None:
        SHOWN_ALONE.__init__(self, message, pytrace=False)


def conformance(
    plugin: type[Any] | ModuleType | Callable[..., Any] | str,
    *,
    arguments: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    vocabulary: Sequence[str] | None = None,
    encoder: Callable[[int], Encoder] | None = None,
    companions: Mapping[str, Mapping[str, Any]] | None = None,
    skip: Mapping[str, str] | None = None,
) -> Callable[[str], None]:
    """Return a test function that checks a plugin's class against the contract of its kind.

    One line in a test file runs all checks, each a test case with the check's name as its id::

        test_conformance = conformance(MyObjective)

    Args:
        plugin: subclass of a contract of :mod:`bertlab.api` or of torchmetrics' Metric, a module of
            hooks, a function that is added to bertlab, or the entry-point name of an installed one.
        arguments: of its ``__init__``; for an encoder, small sizes. The defaults if not given. Of
            hooks: keys of ``fit``. Of a source: ``argument``, what stands behind the colon, and the
            ``split`` to read. Of a reader: ``path`` of a small checkpoint, in a folder of its own;
            of a class of tokenizers ``path`` of a ``tokenizer.json``. Of a form: settings of the
            ``config.json``.
        rows: rows of a head or an evaluation, its columns by name; made for the declared columns if
            not given. Of a metric: batches ``{"preds": …, "target": …}``; class ids if not given.
        vocabulary: tokens of the tokenizer, BERT's special tokens among them; a small English
            vocabulary if not given.
        encoder: makes the encoder that a task needs from the vocabulary's size; a tiny BertEncoder
            if not given.
        companions: arguments of the objectives that an objective requires, by name, where they are
            not the defaults: ``{"mlm": {"unit": "span"}}``.
        skip: checks that do not apply, with the reason.

    Raises:
        PluginError: the class is of no kind, the name is not installed, ``skip`` names no check,
            or an option has no use for the kind.
    """
    kind, found = find_plugin(plugin)
    known = {check.name: check for check in checks_of(kind)}
    reasons = dict(skip or {})
    for name in reasons:
        if name not in known:
            raise RefusedPlugin(
                f"conformance({found.__name__}): skip: there is no check {name!r} of {kind}s"
                f"{nearest(name, known)} (bertlab_conformance.list_checks({kind!r}) lists them)"
            )
    given = {
        "rows": rows,
        "vocabulary": vocabulary,
        "encoder": encoder,
        "companions": companions,
    }
    case = make_case(kind, found, arguments or {}, given)
    runner = CheckRunner(case, known, skipped=set(reasons))
    cases = [
        pytest.param(
            name, id=name, marks=[pytest.mark.skip(reason=reasons[name])] if name in reasons else []
        )
        for name in known
    ]

    # pytest reports where a test stands: the author's line, not this file
    caller = sys._getframe(1)
    test = _test_at(caller.f_code.co_filename, caller.f_lineno, runner.run)
    test.__doc__ = f"{found.__name__} keeps the contract of its kind ({kind})."
    return pytest.mark.parametrize("check", cases)(test)


def _test_at(file: str, line: int, run: Callable[[str], None]) -> Callable[[str], None]:
    """Return a test function that pytest takes to stand in the author's file."""
    test_conformance = lambda check: run(check)  # noqa: E731, PLW0108  one line, like its caller
    test_conformance.__name__ = "test_conformance"
    # pytest takes file and line of a test from its code object
    test_conformance.__code__ = test_conformance.__code__.replace(
        co_name="test_conformance", co_filename=file, co_firstlineno=line
    )
    return test_conformance


def list_checks(kind: Kind) -> list[tuple[str, str]]:
    """Return the name of each check of a kind and what it checks, in a line.

    Args:
        kind: a key of ``bertlab_conformance.cases.KINDS``, such as ``encoder``.
    """
    return [(check.name, check.summary) for check in checks_of(kind)]


def batch_of(features: Sequence[Features]) -> PackedBatch:
    """Return the batch that sequences of a head become, for tests of its own.

    Args:
        features: what ``encode`` returns, of one row or of several.
    """
    number = np.arange(len(features))
    rows = [Example({}, f"row {each}") for each in number]
    batch, _ = collate(features, rows, number, together=False).batch(number, "head")
    return batch


def checks_of(kind: Kind) -> list[Check]:
    """Return the checks of a kind, in the order in which they are run."""
    found = [value for module in _MODULES for value in vars(module).values()]
    # vars() keeps the order of the source, so a module's checks run as they stand there
    return [check for check in found if isinstance(check, Check) and kind in check.kinds]


def make_case(
    kind: Kind, plugin: type[Any], arguments: Mapping[str, Any], given: Mapping[str, Any]
) -> Case:
    """Return what the checks of a kind work with.

    Args:
        kind: of the plugin.
        plugin: its class.
        arguments: of its ``__init__``.
        given: the other options of :class:`Options`; None where not given.

    Raises:
        PluginError: an option has no use for the kind.
    """
    for name, value in given.items():
        if value is not None and kind not in _OPTIONS[name]:
            raise RefusedPlugin(
                f"conformance({plugin.__name__}): {kind}s have no use for {name}; "
                f"it is for: {', '.join(_OPTIONS[name])}"
            )
    return _CASES[kind](plugin, Options(arguments=arguments, **given))


def find_plugin(plugin: type[Any] | ModuleType | Callable[..., Any] | str) -> tuple[Kind, Any]:
    """Return a plugin's kind, and its class or module.

    Args:
        plugin: the class, a function, a module of hooks, or an entry-point name.

    Raises:
        PluginError: it is of no kind, not installed, or installed as several kinds.
    """
    if isinstance(plugin, str):
        return _installed(plugin)
    if not (inspect.isclass(plugin) or inspect.ismodule(plugin) or inspect.isfunction(plugin)):
        raise RefusedPlugin(
            f"conformance: found {plugin!r}, expected a class or the name of an installed one; "
            "options of its __init__ go into arguments={…}"
        )
    if (kind := kind_of(plugin)) is not None:
        return kind, plugin
    assert inspect.isclass(plugin)
    advice = "a task is an Objective or a Head" if issubclass(plugin, Task) else "subclass one"
    names = ", ".join(f"{base.__module__}.{base.__name__}" for _, base in bases())
    raise RefusedPlugin(
        f"conformance: {plugin.__module__}.{plugin.__qualname__} is of no kind; {advice}: {names}"
    )


def _installed(name: str) -> tuple[Kind, Any]:
    known = {kind: set(installed(kind)) for kind in KINDS if kind not in NO_CLASSES}
    groups = {"hooks": HOOKS, "name": NAMES}
    known |= {kind: set(entry_points_of(group).names) for kind, group in groups.items()}
    kinds = [kind for kind, names in known.items() if name in names]
    if not kinds:
        names = [each for names in known.values() for each in names]
        raise RefusedPlugin(
            f"conformance: no installed plugin is called {name!r}{nearest(name, names)}; "
            "`pip install -e .` reads the entry points of pyproject.toml anew"
        )
    if len(kinds) > 1:  # bertlab.study is the function of the command
        kinds = [kind for kind in kinds if kind != "name"]
    if len(kinds) > 1:
        raise RefusedPlugin(
            f"conformance: {name!r} is installed as {' and as '.join(kinds)}; give the class"
        )
    if kinds[0] in groups:
        return kinds[0], entry_points_of(groups[kinds[0]])[name].load()
    return kinds[0], load_class(kinds[0], name, base_of(kinds[0]))
