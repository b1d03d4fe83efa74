"""Whether a stranger's class keeps its contract: when it is loaded, and in each call.

What a method may return is read from the annotations of the contract. Something else would travel
on, and end far from whose it is: as an error of bertlab's, or as a wrong figure. So it is refused
where it is returned, with plugin, method, file and line.
"""

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import suppress
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints
from weakref import WeakKeyDictionary

import numpy as np
from torch import Tensor
from torchmetrics import Metric

from bertlab.api import (
    DataSource,
    Encoder,
    EncoderOutput,
    Features,
    Head,
    Objective,
    PackedBatch,
    PackedSequences,
    PluginError,
    Task,
    TaskLoss,
    TokenizerKind,
)
from bertlab.extend import Plugin, PluginCodeError
from bertlab_conformance.signatures import (
    Names,
    Unknown,
    broken_settings,
    broken_signature,
    contract_methods,
    is_contract,
    is_library,
    wrong_attribute,
)

_MARK = "_returns_are_checked"
_COLLECTIONS = (list, tuple, Sequence, Iterable, Iterator)
_INSPECTED = 8  # elements of a list
_SEGMENTS = 256  # the most, as a split keeps them
# whether a field is a number or an array, as the head's first rows have it
_FIELD_KINDS: WeakKeyDictionary[Head, dict[str, str]] = WeakKeyDictionary()
# their methods are called for each token, and most are the core's own
_UNWATCHED = ("data_module", "tokenizer_model")
Wrong = str | None  # what is wrong, in words


def check_class(plugin: Plugin, loaded: type, base: type) -> None:
    """Raise PluginError if a class does not fit its contract; let the calls of others be checked.

    Args:
        plugin: for messages.
        loaded: its class, whose methods of the contract are replaced.
        base: the class of the contract.
    """
    broken = broken_signature(loaded, base) or broken_settings(loaded)
    if broken is None and (wrong := wrong_attribute(loaded, base)) is not None:
        broken = "; ".join(wrong)
    if broken is not None:
        raise PluginError(f"{plugin}: {broken}")
    if plugin.kind in _UNWATCHED or is_library(loaded):
        return
    expected = {name: returned_type(method) for name, method in contract_methods(base)}
    if base is Metric:
        expected = {"compute": float | Mapping[str, float]}
    for name, returned in {**expected, "__init__": NoneType}.items():
        own = inspect.getattr_static(loaded, name)
        definition = next(each for each in loaded.__mro__ if name in vars(each))
        is_ours = is_contract(definition) or own is inspect.getattr_static(base, name)
        # replaced in this class alone: a parent's may return what its child makes more of
        if inspect.isfunction(own) and not is_ours and not hasattr(own, _MARK):
            setattr(loaded, name, _checked(plugin, loaded, name, returned))


def returned_type(method: Callable[..., object]) -> Any:  # noqa: ANN401  a type form
    """Return the annotation of what a method of the contract returns."""
    names = Names({**inspect.unwrap(method).__globals__, "Metric": Metric})
    return get_type_hints(method, None, names).get("return", object)


def _checked(plugin: Plugin, owner: type, name: str, expected: Any) -> Any:  # noqa: ANN401
    """Return a method that raises PluginCodeError where the owner's returns what is unexpected."""
    method: Any = inspect.getattr_static(owner, name)
    code = getattr(inspect.unwrap(method), "__code__", method.__code__)
    place = f"{code.co_filename}:{code.co_firstlineno}"
    of_name = (pair for pair in _FURTHER.items() if pair[0][1] == name)
    further = next((check for (base, _), check in of_name if issubclass(owner, base)), None)
    is_loss, signature = further is _wrong_loss, inspect.signature(method)

    @functools.wraps(method)
    def checked(self: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401  any method's
        before = _layers(self) if is_loss else None
        found = method(self, *arguments, **named)
        wrong = None
        if expected is not NoneType and (told := unlike(found, expected)) is not None:
            wrong = f"returned {told}, expected {_told_type(expected)}"
        elif further is not None and (name != "__init__" or type(self) is owner):
            given = signature.bind(self, *arguments, **named).args if named else (self, *arguments)
            wrong = further(self, found, *given[1:])
        if before is not None and _layers(self) != before:
            wrong = "makes a layer, which no optimiser trains; make it in build() or add_layers()"
        if wrong is not None:
            raise PluginCodeError(f"{plugin}: {name}() {wrong} ({place})")
        if inspect.isgenerator(found):
            return _each_checked(found, expected, f"{plugin}: {name}() yielded", place)
        return found

    setattr(checked, _MARK, True)
    return checked


def _each_checked(
    found: Iterator[Any],
    expected: Any,  # noqa: ANN401  a type form
    told: str,
    place: str,
) -> Iterator[Any]:
    """Yield what a generator yields; raise PluginCodeError where one is something unexpected."""
    members = get_args(expected)
    for each in found:
        if members and (wrong := unlike(each, members[0])) is not None:
            raise PluginCodeError(f"{told} {wrong}, expected {_told_type(members[0])} ({place})")
        yield each


def _layers(task: Task) -> int:
    return sum(1 for _ in task.parameters())


def _wrong_object(made: object, found: None, *_: object) -> Wrong:
    """Say whether ``__init__`` leaves out what the core reads of an object."""
    del found
    if isinstance(made, TokenizerKind):
        lost = inspect.signature(type(made)).parameters.keys() - made.settings().keys()
        told = f"keeps no attribute {min(lost, default='')}, the name of its argument"
        return f"{told}: settings() says by it what the cache has" if lost else None
    wanted: Iterable[str] = ()
    if isinstance(made, Encoder):
        wanted = (name for name in Encoder.__annotations__ if name != "activation")
    elif isinstance(made, DataSource):
        wanted = ("name", "argument")
    missing = [name for name in wanted if not hasattr(made, name)]
    return f"sets no {', '.join(missing)}; see the attributes of its contract" if missing else None


def _wrong_output(encoder: Encoder, found: EncoderOutput, batch: PackedBatch, *_: object) -> Wrong:
    """Say whether the hidden states are not those of the batch's tokens."""
    expected = (len(batch.input_ids), encoder.hidden_size)
    if tuple(found.tokens.shape) != expected:
        shape = tuple(found.tokens.shape)
        return f"returned tokens of shape {shape}, expected {expected}: those of the batch"
    layers = None if found.all_layers is None else len(found.all_layers)
    if layers not in (None, encoder.num_hidden_layers + 1):
        return f"returned {layers} all_layers, expected {encoder.num_hidden_layers + 1}"
    return None


def _wrong_layers(task: Task, found: None, *_: object) -> Wrong:
    """Say whether a layer has the name of a method, which is then called in its place."""
    del found
    for name in task._modules:
        if hasattr(type(task), name):
            return f"makes a layer called {name}, which is a name of the contract; rename it"
    return None


def _wrong_loss(task: Task, found: TaskLoss, *_: object) -> Wrong:
    """Say whether a loss is no sum over a number of predictions."""
    del task
    if not isinstance(found.sum, Tensor) or found.sum.dim():
        return f"returned a sum that is {_told(found.sum)}, expected a Tensor of shape ()"
    told = _no_number(found.count, int)
    return None if told is None else f"returned a count that is {told}, expected an int"


def _wrong_predictions(
    task: Task, found: Sequence[object], output: EncoderOutput, *_: object
) -> Wrong:
    """Say whether there is not one prediction for each sequence."""
    del task
    count = len(output.batch)
    if len(found) != count:
        return f"returned {len(found)} predictions for {count} sequences, expected one for each"
    return None


def _wrong_metrics(task: Task, found: Mapping[str, Metric], *_: object) -> Wrong:
    """Say whether a metric has the name of the loss."""
    del task
    return "returned a metric called loss, which each task has already" if "loss" in found else None


def _wrong_scores(head: Head, found: Mapping[str, float], *_: object) -> Wrong:
    """Say whether the scores have other names than those that were announced."""
    announced, names = sorted(head.score_names()), sorted(found)
    if announced == names:
        return None
    return f"returned {', '.join(names) or 'nothing'}, expected {announced} as score_names() says"


def _wrong_features(head: Head, found: Sequence[Features], *_: object) -> Wrong:
    """Say whether a field is neither a number nor an array of numbers, or once this, once that."""
    kinds = _FIELD_KINDS.setdefault(head, {})
    fields: list[tuple[str, object]] = [each for one in found for each in one.fields.items()]
    for name, value in fields:
        told = f"returned Features whose field {name!r} is"
        if isinstance(value, Tensor) or (array := np.asarray(value)).dtype.kind not in "biuf":
            return f"{told} {_told(value)}, expected a number or NumPy's array of numbers"
        kind = "an array" if array.ndim else "a number"
        if kinds.setdefault(name, kind) != kind:
            return f"{told} {kind}, and {kinds[name]} of rows before; expected the same of all"
    segments = {segment for one in found for segment in one.token_type_ids}
    if segments and not 0 <= min(segments) <= max(segments) < _SEGMENTS:
        told = f"token_type_ids from {min(segments)} to {max(segments)}"
        return f"returned Features with {told}, expected 0 of text A, 1 of text B"
    return None


def _wrong_fields(
    objective: Objective, found: int, sequences: PackedSequences, *_: object
) -> Wrong:
    """Say whether a field is no array of numbers."""
    del objective, found
    for name, values in sequences.fields.items():
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            of = f"of {values.dtype}" if isinstance(values, np.ndarray) else _told(values)
            return f"wrote the field {name!r}, {of}, expected an array of numbers"
    return None


# what annotations do not say, by contract and method
_FURTHER: dict[tuple[type, str], Callable[..., Wrong]] = {
    (object, "__init__"): _wrong_object,
    (Task, "build"): _wrong_layers,
    (Head, "add_layers"): _wrong_layers,
    (Head, "encode"): _wrong_features,
    (Encoder, "forward"): _wrong_output,
    (Task, "loss"): _wrong_loss,
    (Task, "decode"): _wrong_predictions,
    (Task, "metrics"): _wrong_metrics,
    (Head, "score"): _wrong_scores,
    (Objective, "prepare"): _wrong_fields,
}


def unlike(found: Any, expected: Any) -> Wrong:  # noqa: ANN401  of any type; a type form
    """Return what is not as an annotation says, in words; None if all is.

    Numbers of NumPy and torch are numbers. Of lists and tuples the first elements are looked at, of
    mappings all values; what is read once, such as a generator, is not read.
    """
    members = get_args(expected)
    kind = get_origin(expected) or expected
    wrong: Wrong = None
    if kind in (Union, UnionType):
        each_wrong = [unlike(found, each) for each in members]
        wrong = None if None in each_wrong else each_wrong[0]
    elif kind in (int, float):
        wrong = _no_number(found, kind)
    elif kind in (Any, object, Unknown) or not isinstance(kind, type):  # or a variable
        pass
    elif issubclass(kind, Mapping) and hasattr(found, "items"):  # also torchmetrics' collections
        wrong = _first_unlike(found.items(), members[1:], "{key!r}: {told}")
    elif kind in _COLLECTIONS:
        # a generator has no length, and is read once
        is_lasting = kind not in (list, tuple, Sequence) or isinstance(found, Sized)
        if isinstance(found, str | Mapping) or not isinstance(found, Iterable) or not is_lasting:
            wrong = _told(found)
        elif isinstance(found, list | tuple) and kind is not tuple:  # whose elements differ
            first = enumerate(found[:_INSPECTED])
            wrong = _first_unlike(first, members, "a list with {told}")
    elif not isinstance(found, kind):
        wrong = _told(found)
    return wrong


def _first_unlike(pairs: Iterable[tuple[Any, Any]], members: tuple[Any, ...], words: str) -> Wrong:
    """Return the first element that is of another type than the one in ``members``, in words."""
    for key, each in pairs:
        if members and (told := unlike(each, members[0])) is not None:
            return words.format(key=key, told=told)
    return None


def _no_number(found: Any, kind: type) -> Wrong:  # noqa: ANN401
    """Return what is no number, in words; one element of an array or a tensor is one."""
    with suppress(TypeError, ValueError, RuntimeError, OverflowError):
        number = float(found)  # of a text, too: "0.5"
        # 8.0 of NumPy is a whole number
        if not isinstance(found, str | bytes) and (kind is float or number == int(number)):
            return None
    return _told(found)


def _told(found: object) -> str:
    """Return a value in words: ``None``, ``a Tensor of shape (2, 3)``, ``'x'``."""
    if isinstance(found, Tensor | np.ndarray):
        return f"a {type(found).__name__} of shape {tuple(found.shape)}"
    plain = found is None or isinstance(found, str | int | float)
    return repr(found)[:80] if plain else f"a {type(found).__name__}"


def _told_type(expected: Any) -> str:  # noqa: ANN401  a type form
    """Return an annotation as it is written: ``list[dict[str, Any]]``, without modules."""
    return re.sub(r"(?:\w+\.)+(\w)", r"\1", inspect.formatannotation(expected))
