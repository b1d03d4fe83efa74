"""All checks, by kind of plugin."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from bertlab.errors import PluginError
from bertlab.plugins.index import Kind
from bertlab.testing.cases import Case, MetricCase, Options, SourceCase
from bertlab.testing.check import Check
from bertlab.testing.checks import (
    building,
    classes,
    encoder_use,
    encoders,
    losses,
    metric_plugins,
    metrics,
    odd_rows,
    prepare,
    rows,
    sources,
    speed,
    training,
)
from bertlab.testing.encoder_cases import EncoderCase
from bertlab.testing.task_cases import HeadCase, ObjectiveCase

_MODULES: tuple[ModuleType, ...] = (
    classes,
    building,
    encoders,
    encoder_use,
    prepare,
    rows,
    losses,
    metrics,
    metric_plugins,
    odd_rows,
    training,
    sources,
    speed,
)
_CASES: dict[Kind, type[Case]] = {
    "encoder": EncoderCase,
    "objective": ObjectiveCase,
    "head": HeadCase,
    "metric": MetricCase,
    "source": SourceCase,
}
# options that mean something for a kind only
_OPTIONS: dict[str, tuple[Kind, ...]] = {
    "rows": ("head", "metric"),
    "vocabulary": ("encoder", "objective", "head"),
    "encoder": ("objective", "head"),
}


def checks_of(kind: Kind) -> list[Check]:
    """Return the checks of a kind, in the order in which they are run."""
    found = [value for module in _MODULES for value in vars(module).values()]
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
            raise PluginError(
                f"conformance({plugin.__name__}): {kind}s have no use for {name}; "
                f"it is for: {', '.join(_OPTIONS[name])}"
            )
    return _CASES[kind](plugin, Options(arguments=arguments, **given))
