"""What jsonargparse refuses, in one line with the nearest valid key or value."""

import importlib
import inspect
import json
import re
from argparse import Action
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

import yaml
from jsonargparse import ArgumentError, ArgumentParser, Namespace, set_loader
from jsonargparse.typing import register_type

from bertlab.config.yaml_files import (
    check_numbers,
    check_texts,
    first_no_yaml,
    join_negative,
    keys_of,
    load_argument,
    names_below,
    nulls,
    split_arguments,
    value_at,
)
from bertlab.errors import BertlabError, ConfigError, nearest, told, told_with_place
from bertlab.plugins.index import missing_package

# what an argument may say is what a config file may: the same bounds, tags and numbers
set_loader("yaml", load_argument, exceptions=(yaml.YAMLError,))
# "01:02:03:04", days first, as Lightning has it; "2:03:04" and "1 day, 2:03:04", as Python has it
_TIME = re.compile(r"((?P<days>\d+)( days?, |:))?(?P<hours>\d+):(?P<minutes>\d+):(?P<seconds>\d+)")


def _time(found: object) -> timedelta:
    """Return the time of a text or of a mapping; jsonargparse takes 00:01:30:00 for 90 s."""
    if match := _TIME.fullmatch(str(found)):
        found = {unit: int(number) for unit, number in match.groupdict("0").items()}
    time = timedelta(**found) if isinstance(found, dict) else timedelta(0)
    if time < timedelta(seconds=1) or time.microseconds:
        raise ValueError("expected a time of whole seconds")
    return time


def _time_text(time: timedelta) -> str:
    return f"{time.days:02}:{timedelta(seconds=time.seconds)!s:0>8}"  # 00:01:30:00


register_type(timedelta, _time_text, _time, (ValueError, TypeError, OverflowError))
Match = re.Match[str]
_MAX_SHOWN = 80
_MAPPING = "a mapping"
# of the values that jsonargparse shows: {'class_path': 'a.b.Class'}, and a path as it is
_PATH = re.compile(r"class_path'?: '?((?:[A-Za-z_]\w*\.)+[A-Za-z_]\w*)")


def parse_arguments(parser: ArgumentParser, argv: Sequence[str]) -> Namespace:
    """Parse command-line arguments; none may be abbreviated.

    Raises:
        ConfigError: one line that names the argument, what was found and what was expected.
    """
    parser.allow_abbrev = False  # a misspelt key is no abbreviation
    given = [(key.lstrip("-"), value) for key, value, _ in split_arguments(argv)]
    for key, value in given:
        check_texts(value, key)
    try:
        parsed: Namespace = parser.parse_args(join_negative(argv))
    except BertlabError:
        raise
    except Exception as error:
        raise refusal(error, parser, given, "arguments") from error
    check_numbers(parsed.as_dict(), "")
    for action in nulls(parsed, parser):
        refuse_null(action)
    return parsed


def refusal(
    error: Exception,
    parser: ArgumentParser,
    given: Iterable[tuple[str, object]],
    source: str,
    content: Mapping[str, Any] | None = None,
    place: Callable[[str], str] = lambda _: "",
) -> ConfigError:
    """Return what jsonargparse refuses, in one line with its place."""
    # else PyYAML's and others', of values such as "!!timestamp x"
    if isinstance(error, ArgumentError):
        key = re.match(r'Parser key "([^"]+)"', str(error))
        return ConfigError(f"{place(key[1] if key else '')}{explain(str(error), parser, content)}")
    return ConfigError(f"{first_no_yaml(given) or source}: {told(error)}")


def explain(message: str, parser: ArgumentParser, content: Mapping[str, Any] | None = None) -> str:
    """Return jsonargparse's message as one line, with the nearest valid key where it helps."""
    for pattern, answer in _ANSWERS:
        if found := re.match(pattern, message, re.DOTALL):
            if answer is _explain_value and (inside := _inside(found[1], parser, content)):
                return inside
            return answer(found, parser)
    return " ".join(message.split())


def _inside(key: str, parser: ArgumentParser, content: Mapping[str, Any] | None) -> str:
    """Explain a key below a plain value: ``--data.corpus.sources x``; empty if it is none."""
    hint, value = _hint(key, parser), value_at(content, key)
    if hint is None or not isinstance(value, Mapping):
        return ""
    takes = (_MAPPING, _WORDS[timedelta])
    if any(_classes(each) or _word(each) in takes for each in _members(hint)):
        return ""
    inner = value.get("init_args") if set(value) == {"class_path", "init_args"} else value
    below = first_leaf("", inner).lstrip(".")
    return f"{key}: found the key {below!r} below it, expected {describe(hint)}" if below else ""


def _explain_unrecognized(found: Match, parser: ArgumentParser) -> str:
    token = found[1].split(maxsplit=1)[0]  # --trainer.max_step=3
    if not re.match(r"--\w", token):
        return f"found {token!r} on its own, expected --KEY VALUE (a list: --KEY '[a, b]')"
    return explain_unknown_key(token.removeprefix("--").split("=")[0], parser)


def _explain_required(found: Match, parser: ArgumentParser) -> str:
    typed = {each.dest: each.option_strings for each in parser._actions}
    # as they are typed: --key, or KEY if it goes by its position
    missing = (str(next(iter(typed.get(key, ())), key.upper())) for key in found[1].split(", "))
    return f"missing: {', '.join(missing)}"


def _explain_value(found: Match, parser: ArgumentParser) -> str:
    """Say what was found for a known key and what is expected."""
    key, details = found.groups()
    # --model.encoder.hidden_size.x=3: "… Given value: NestedArg(key='x', val='3')"
    hint = _hint(key, parser)
    below = re.search(r"NestedArg\(key='([^']*)'", details)
    if below:
        return f"{key}: found the key {below[1]!r} below it, expected {describe(hint)}"
    # "Expected a <class 'int'>. Got value: x"; of a union "Given value: x" is the last line
    given = re.findall(r"(?:Got value|Given value): ?(.*)", details)
    if not given or hint is None:
        return f"{key}: {' '.join(details.split())}"
    problem = explain_class(details, hint)
    if not problem and any(_classes(member) for member in _members(hint)):
        reasons = map(_why_not, dict.fromkeys(_PATH.findall(details)))
        problem = next(filter(None, reasons), "")
    if not problem:
        problem = f"found {show(given[-1])}, expected {describe(hint)}"
        problem += nearest_choice(given[-1], hint)
    return f"{key}: {problem}"


def show(text: str) -> str:
    """Return a value as it was given: numbers, lists and null bare, words in quotes."""
    if text == "None":
        return "null"
    shown = text if len(text) <= _MAX_SHOWN else f"{text[: _MAX_SHOWN - 1]}…"
    # bare: -3.5, [1, 2], {a: 1}, True; in quotes: 'word'
    return shown if re.fullmatch(r"-?[\d.]+|[\[{].*|True|False", shown) else repr(shown)


def first_leaf(key: str, value: object) -> str:
    """Return the dotted key of the first value at a key or below it."""
    # model, {"hed": {"name": "span"}} -> model.hed.name
    while isinstance(value, Mapping) and value:
        name, value = next(iter(value.items()))
        key = f"{key}.{name}"
    return key


def refuse_null(action: Action, where: str = "") -> None:
    """Refuse null where a value is needed; jsonargparse takes it for 'not given'."""
    hint = getattr(action, "_typehint", None) or action.type
    if hint is not None and not takes_null(hint):
        raise ConfigError(f"{where}{action.dest}: found null, expected {describe(hint)}")


def _hint(key: str, parser: ArgumentParser) -> Any:  # noqa: ANN401  a type, or a form of one
    """Return the type of an argument's value; None if it is not known."""
    found = (each for each in parser._actions if each.dest == key)
    return next((getattr(each, "_typehint", None) or each.type for each in found), None)


# beginnings of jsonargparse's messages, and what to say instead
_ANSWERS: list[tuple[str, Callable[[Match, ArgumentParser], str]]] = [
    (r"unrecognized arguments: (.*)", _explain_unrecognized),
    (
        r"Group '([^']+)' does not accept option '([^']+)'",
        lambda found, parser: explain_unknown_key(f"{found[1]}.{found[2]}", parser),
    ),
    (
        r"Option '([^']+)' is not accepted",
        lambda found, parser: explain_unknown_key(found[1], parser),
    ),
    (
        r"argument (\S+): expected (?:one|at least one) argument",
        lambda found, _: f"{found[1].split('/')[0]}: expected a value after it",
    ),
    (r"the following arguments are required: (.*)", _explain_required),
    (r'Parser key "([^"]+)":(.*)', _explain_value),
]


TypeForm = Any  # a class, or a form such as ``int | None`` or ``Literal["a", "b"]``
_WORDS: dict[TypeForm, str] = {
    **{bool: "true or false", int: "a whole number", float: "a number"},
    **{str: "a text", NoneType: "null", Path: "a path"},
    timedelta: "a time such as {hours: 8, minutes: 30} or 00:08:30:00 (days first)",
}


def describe(hint: TypeForm) -> str:
    """Return what values a type takes, for example ``a whole number or null``."""
    members = list(_members(hint))
    literals = [repr(choice) for member in members for choice in _choices(member)]
    # int | list[int] | None -> "a whole number or a list of whole numbers or null"
    words = [f"one of {', '.join(literals)}"] if literals else []
    words += [_word(member) for member in members if _origin(member) is not Literal]
    return " or ".join(dict.fromkeys(words))


def nearest_choice(found: str, hint: TypeForm) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest literal of a type, or an empty string."""
    literals = [str(choice) for member in _members(hint) for choice in _choices(member)]
    elsewhere = OTHER_VALUES.get(found.lower())
    return nearest(elsewhere if elsewhere in literals else found, literals)


def takes_null(hint: TypeForm) -> bool:
    """Whether None is among the values of a type."""
    return hint is Any or any(member in (Any, NoneType) for member in _members(hint))


def explain_class(details: str, hint: TypeForm) -> str:
    """Explain jsonargparse's refusal of a class that a config names; empty if it is not that."""
    argument = re.search(r"given class_path '([^']+)':\s*Option '([^']+)' is not accepted", details)
    if argument:
        module, _, name = argument[1].rpartition(".")
        arguments = inspect.signature(getattr(importlib.import_module(module), name)).parameters
        return f"{argument[1]} has no argument {argument[2]!r}{nearest(argument[2], arguments)}"
    lacks = re.search(
        r"given class_path '([^']+)':\s*the following arguments are required: ([\w, ]+)", details
    )
    if lacks:
        given = ", ".join(f"{each}: …" for each in lacks[2].split(", "))
        return (
            f"{lacks[1]} needs {lacks[2]}, as in {{class_path: {lacks[1].rpartition('.')[2]}, "
            f"init_args: {{{given}}}}}"
        )
    unknown = re.search(r"Expected a dot import path string: (.*)", details)
    bases = [base for member in _members(hint) for base in _classes(member)]
    if unknown and bases:
        names = [each.__name__ for base in bases for each in _subclasses(base)]
        names += [str(choice) for member in _members(hint) for choice in _choices(member)]
        kind = " or ".join(dict.fromkeys(base.__name__ for base in bases))
        return (
            f"found no {kind} class called {unknown[1]!r}{nearest(unknown[1], names)} "
            "(expected class_path: its name or dotted path)"
        )
    return ""


def _why_not(path: str) -> str:
    """Return why a class is not there; empty if it is."""
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # whatever a stranger's module raises
        return f"{path} cannot be imported: {told_with_place(error)}"
    if not hasattr(module, name):
        classes = [each for each, found in vars(module).items() if inspect.isclass(found)]
        return f"{module_name} has no class {name!r}{nearest(name, classes)}"
    return ""


def _members(hint: TypeForm) -> Iterator[TypeForm]:
    """Yield the alternatives of a union; any other type itself."""
    if _origin(hint) in (Union, UnionType):
        for member in get_args(hint):
            yield from _members(member)
    else:
        yield hint


def _origin(form: TypeForm) -> TypeForm:  # get_origin() to mypy is a ParamSpec or None
    return get_origin(form)


def _choices(member: TypeForm) -> tuple[Any, ...]:
    return get_args(member) if _origin(member) is Literal else ()


def _word(member: TypeForm) -> str:
    if member in _WORDS:
        return _WORDS[member]
    arguments = [each for each in get_args(member) if each is not Ellipsis]
    origin = _origin(member)
    if is_typeddict(member):
        return f"a mapping of {', '.join(get_type_hints(member))}"
    if origin is tuple:
        return f"a list [{', '.join(describe(each).removeprefix('a ') for each in arguments)}]"
    if origin is dict or member is dict:
        return _MAPPING
    if arguments:
        return f"a list of {describe(arguments[0]).removeprefix('a ')}s"
    return f"a {getattr(member, '__name__', str(member))}"


def _classes(member: TypeForm) -> list[type]:
    """Return the classes that a config may name for a type, or for the items of a list."""
    inner: list[TypeForm] = [member, *get_args(member)]
    classes = (each for each in inner if isinstance(each, type) and each not in _WORDS)
    return [each for each in classes if _origin(each) is None and each.__module__ != "builtins"]


def _subclasses(base: type) -> Iterator[type]:
    subclasses: list[type] = base.__subclasses__()
    for each in subclasses:
        yield each
        yield from _subclasses(each)


_MAX_LISTED = 10
# what keys and values are called in the Trainer and the scripts of transformers, and in papers
_OTHERS: dict[str, dict[str, str]]
_OTHERS = json.loads(Path(__file__).with_name("other_names.json").read_text("utf-8"))
OTHER_NAMES, OTHER_VALUES = _OTHERS["keys"], _OTHERS["trainer.precision"]
OTHER_COMMANDS = _OTHERS["commands"]
# keys of data that only labelled rows, or only a text, have, and a name of what stands in order
_OF_ROWS = {"columns", "format", "label_names", "source", "test", "train", "validation"}
_OF_TEXT = {"corpus", "corpus_format", "lowercase", "text_column", "vocab_size"}
_OF_MODELS = {"checkpoint", "ckpt_path", "init_from", "model", "run"}


def explain_unknown_key(key: str, parser: ArgumentParser) -> str:
    """Say that a key is unknown, and which one may have been meant."""
    known = keys_of(parser)
    if names_below(key, known):
        return f"{key}: is a section, expected a key in it, as in --{key}.KEY VALUE"
    places = [each.dest for each in parser._actions if not each.option_strings]
    if key in places:
        return f"{key}: is given without --{key}, in this order: {' '.join(places)}"
    section, _, name = key.rpartition(".")
    rows = name in _OF_ROWS
    if section == "data" and (rows or name in _OF_TEXT) and rows == ("data.corpus" in known):
        kind = "labelled rows, which a head learns" if rows else "text, which objectives learn"
        missing = "model.head" if rows else "model.objectives"
        return f"{key}: is a key of {kind} from, expected {missing}; see bertlab init"
    top = key.partition(".")[0]
    if (package := missing_package(top)) is not None:
        return f"{top}: comes with {package}: pip install {package}"
    return f"{key}: no such key{_where_instead(key, known, places)}"


def _where_instead(key: str, known: set[str], places: list[str]) -> str:
    section = key.rpartition(".")[0]
    if places and key in _OF_MODELS:
        return f"; expected without a key, in this order: {' '.join(places)}"
    meant = _meant(key, known)
    if "." in meant and meant in OTHER_NAMES.values() and meant not in known:
        return f"; here it is {meant!r}, which this run does not have"
    if meant:
        return f"; did you mean {meant!r}?"
    siblings = names_below(section, known) if section else set()
    if 0 < len(siblings) <= _MAX_LISTED:
        return f", expected one of {', '.join(sorted(siblings))}"
    return "; see --help"


def _meant(key: str, known: set[str]) -> str:
    """Return the known key that ``key`` most likely stands for, or an empty string."""
    section, _, name = key.rpartition(".")
    elsewhere = OTHER_NAMES.get(name.replace("-", "_"), "")
    if elsewhere in known or (elsewhere and "trainer.precision" in known):
        return elsewhere
    # trainer.max_step: misspelt; model.hidden_size and learning_rate: the section is left out
    names = {each.rpartition(".")[2] for each in known}
    inside = {f"{top}.{name}" for top in names_below("", known)}  # objectives, optimizer
    if not section and (part := next((each for each in inside if names_below(each, known)), "")):
        return part
    # trainer.learning_rate is no trainer.overfit_batches misspelt
    near = _closest(name, names_below(section, known), 0.5) if section and name not in names else ""
    if near:  # the name is misspelt
        return f"{section}.{near}"
    name = name if name in names else _closest(name, names, 0.75)
    # the section is misspelt, wrong or left out
    found = _closest(key, {each for each in known if each.rpartition(".")[2] == name}, 0.0)
    if not found and section in ("objectives", "heads"):
        return f"model.{key}"
    return found if found or section else _closest(key, names_below("", known), 0.6)


def _closest(word: str, choices: set[str], cutoff: float) -> str:
    matches = get_close_matches(word, sorted(choices), n=1, cutoff=cutoff)
    return matches[0] if matches else ""
