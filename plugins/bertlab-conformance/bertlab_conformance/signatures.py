"""Whether a class can be called as its contract says, found out before it is."""

import builtins
import inspect
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from inspect import Parameter, Signature
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from torchmetrics import Metric

from bertlab import MaskingUnit
from bertlab.api import (
    Adapter,
    CheckpointReader,
    Command,
    DataSource,
    Encoder,
    Head,
    NamedFormat,
    OptimizerRecipe,
    Schedule,
    TaskData,
    Tokenizer,
    TokenizerKind,
)
from bertlab.extend import (
    COMMON_OPTIMIZER_KEYS,
    PLUGGED_OPTIMIZER_KEYS,
    HuggingFaceForm,
    SequenceSampler,
)
from bertlab_conformance.loading import missing_methods

_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
# what a config can hold; where it is written and read again, a tuple is a list
_SCALARS = (str, int, float, NoneType)
_CONTAINERS = (list, dict, tuple, Mapping, Sequence)
# made by the core with more than settings, or with none
_GIVEN = (
    *(SequenceSampler, TaskData, Tokenizer),
    *(CheckpointReader, Command, HuggingFaceForm, MaskingUnit, NamedFormat),
)


def broken_signature(plugin: type, base: type) -> str | None:
    """Return what in a class does not fit its contract, or None.

    That is a method which is missing, or which cannot be called with the contract's arguments; and
    an argument of ``__init__`` without a name.
    """
    if (missing := missing_methods(plugin, base)) is not None:
        return missing
    for name, expected in contract_methods(base):
        own = getattr(plugin, name)
        static = inspect.getattr_static(plugin, name)
        # a callable object is called without the instance, too
        has_self = not isinstance(static, staticmethod | classmethod) and hasattr(static, "__get__")
        # inherited methods fit by themselves
        if own is not getattr(base, name) and not _can_stand_for(own, expected, has_self):
            return f"found {name}{_short(own)}, expected {name}{_short(expected)}"
    for parameter in () if issubclass(plugin, _GIVEN) else _settings(plugin):
        if parameter.kind not in _NAMED:
            return f"__init__ takes {parameter}; its arguments are config keys, each has a name"
    return None


def broken_settings(plugin: type) -> str | None:
    """Return which argument of ``__init__`` cannot be a key of a config, with its name, or None."""
    if issubclass(plugin, _GIVEN):
        return None
    hints, settings = _hints(plugin), _settings(plugin)
    if issubclass(plugin, Encoder) and "vocab_size" not in [each.name for each in settings]:
        return "__init__ does not take vocab_size, an int that the tokenizer gives"
    for parameter in settings:
        if parameter.name in taken_keys(plugin):
            return f"__init__ takes {parameter}, which is a key beside its settings; rename it"
        if parameter.annotation is Parameter.empty:
            return f"__init__: {parameter.name} has no type; annotate it: {parameter.name}: float"
        if not _is_plain(hints.get(parameter.name, Any)):
            return (
                f"__init__ takes {parameter}; a config key is a text, a number, a truth value, "
                "None, one of a Literal, or a list or dict of these"
            )
    return None


def wrong_attribute(plugin: type, base: type) -> tuple[str, str] | None:
    """Return which class attribute is not as its contract, ``base``, declares it, and what it is.

    The second is what it has to be. None if all are.
    """
    for each in filter(is_contract, base.__mro__):
        hints = get_type_hints(each, None, Names(vars(sys.modules[each.__module__])))
        for name in inspect.get_annotations(each):
            # uses_pooled: ClassVar[bool] of a contract, not the annotations of instances
            if not str(hints[name]).startswith("typing.ClassVar"):
                continue
            kind, value = (*get_args(hints[name]), Any)[0], getattr(plugin, name, None)
            # a head without columns reads nothing
            if not _is_of(value, kind) or (
                name == "columns" and issubclass(plugin, Head) and not value
            ):
                shown = "a tuple of Column(…)" if name == "columns" else _word(kind)
                return f"{name} is {value!r}", f"set {name}, a class attribute, to {shown}"
    return None


def taken_keys(plugin: type) -> set[str]:
    """Return the keys that stand in the section of the config beside a plugin's settings."""
    if issubclass(plugin, OptimizerRecipe):
        return {*COMMON_OPTIMIZER_KEYS, *PLUGGED_OPTIMIZER_KEYS}
    is_named = issubclass(plugin, Adapter | Encoder | Head | Schedule | TokenizerKind)
    return {"name"} if is_named else set()


def _hints(plugin: type) -> dict[str, Any]:
    """Return the types of the arguments of ``__init__``; none where they cannot be found."""
    try:
        return get_type_hints(inspect.getattr_static(plugin, "__init__"))
    except Exception:  # a name for type checkers only: jsonargparse will say so
        return {}


def _is_plain(hint: Any) -> bool:  # noqa: ANN401  a type form
    """Whether values of a type are as they were after a config was written and read."""
    hint = getattr(hint, "__supertype__", getattr(hint, "__value__", hint))  # NewType; type X = …
    origin = get_origin(hint)
    if hint in (Any, ...) or origin is Literal or is_typeddict(hint):
        return True
    if origin in (Union, UnionType) or origin in _CONTAINERS:
        return all(_is_plain(each) for each in get_args(hint))
    if hint in _CONTAINERS:
        return True
    # restricted numbers of jsonargparse are of these; an Enum of texts is not one of its texts
    return isinstance(hint, type) and issubclass(hint, _SCALARS) and not issubclass(hint, Enum)


def _settings(plugin: type) -> list[Parameter]:
    """Return the arguments of ``__init__``; none where it is a library's."""
    definition = next(each for each in plugin.__mro__ if "__init__" in vars(each))
    # nn.Module.__init__(*args, **kwargs) says nothing of settings; metrics of torchmetrics are
    # plugins as they are
    if is_library(definition):
        return []
    given = 2 if issubclass(plugin, DataSource) else 0  # name and argument
    settings = list(inspect.signature(plugin).parameters.values())[given:]
    # Metric.__init__(**kwargs), which metrics hand on
    handed_on = Parameter.VAR_KEYWORD if issubclass(plugin, Metric) else None
    return [each for each in settings if each.kind != handed_on]


def is_library(definition: type) -> bool:
    """Whether a class is one of torch or torchmetrics, which several packages may name."""
    return definition.__module__.split(".")[0] in ("torch", "torchmetrics")


class Unknown:
    """Stands in annotations for what is imported for type checkers only: any value is one."""

    def __class_getitem__(cls, _: object) -> type:
        return cls


class Names(dict[str, Any]):
    """What annotations name."""

    def __missing__(self, name: str) -> object:
        return getattr(builtins, name, Unknown)


def is_contract(base: type) -> bool:
    """Whether a class is bertlab's or of a package that is released with it."""
    return base.__module__.startswith(("bertlab.", "bertlab_"))


def contract_methods(base: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods that bertlab's contracts define."""
    for each in base.__mro__:
        if is_contract(each):
            for name, value in vars(each).items():
                if inspect.isfunction(value) and not name.startswith("_"):
                    yield name, value


def _can_stand_for(own: object, expected: object, has_self: bool) -> bool:
    """Whether all calls that suit ``expected``, a method, suit ``own``; that may have no self."""
    if not callable(own) or not callable(expected):
        return False
    wanted = list(inspect.signature(expected).parameters.values())[0 if has_self else 1 :]
    signature = inspect.signature(own)
    # contract f(self, a, b=1): the core calls f(x) and f(x, b=2). f(self, x, b=2) and
    # f(self, a, *, b=2, c=3) stand for it, f(self, a) and f(self, a, c) do not
    required = [p for p in wanted if p.default is Parameter.empty]
    return _binds(signature, len(required), ()) and _binds(
        signature, len(required), [p.name for p in wanted[len(required) :]]
    )


def _binds(signature: Signature, positional: int, named: "list[str] | tuple[()]") -> bool:
    try:
        signature.bind(*[None] * positional, **dict.fromkeys(named))
    except TypeError:
        return False
    return True


def _short(method: object) -> str:
    """Return the signature of a method without annotations."""
    if not callable(method):
        return f" = {method!r}"
    signature = inspect.signature(method)
    bare = [p.replace(annotation=Parameter.empty) for p in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=Signature.empty))


def _is_of(value: Any, kind: Any) -> bool:  # noqa: ANN401  a type form
    """Whether a class attribute is of its declared type; the strictest reading of it."""
    origin, members = get_origin(kind), get_args(kind)
    if kind in (Any, object, Unknown):
        fits = True
    elif origin is Literal:
        fits = value in members
    elif origin in (Union, UnionType):
        fits = any(_is_of(value, member) for member in members)
    elif origin is type:
        fits = isinstance(value, type) and issubclass(value, members[0])
    elif origin is Mapping:
        fits = isinstance(value, Mapping) and all(
            _is_of(each, member)
            for item in value.items()
            for each, member in zip(item, members, strict=True)
        )
    elif origin is tuple:
        if members[-1] is Ellipsis:  # tuple[str, ...]
            members = (members[0],) * len(value) if isinstance(value, tuple) else ()
        fits = isinstance(value, tuple) and len(value) == len(members)
        fits = fits and all(_is_of(v, m) for v, m in zip(value, members, strict=True))
    elif origin is not None:  # a Sequence, a frozenset
        fits = isinstance(value, origin) and not isinstance(value, str)
        fits = fits and all(_is_of(each, members[0]) for each in value)
    else:
        fits = isinstance(value, (int, float) if kind is float else kind)
    return fits


def _word(kind: Any) -> str:  # noqa: ANN401  a type form
    return kind.__name__ if isinstance(kind, type) and not get_args(kind) else str(kind)
