"""All checks, by kind of plugin."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from bertlab.errors import PluginError
from bertlab.plugins import Kind
from bertlab.testing import (
    argument_checks,
    building_checks,
    class_checks,
    encoder_checks,
    encoder_sight_checks,
    encoder_use_checks,
    extreme_checks,
    gradient_checks,
    leak_checks,
    loss_checks,
    odd_row_checks,
    prediction_checks,
    prepare_checks,
    row_checks,
    saving_checks,
    source_checks,
    speed_checks,
    task_metric_checks,
    tokens_read_checks,
    torchmetric_checks,
    training_checks,
)
from bertlab.testing.cases import Case, MetricCase, Options, SourceCase
from bertlab.testing.check import Check
from bertlab.testing.encoder_case import EncoderCase
from bertlab.testing.task_cases import HeadCase, ObjectiveCase

_MODULES: tuple[ModuleType, ...] = (
    class_checks,
    argument_checks,
    building_checks,
    encoder_checks,
    encoder_sight_checks,
    encoder_use_checks,
    prepare_checks,
    row_checks,
    loss_checks,
    leak_checks,
    gradient_checks,
    prediction_checks,
    tokens_read_checks,
    saving_checks,
    task_metric_checks,
    torchmetric_checks,
    odd_row_checks,
    extreme_checks,
    training_checks,
    source_checks,
    speed_checks,
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
