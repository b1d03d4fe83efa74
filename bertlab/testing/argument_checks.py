"""Checks of ``__init__``: its arguments become config keys."""

import inspect
from collections.abc import Iterator
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace
from torch import nn

from bertlab.testing.cases import Case
from bertlab.testing.check import CONFIG_KINDS, TASK_KINDS, check
from bertlab.testing.comparisons import difference, not_json
from bertlab.testing.failures import ConformanceFailure

_GROUP = "plugin"
_LINKED = {"vocab_size"}  # given by the tokenizer, not by the config


@check(*CONFIG_KINDS, after=("is_complete",))
def arguments_have_names(case: Case) -> None:
    """``__init__`` has neither ``*args`` nor ``**kwargs`` nor positional-only arguments."""
    for parameter in _parameters(case.plugin):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConformanceFailure(
                f"__init__{inspect.signature(case.plugin)} has {parameter}",
                "name every argument; only a name can be a config key",
            )


@check(*CONFIG_KINDS, after=("arguments_have_names",))
def arguments_have_types(case: Case) -> None:
    """Every argument of ``__init__`` has a type, so that a config's value can be checked."""
    for parameter in _parameters(case.plugin):
        if parameter.annotation is parameter.empty:
            raise ConformanceFailure(
                f"__init__: {parameter.name} has no type",
                f"annotate it, for example {parameter.name}: {_type_of(parameter.default)}",
            )


@check(*CONFIG_KINDS, after=("arguments_have_names",))
def arguments_have_defaults(case: Case) -> None:
    """Every argument of ``__init__`` has a default, or the test gives it a value."""
    for parameter in _parameters(case.plugin):
        given = parameter.name in case.options.arguments
        if parameter.default is parameter.empty and parameter.name not in _LINKED and not given:
            raise ConformanceFailure(
                f"__init__: {parameter.name} has no default",
                "give it one, so that the name alone makes a config; or give the kit a value: "
                f"arguments={{{parameter.name!r}: …}}",
            )


@check(*CONFIG_KINDS, after=("arguments_have_names",))
def defaults_do_not_change(case: Case) -> None:
    """No default is a list, dict or set, which all objects would share."""
    for parameter in _parameters(case.plugin):
        if isinstance(parameter.default, list | dict | set):
            raise ConformanceFailure(
                f"__init__: the default of {parameter.name} is {parameter.default!r}",
                "take a tuple, or None and make it inside",
            )


@check(*CONFIG_KINDS, after=("arguments_have_types",))
def arguments_have_help(case: Case) -> None:
    """The class docstring explains every argument under ``Args:``; it is shown by ``--help``."""
    parser = _parser(case)
    for parameter in _parameters(case.plugin):
        if parameter.name in _LINKED:
            continue
        actions = [a for a in parser._actions if a.dest == f"{_GROUP}.{parameter.name}"]
        if actions and not (isinstance(actions[0].help, str) and actions[0].help.strip()):
            raise ConformanceFailure(
                f"{parameter.name} is not explained",
                f"add a line to the class docstring, under Args: {parameter.name}: what it does",
            )


@check(*CONFIG_KINDS, after=("arguments_have_types", "arguments_have_defaults"))
def config_comes_back(case: Case) -> None:
    """Arguments written to a config and read again are the same plain data and still work."""
    parser = _parser(case)
    given = {key: value for key, value in case.options.arguments.items() if key not in _LINKED}
    first = parser.parse_object({_GROUP: given} if given else {})
    plain = yaml.safe_load(parser.dump(first, skip_unset=False)) or {}
    reason = not_json(plain)
    if reason:
        raise ConformanceFailure(
            f"the config is not plain data: {reason}",
            "take numbers, texts, booleans, None and lists or dicts of them",
        )
    again = parser.parse_object(plain)
    found = difference(_plain(first), _plain(again))
    if found:
        raise ConformanceFailure(
            f"the arguments are not the same after a config was written and read: {found}",
            "use types whose values come back from YAML",
        )
    arguments = {**_plain(again)}
    linked = {key: case.language.tokenizer.vocab_size for key in _LINKED & _names(case.plugin)}
    case.plugin(**linked, **arguments)


@check(*TASK_KINDS, after=("arguments_have_defaults",))
def init_makes_no_layers(case: Case) -> None:
    """``__init__`` keeps the settings only; sizes are known in ``build``."""
    names = [name for name, _ in case.new().named_parameters()]
    if names:
        raise ConformanceFailure(
            f"__init__ makes the parameters {', '.join(names[:5])}",
            "make layers in build() (a head in add_layers()), whose context has the encoder's "
            "hidden_size and the labels; what __init__ makes is not rebuilt for another encoder",
        )


def _parser(case: Case) -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(case.plugin, _GROUP, instantiate=False, skip=set(_LINKED))
    return parser


def _plain(parsed: Namespace) -> dict[str, Any]:
    group = parsed.get(_GROUP)
    return group.as_dict() if isinstance(group, Namespace) else {}


def _parameters(plugin: type[Any]) -> Iterator[inspect.Parameter]:
    if plugin.__init__ is not nn.Module.__init__:
        yield from inspect.signature(plugin).parameters.values()


def _names(plugin: type[Any]) -> set[str]:
    return {parameter.name for parameter in _parameters(plugin)}


def _type_of(default: object) -> str:
    return type(default).__name__ if default not in (None, inspect.Parameter.empty) else "float"
