"""Checks of a class: methods and attributes of its contract, arguments as config keys."""

import importlib
import inspect
from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

import yaml
from jsonargparse import ArgumentParser, Namespace
from torch import nn

from bertlab.api import DataSource
from bertlab.extend import GROUPS, SPECIAL_TOKENS, Kind, listed
from bertlab_conformance.cases import Case, SourceCase, bases
from bertlab_conformance.check import (
    ALL_KINDS,
    CONFIG_KINDS,
    TASK_KINDS,
    ConformanceFailure,
    NotApplicable,
    check,
)
from bertlab_conformance.comparisons import difference, not_json
from bertlab_conformance.signatures import broken_signature, wrong_attribute
from bertlab_conformance.task_cases import EncoderCase, TaskCase


@check(*ALL_KINDS)
def is_complete(case: Case) -> None:
    """Every abstract method of its base class is implemented."""
    missing = sorted(getattr(case.plugin, "__abstractmethods__", ()))
    if missing:
        raise ConformanceFailure(
            f"{case.plugin.__name__} does not define {', '.join(missing)}",
            "define what is missing; its docstring in the base class says what it does",
        )


@check(*ALL_KINDS, after=("is_complete", "arguments_have_names"))
def methods_take_what_they_are_given(case: Case) -> None:
    """The methods of the contract can be called as the core calls them."""
    _, base = _kind(case.plugin)
    broken = broken_signature(case.plugin, base)
    if broken:
        raise ConformanceFailure(
            broken, "define the method with the contract's arguments, in their order"
        )


@check(*ALL_KINDS, "name", "hooks")
def has_a_summary(case: Case) -> None:
    """The class, function or module of hooks has a docstring, whose first line help shows."""
    first = (case.plugin.__doc__ or "").strip().splitlines()[:1]
    if not first or not first[0].strip():
        raise ConformanceFailure(
            f"{case.plugin.__name__} has no docstring",
            'say in a line what it does: class … : """Predict …."""',
        )


@check(*ALL_KINDS)
def can_be_imported_by_name(case: Case) -> None:
    """An entry point and a data worker can find the class by its module and name."""
    plugin = case.plugin
    module = importlib.import_module(plugin.__module__)
    # caught: a class that a function or a decorator makes; its qualname has <locals> in it
    if getattr(module, plugin.__qualname__, None) is not plugin:
        raise ConformanceFailure(
            f"{plugin.__module__} has no {plugin.__qualname__} that is this class",
            "define it at the top level of its module and do not rename it there",
        )


@check(*ALL_KINDS, after=("can_be_imported_by_name",))
def entry_point_names_it(case: Case) -> None:
    """If its package is installed, one of the package's entry points names the class."""
    plugin = case.plugin
    kind, _ = _kind(plugin)
    package = plugin.__module__.partition(".")[0]
    of_package = [
        each
        for every in GROUPS
        for each in listed(every)
        if each.target.partition(":")[0].partition(".")[0] == package
    ]
    if not of_package:
        raise NotApplicable(f"no installed package has entry points of {package}")
    beside = [each for each in of_package if each.kind == kind]
    if kind == "metric" and not beside:
        raise NotApplicable("tasks of the package use its metrics without an entry point")
    if any(_named(each.target) is plugin for each in beside):
        return
    if kind == "huggingface_form" and plugin.extends is None:
        raise NotApplicable("a form of an encoder's own has no entry point: the encoder names it")
    found = ", ".join(f"{each.name} = {each.target}" for each in beside) or "none of this kind"
    raise ConformanceFailure(
        f"no entry point of {package} names {plugin.__qualname__} (there is {found})",
        f'write NAME = "{plugin.__module__}:{plugin.__qualname__}" into pyproject.toml, under '
        f'[project.entry-points."{GROUPS[kind]}"], and install the package again',
    )


def _named(target: str) -> object:
    """Return what ``module:Class`` names; None if there is no such thing."""
    module, _, name = target.partition(":")
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


@check(*ALL_KINDS)
def names_are_those_of_the_contract(case: Case) -> None:
    """No attribute or method looks like a misspelt one of the contract."""
    _, base = _kind(case.plugin)
    known = [name for name in _contract_names(base) if not name.startswith("_")]
    for name, value in vars(case.plugin).items():
        if name.startswith("_") or name in known or not _is_setting_or_method(value):
            continue
        alike = [
            other for other in known if callable(getattr(base, other, None)) == callable(value)
        ]
        # use_pooled -> uses_pooled, derive_metrics -> derived_metrics
        meant = get_close_matches(name, alike, n=1, cutoff=0.85)
        if meant:
            raise ConformanceFailure(
                f"{name} is not part of the contract, and nothing reads it; {meant[0]} is",
                f"rename it to {meant[0]}, or give it a name that is less alike",
            )


@check(*TASK_KINDS)
def class_attributes_have_their_types(case: TaskCase) -> None:
    """What the class declares, such as ``uses_pooled``, is of the declared type."""
    _, base = _kind(case.plugin)
    if (wrong := wrong_attribute(case.plugin, base)) is not None:
        raise ConformanceFailure(*wrong)


@check(*TASK_KINDS, after=("class_attributes_have_their_types",))
def special_tokens_can_be_added(case: TaskCase) -> None:
    """``special_tokens`` differ, have no spaces, and none has a role of its own already."""
    tokens = case.plugin.special_tokens
    wrong = [each for each in tokens if each.split() != [each] or each in SPECIAL_TOKENS]
    wrong += [each for each in set(tokens) if tokens.count(each) > 1]
    if wrong:
        raise ConformanceFailure(
            f"special_tokens has {wrong[0]!r}",
            "name each once, without spaces, in brackets that no text has: '[E1]'; [MASK] and the "
            "others of BERT are there: requires_mask, tokenizer.cls_id",
        )


@check("head", after=("class_attributes_have_their_types",))
def columns_are_declared(case: TaskCase) -> None:
    """``columns`` has different names and a truth, and ``splits_by`` is one of them."""
    names = [column.name for column in case.plugin.columns]
    if len(set(names)) < len(names):
        raise ConformanceFailure(f"columns are called {names}", "give every column its own name")
    if not any(column.is_truth for column in case.plugin.columns):
        raise ConformanceFailure(
            f"none of the columns {names} is the truth",
            "mark what is to be predicted: Column(…, is_truth=True)",
        )
    splits_by = case.plugin.splits_by
    if splits_by is not None and splits_by not in names:
        raise ConformanceFailure(
            f"splits_by is {splits_by!r}, which is none of the columns {names}",
            "name a column, or None for the first",
        )


@check("encoder")
def vocab_size_is_its_first_argument(case: EncoderCase) -> None:
    """``vocab_size`` comes first, without a default: the tokenizer gives it."""
    parameters = [*inspect.signature(case.plugin).parameters.values()]
    if not parameters or parameters[0].name != "vocab_size":
        names = [parameter.name for parameter in parameters]
        raise ConformanceFailure(
            f"the arguments of __init__ are {names}",
            "begin with vocab_size: int, which is linked to the tokenizer",
        )


def _kind(plugin: type[Any]) -> tuple[Kind, type[Any]]:
    return next((kind, base) for kind, base in bases() if issubclass(plugin, base))


def _contract_names(base: type[Any]) -> set[str]:
    classes = [each for each in base.__mro__ if each.__module__.startswith(("bertlab.", "torchme"))]
    return {name for each in classes for name in [*vars(each), *each.__annotations__]}


def _is_setting_or_method(value: object) -> bool:
    return inspect.isfunction(value) or isinstance(value, bool | tuple | str | type(None))


_GROUP = "plugin"
_LINKED = {"vocab_size"}  # given by the tokenizer, not by the config


@check(*CONFIG_KINDS, "source", after=("is_complete",))
def arguments_have_names(case: Case) -> None:
    """``__init__`` has neither ``*args`` nor ``**kwargs`` nor positional-only arguments."""
    for parameter in _parameters(case.plugin):
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConformanceFailure(
                f"__init__{inspect.signature(case.plugin)} has {parameter}",
                "name every argument; only a name can be a config key",
            )


@check(*CONFIG_KINDS, "source", after=("arguments_have_names",))
def arguments_have_types(case: Case) -> None:
    """Every argument of ``__init__`` has a type, so that a config's value can be checked."""
    for parameter in _parameters(case.plugin):
        if parameter.annotation is parameter.empty:
            raise ConformanceFailure(
                f"__init__: {parameter.name} has no type",
                f"annotate it, for example {parameter.name}: {_type_of(parameter.default)}",
            )


@check(*CONFIG_KINDS, "source", after=("arguments_have_names",))
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


@check(*CONFIG_KINDS, "source", after=("arguments_have_names",))
def defaults_do_not_change(case: Case) -> None:
    """No default is a list, dict or set, which all objects would share."""
    for parameter in _parameters(case.plugin):
        if isinstance(parameter.default, list | dict | set):
            raise ConformanceFailure(
                f"__init__: the default of {parameter.name} is {parameter.default!r}",
                "take a tuple, or None and make it inside",
            )


@check(*CONFIG_KINDS, "source", after=("arguments_have_types",))
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


@check(*CONFIG_KINDS, "source", after=("arguments_have_types", "arguments_have_defaults"))
def config_comes_back(case: Case) -> None:
    """Arguments written to a config and read again are the same plain data and still work."""
    parser = _parser(case)
    given = case.settings if isinstance(case, SourceCase) else dict(case.options.arguments)
    given = {key: value for key, value in given.items() if key not in _LINKED}
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
    first_two = ("conformance", "") if isinstance(case, SourceCase) else ()
    case.plugin(*first_two, **linked, **arguments)


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
    skip = _LINKED | ({"name", "argument"} if isinstance(case, SourceCase) else set())
    parser.add_class_arguments(case.plugin, _GROUP, instantiate=False, skip=skip)
    return parser


def _plain(parsed: Namespace) -> dict[str, Any]:
    group = parsed.get(_GROUP)
    return group.as_dict() if isinstance(group, Namespace) else {}


def _parameters(plugin: type[Any]) -> Iterator[inspect.Parameter]:
    # nn.Module.__init__ has *args and **kwargs, which are no settings
    if plugin.__init__ is not nn.Module.__init__:
        given = 2 if issubclass(plugin, DataSource) else 0  # name and argument
        yield from list(inspect.signature(plugin).parameters.values())[given:]


def _names(plugin: type[Any]) -> set[str]:
    return {parameter.name for parameter in _parameters(plugin)}


def _type_of(default: object) -> str:
    return type(default).__name__ if default not in (None, inspect.Parameter.empty) else "float"
