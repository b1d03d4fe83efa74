"""Mistakes in the arguments of a command, told before PyTorch is imported.

Which keys there are, and of what type, is known once the classes of all named plugins are imported,
which takes seconds. The first command with some plugins therefore keeps the keys of its parser in
the cache, and later ones compare with these first: ``fit`` its config, ``validate``, ``test`` and
``predict`` their arguments. What passes is parsed as ever.

A record is used only where its plugins, the installed packages, and all files of bertlab and of
plugins that the parser was made with are the same, so it refuses what the parser would.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from hashlib import sha256
from importlib.metadata import EntryPoint
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Any,
    Literal,
    TypedDict,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from jsonargparse import ArgumentParser
from jsonargparse.typing import (
    ClosedUnitInterval,
    NonNegativeFloat,
    NonNegativeInt,
    OpenUnitInterval,
    PositiveFloat,
    PositiveInt,
)

from bertlab import BertlabError
from bertlab.api import Column
from bertlab.extend import (
    COMMON,
    GROUPS,
    PLUGIN_SECTIONS,
    Config,
    Request,
    default_cache_dir,
    entry_points_of,
    installed,
    keys_of,
    listed,
    load_class,
    make_folder,
    name_of_hooks,
    names_below,
    parse_config,
    read_json,
    version_of,
    write_json,
)

_LARGEST = 2**20  # bytes of a record
_RANGES = (
    *(PositiveInt, NonNegativeInt, PositiveFloat, NonNegativeFloat),
    *(ClosedUnitInterval, OpenUnitInterval),
)
_CLASSES = (bool, int, float, str, list, dict, NoneType, timedelta, Path, *_RANGES)
_PLAIN: dict[str, Any] = {"anything": Any, **{each.__name__: each for each in _CLASSES}}
_JOINED: dict[Any, str] = {
    Union: "union",
    UnionType: "union",
    list: "list",
    tuple: "tuple",
    dict: "dict",
}
_ANY = "any"
_SHARED = ("model", "data", "trainer", "seed", "seed_everything")  # sections of every command
_COMMANDS = ("fit", "validate", "test", "predict")
# what objectives read of new rows
_TEXTS = (Column("text"), Column("text_pair", required=False))
Form = Any  # a type as JSON: "int", ["list", "int"], ["union", "int", "NoneType"], "any"


def check_plugin_names(request: Request) -> None:
    """Raise BertlabError for a plugin that is not installed, saying which one may be meant."""
    plugins = _plugins(request) | {"head": [*request.head_sections.values()]}
    for kind, names in plugins.items():
        for name in names:
            if name not in installed(kind) and kind != "optimizer":  # those of torch.optim
                load_class(kind, name, object)


@dataclass(frozen=True)
class Record:
    """What an earlier command with some plugins has left.

    Attributes:
        types: of each key as JSON.
        columns: that each head reads of rows, by its name; of a single head, or of objectives,
            under an empty name; None of a head that may choose them.
    """

    types: dict[str, Form]
    columns: dict[str, list[Column] | None]


def check_known_keys(request: Request, command: str = "fit") -> Record | None:
    """Refuse what the parser of a command would, if its record is there; return that.

    Raises:
        BertlabError: an unknown key, or a value of another type.
    """
    record = read_record(request, command)
    if record is None or (command == "fit" and (request.checkpoint or request.ckpt_path)):
        return record  # the plugins of a run that goes on are named in its checkpoint
    parser = ArgumentParser(exit_on_error=False)
    for key, form in record.types.items():
        parser.add_argument(f"--{key}", type=_type(form), default=None)
    apart = {key for key, form in record.types.items() if form == _ANY}
    if request.init_from and not request.encoder_named:
        apart.add("model.encoder")  # its weights say which encoder
    if command == "fit":
        parse_config(parser, _without(request.values, apart.__contains__), request.where)
        return record
    # what else a stored config says is looked at when it is read; packages take some keys apart
    apart |= COMMON[command].keys() - record.types.keys()
    given = _without(request.values, lambda key: key in apart or not request.is_argument(key))
    parse_config(parser, given, request.where)
    return record


def read_record(request: Request, command: str = "fit") -> Record | None:
    """Return the record of a request's plugins; None where no valid one is kept."""
    try:
        found: dict[str, Any] = read_json(_path(request), _LARGEST)
        if any(_state(Path(path)) != state for path, state in found["files"].items()):
            return None
        types: dict[str, Form] = {**found["types"], **found["own"][command]}
        for form in types.values():
            _type(form)
        columns = {
            name: None
            if given is None
            else [Column(**{**each, "aliases": tuple(each["aliases"])}) for each in given]
            for name, given in found["columns"].items()
        }
    except (OSError, BertlabError, ValueError, TypeError, KeyError, AttributeError):
        return None  # it is made again
    return Record(types, columns)


def write_record(request: Request, parser: ArgumentParser, command: str = "fit") -> None:
    """Keep the keys of a parser, unless it was made for other plugins; no error if it fails."""
    if read_record(request, command) is not None or not _is_of(parser, request):
        return
    found = _types(parser)
    types = {key: form for key, form in found.items() if key.partition(".")[0] in _SHARED}
    own = {each: _own_types(each) for each in _COMMANDS if each not in ("fit", command)}
    own[command] = {key: form for key, form in found.items() if key not in types}
    columns, path = _columns(request).items(), _path(request)
    record = {
        "files": {str(each): _state(each) for each in _files()},
        "types": types,
        "own": own,
        "columns": {name: each and [asdict(one) for one in each] for name, each in columns},
    }
    with suppress(OSError, BertlabError):
        make_folder(path.parent)
        write_json(path, record)


def _types(parser: ArgumentParser) -> dict[str, Form]:
    """Return the type of each key of a parser as JSON."""
    hints = {each.dest: getattr(each, "_typehint", None) or each.type for each in parser._actions}
    known = keys_of(parser) - {"config"}
    return {key: _form(hints[key]) for key in sorted(known) if not names_below(key, known)}


def _own_types(command: str) -> dict[str, Form]:
    """Return the types of the keys of a command alone."""
    # torch, which is here by now
    from lightning.pytorch.cli import LightningArgumentParser  # noqa: PLC0415

    from bertlab.extend import add_keys_of_command  # noqa: PLC0415

    parser = LightningArgumentParser(exit_on_error=False)
    add_keys_of_command(parser, command, with_hooks=False)
    return _types(parser)


def _columns(request: Request) -> dict[str, tuple[Column, ...] | None]:
    """Return the columns that each head reads of rows by its name; None if it may choose them."""
    heads: dict[str, str | None] = {**request.heads} or {"": request.head}
    return {name: None if request.transforms else _columns_of(head) for name, head in heads.items()}


def _columns_of(head: str | None) -> tuple[Column, ...] | None:
    if head is None:
        return _TEXTS
    if not installed("head")[head].is_ours:
        return None
    found = getattr(load_class("head", head, object), "columns", None)
    return found if isinstance(found, tuple) else None


def _path(request: Request) -> Path:
    """Return where the keys of a request's plugins are kept."""
    packages = [str(plugin) for kind in GROUPS for plugin in listed(kind)]
    packages += [name_of_hooks(each) for each in _hooks()]
    versions = [version_of(name) for name in ("jsonargparse", "lightning", "torch")]
    # two checkouts of one version may differ in their keys
    said = repr(
        (__file__, sys.version, versions, packages, _plugins(request), request.without_hooks)
    )
    return default_cache_dir() / "keys" / f"{sha256(said.encode()).hexdigest()[:32]}.json"


def _hooks() -> "list[EntryPoint]":
    return [*entry_points_of("bertlab.hooks")]


def _source(location: str) -> list[str]:
    """Return the name in ``lines:FILE`` or ``my_package:lines:FILE``."""
    first, _, rest = location.partition(":")
    names = [first, f"{first}:{rest.partition(':')[0]}"]
    return [each for each in names if each in installed("source")][:1] or [first]


def _plugins(request: Request) -> dict[Any, list[Any]]:
    """Return the names of a request's plugins by kind."""
    single = {kind: getattr(request, kind) for kind in PLUGIN_SECTIONS.values()}
    return {
        **{kind: [name] for kind, name in single.items() if name is not None},
        "source": _source(request.corpus_source) if request.corpus_source else [],
        "objective": [*request.objectives],
        "head": [*request.head_sections.items()],  # whose names are in keys
        "metric": [*request.metrics],
        "transform": [*request.transforms],
    }


def _is_of(parser: ArgumentParser, request: Request) -> bool:
    """Whether a parser has the plugins of a request: its own run may have made another since."""
    known = keys_of(parser)
    named = {key: getattr(request, kind) for key, kind in PLUGIN_SECTIONS.items()}
    for key, name in (named | request.head_sections).items():
        if name != (parser.get_default(f"{key}.name") if f"{key}.name" in known else None):
            return False
    source = "data.corpus.source"
    if request.corpus_source != (parser.get_default(source) if source in known else None):
        return False
    heads = {key for key in known if re.fullmatch(r"model\.head(s\.[^.]+)?\.name", key)}
    same_heads = heads == {f"{key}.name" for key in request.head_sections}
    # an objective without arguments has no key
    objectives = {key.split(".")[2] for key in known if key.startswith("model.objectives.")}
    return (
        same_heads
        and objectives <= set(request.objectives)
        and ("data.corpus" in known) is not request.fine_tunes
    )


def _files() -> Iterator[Path]:
    """Yield the files of all imported modules of bertlab and of packages with plugins."""
    targets = [each.value for group in GROUPS.values() for each in entry_points_of(group)]
    targets += [each.value for each in _hooks()]
    tops = {"bertlab", *(target.partition(":")[0].partition(".")[0] for target in targets)}
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] in tops and file is not None:
            yield Path(file)


def _state(path: Path) -> list[int]:
    """Return time and size of a file; of one that is not there, none of a file."""
    try:
        found = path.stat()
    except OSError:
        return []
    return [found.st_mtime_ns, found.st_size]


def _without(content: Mapping[str, Any], drops: Callable[[str], bool], above: str = "") -> Config:
    """Return a config without the values of the keys that ``drops`` is true of."""
    kept: Config = {}
    for name, value in content.items():
        key = f"{above}{name}"
        if drops(key):
            continue
        inner = isinstance(value, Mapping)
        kept[name] = _without(value, drops, f"{key}.") if inner else value
    return kept


def _form(hint: Any) -> Form:  # noqa: ANN401  a type, or a form of one
    """Return a type as JSON; ``any`` of one that names a class, or that is not known."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Literal:
        plain = all(isinstance(each, str | int | float | None) for each in inner)
        return ["literal", *inner] if plain else _ANY
    if is_typeddict(hint):
        fields = {key: _form(each) for key, each in get_type_hints(hint).items()}
        return _ANY if _ANY in fields.values() else ["mapping", hint.__total__, fields]
    if origin in _JOINED:
        forms = ["anything" if each is Any else _form(each) for each in inner]
        return _ANY if _ANY in forms else [_JOINED[origin], *forms]
    name = getattr(hint, "__name__", "")
    return name if name and _PLAIN.get(name) is hint else _ANY


def _type(form: Form) -> Any:  # noqa: ANN401  a type, or a form of one
    """Return the type that :func:`_form` has written."""
    if isinstance(form, str):
        return Any if form == _ANY else _PLAIN[form]
    name, *inner = form
    if name == "literal":
        return Literal[tuple(inner)]
    if name == "mapping":
        total, fields = inner
        return TypedDict("Mapping", {key: _type(each) for key, each in fields.items()}, total=total)  # type: ignore[operator]
    found = tuple(_type(each) for each in inner)
    joined: Any = next(origin for origin, said in _JOINED.items() if said == name)
    return joined[found if len(found) > 1 else found[0]]
