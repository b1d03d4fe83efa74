"""What is told of errors: which of them are the user's to mend, how they are worded and printed."""

import contextlib
import difflib
import errno
import importlib
import importlib.util
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from bertlab.errors.catalogue import (
    BertlabError,
    ConfigError,
    DamagedRecordError,
    OutOfMemoryError,
    OutputError,
    TrainerError,
)

_MOST_SHOWN = 4000
_KINDS = {str: "text", int: "number", float: "number", dict: "mapping", bool: "truth value"}
# "Requirement 'wandb>=0.12.10' not met", "pip install -U deepspeed", "No module named 'a.b'"
_MISSING = (
    re.compile(r"Requirement '([\w-]+)([^']*)' not met"),
    re.compile(r"pip install (?:-U |--upgrade )?['\"]?([\w-]+)([<>=~!][\w.,<>=~!]*)?"),
    re.compile(r"ModuleNotFoundError: No module named '(\w+)()"),
)


def nearest(name: str, choices: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest of ``choices``, or an empty string."""
    matches = difflib.get_close_matches(name, list(choices), n=1, cutoff=0.5)
    return f"; did you mean {matches[0]!r}?" if matches else ""


# jsonargparse's restricted types would check no call from Python, are Any to mypy, cannot be
# written as YAML, and word their refusals in three ways: these three check both ways in
def check_at_least(key: str, found: float | None, least: int, reason: str = "") -> None:
    """Raise ConfigError if the setting ``key`` is too small; None is fine."""
    if found is not None and not found >= least:  # or NaN
        raise ConfigError(f"{key}: found {found}, expected {least} or more{reason}")


def check_share(key: str, found: float | None, ends: bool = True) -> None:
    """Raise ConfigError if ``key`` is not between 0 and 1; ``ends``: 0 and 1 are; None is fine."""
    if found is not None and not (0 <= found <= 1 if ends else 0 < found < 1):  # or NaN
        both = "" if ends else ", both excluded"
        raise ConfigError(f"{key}: found {found}, expected between 0 and 1{both}")


def check_choice(key: str, found: object, choices: Any) -> None:  # noqa: ANN401  a Literal
    """Raise ConfigError unless ``found`` is one of the words of a ``Literal``."""
    known = get_args(choices)
    if found not in known:
        hint = nearest(str(found).lower(), known)
        raise ConfigError(f"{key}: found {found!r}, expected one of {', '.join(known)}{hint}")


def check_processes(key: str, found: int | None, least: int) -> None:
    """Raise ConfigError if ``key`` is too few processes, or more than a machine can have."""
    check_at_least(key, found, least)
    most = max(64, 8 * (os.cpu_count() or 1))
    if found is not None and found > most:
        raise ConfigError(f"{key}: found {found}, expected at most {most} on this machine")


def warn(words: str) -> None:
    """Tell the user, on standard error, of something that does not end the command."""
    sys.stderr.write(f"bertlab: warning: {printable(words)}\n")


# of `bertlab … --json`, which then writes one document: what takes the values of its keys
JSON_DOCUMENTS: list[Callable[..., None]] = []


def add_to_json(**values: Any) -> None:  # noqa: ANN401  of a command's own
    """Give values to the document that ``--json`` prints, by key; without it, to nobody."""
    for add in JSON_DOCUMENTS:
        add(**values)


def say(words: str, *, to_errors: bool = False, is_progress: bool = False) -> None:
    """Print lines as they may go to a terminal and a log; see :func:`visible`.

    ``--json`` leaves out what is progress only, and what goes to standard error.
    """
    if not to_errors and not is_progress:
        add_to_json(text=[words])
    (sys.stderr if to_errors else sys.stdout).write(visible(words).rstrip("\n") + "\n")


def print_table(
    title: str, rows: Iterable[Sequence[str]], headings: Sequence[str] = (), figures: int = 0
) -> None:
    """Print a title, which is never wrapped: a path in it can be copied; and rows of text below.

    Args:
        title: a line of its own.
        rows: the cells of each; square brackets are ordinary characters.
        headings: of the columns, if they have any.
        figures: how many columns, counted from the last, are aligned on the right.
    """
    from rich.console import Console  # noqa: PLC0415  not for --help
    from rich.markup import escape  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415

    plain = [[visible(cell) for cell in row] for row in rows]
    add_to_json(tables=[{"title": title, "headings": headings, "rows": plain}])
    cells = [[escape(cell) for cell in row] for row in plain]
    columns = max([len(headings), *map(len, cells)])
    table = Table(show_header=bool(headings))
    for number in range(columns):
        heading = visible(headings[number]) if headings else ""
        right = number >= columns - figures
        # what names a row stays whole; its figures or text may take several lines
        table.add_column(
            escape(heading),
            justify="right" if right else "left",
            overflow="fold",
            no_wrap=number == 0,
            min_width=max(map(len, heading.split("\n"))),
        )
    for row in cells:
        table.add_row(*row)
    console = Console()
    console.print(visible(title), soft_wrap=True, markup=False, highlight=False)
    console.print(table)


def working(words: str) -> contextlib.AbstractContextManager[object]:
    """Show words with a moving sign on a terminal while a block is at work; nothing elsewhere."""
    from rich.console import Console  # noqa: PLC0415  not for --help
    from rich.markup import escape  # noqa: PLC0415

    return Console(stderr=True).status(escape(visible(words)))


def printable(words: str) -> str:
    """Return :func:`visible` words; of more than 4,000 characters the middle is left out."""
    if len(words) > _MOST_SHOWN:
        half = _MOST_SHOWN // 2
        words = f"{words[:half]} … {words[-half:]}"
    return visible(words)


def told(error: BaseException) -> str:
    """Return what an error of strangers' code says of itself, whatever its ``__str__`` does."""
    try:
        words = " ".join(str(error).split())
    except Exception:  # theirs
        words = "(it cannot say why)"
    return f"{type(error).__name__}: {words[:_MOST_SHOWN]}" if words else type(error).__name__


def told_with_place(error: BaseException) -> str:
    """Return :func:`told`, and the file and line of strangers' code that it comes from."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{told(error)} ({error.filename}:{error.lineno})"
    frames = traceback.extract_tb(error.__traceback__)
    files = [each for each in frames if not each.filename.startswith("<frozen")]
    # nothing but our own call of the import: the module was not found
    if not files or Path(files[-1].filename).is_relative_to(Path(importlib.__file__).parent):
        return told(error)
    return f"{told(error)} ({files[-1].filename}:{files[-1].lineno})"


def missing_package(error: BaseException) -> str | None:
    """Return ``wandb is not installed; pip install wandb``, if that is why a class is not made."""
    for each in causes(error):
        words = told(each)
        for pattern in _MISSING:
            if match := pattern.search(words):
                name, version = match[1], match[2] or ""
                # older than the version that is asked for
                is_there = importlib.util.find_spec(name.replace("-", "_")) is not None
                wanted = f"'{name}{version}'" if is_there else name
                state = "is too old" if is_there else "is not installed"
                return f"{name} {state}; pip install {wanted}"
    return None


def visible(words: str) -> str:
    """Return words as they may go to a terminal and a log, whatever names stand in them.

    Control characters, which could move the cursor or hide what was printed, and bytes of file
    names that are no UTF-8 are written as escapes; secrets in URLs are left out.
    """
    return "".join(
        each if each == "\n" or each.isprintable() else each.encode("unicode_escape").decode()
        for each in without_secrets(words)
    )


# one slash is left of a URL that was taken for a path; one letter before it is a drive: C:/x
_URL = re.compile(r"[A-Za-z][\w+.:-]+:/+[^\s'\"<>]+")
_USER = re.compile(r"(:/+)[^/?#]*@")
_QUERY = re.compile(r"([?&;#][^=&;#]*=)([^&;#]*)")
_OPEN = {"download", "format", "inline", "page", "raw", "ref", "rev", "revision", "split"}
HIDDEN = "***"
Kept = TypeVar("Kept")


def kind_of(value: object) -> str:
    """Return what a value of YAML or JSON is, in words: ``text``, ``number``, ``list``."""
    return "nothing" if value is None else _KINDS.get(type(value), type(value).__name__)


def without_secrets(content: Kept) -> Kept:
    """Return texts, and those in mappings and lists, with ``***`` for what URLs may hide.

    ``https://me:pw@host/a?raw=1&sig=x`` becomes ``https://***@host/a?raw=1&sig=***``: all before
    the host, and what is asked for but by a few names, as tokens and signatures have many.
    """
    found: Any = content
    if isinstance(found, str):
        found = _URL.sub(_hide, found) if ":/" in found else found
    elif isinstance(found, Mapping):
        found = {without_secrets(key): without_secrets(each) for key, each in found.items()}
    elif isinstance(found, list | tuple):
        found = [without_secrets(each) for each in found]
    return cast("Kept", found)


def _hide(url: re.Match[str]) -> str:
    plain = _USER.sub(rf"\1{HIDDEN}@", url[0])
    return _QUERY.sub(
        lambda part: part[0] if part[1][1:-1].lower() in _OPEN else f"{part[1]}{HIDDEN}", plain
    )


class _VisibleRecord(logging.LogRecord):
    def getMessage(self) -> str:  # noqa: N802  logging's
        return visible(super().getMessage())


def show_logs_visibly() -> None:
    """Make log messages and warnings of all libraries :func:`visible` from here on.

    Lightning sets a form of warnings of its own when it is imported: call this again then.
    """
    logging.setLogRecordFactory(_VisibleRecord)
    form = warnings.formatwarning
    if getattr(form, "func", None) is not _visible_form:  # not twice
        warnings.formatwarning = partial(_visible_form, form)


def _visible_form(form: Callable[..., str], *given: Any, **named: Any) -> str:  # noqa: ANN401
    return visible(form(*given, **named))


# what the file system says when it is the user's to mend
REFUSALS = {
    *(errno.EACCES, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EISDIR, errno.ENOSPC),
    *(errno.ENOTDIR, errno.EPERM, errno.EROFS),
    *(errno.ENOTCONN, errno.ESTALE),  # a mount by FUSE or NFS whose other end is gone
}


def _refusal(error: OSError) -> OutputError | None:
    """Return what a file system or device refused; None if it does not say what of."""
    name = error.filename
    if isinstance(name, str | bytes) and name and error.strerror:
        return OutputError(f"{os.fsdecode(name)}: {error.strerror}")
    return OutputError(str(error.strerror)) if error.errno in REFUSALS else None


def mistake_in(error: Exception) -> BertlabError | None:
    """Return the user's mistake that an error tells of; None if it is a bug of ours."""
    if isinstance(error, BertlabError):
        return error
    if isinstance(error, OSError):
        return _refusal(error)
    if _is_out_of_memory(error):
        asked = _ASKED.search(str(error))
        return OutOfMemoryError(
            f"memory ran out{f' ({asked[1]} asked for)' if asked else ''}: expected a smaller "
            "data.batch_size, data.max_seq_length or model.encoder"
        )
    if isinstance(error, RuntimeError) and "home directory" in str(error):  # pathlib's, of ~name
        path = [*traceback.walk_tb(error.__traceback__)][-1][0].f_locals.get("self", "~")
        return ConfigError(f"{path}: found no home directory (is HOME set?); write the whole path")
    filename = getattr(error, "filename", None)
    if isinstance(error, ValueError) and filename:  # of bertlab.files
        return DamagedRecordError(f"{filename}: damaged: {error}")
    # Lightning's, which is not imported
    misconfigured = type(error).__name__ == "MisconfigurationException"
    return TrainerError(" ".join(str(error).split())) if misconfigured else None


# of torch, CUDA and NumPy: "Tried to allocate 20.00 MiB. GPU 0 has …", "Unable to allocate 8 PiB"
_ASKED = re.compile(r"(?:[Tt]ried to|Unable to) allocate ([\d.]+ \w+)")
_NO_MEMORY = (
    "t allocate memory",
    "out of memory",
    "Storage size calculation overflowed",
    "array is too big",
)


def _is_out_of_memory(error: Exception) -> bool:
    """Whether Python, NumPy or torch, which is not imported, found no memory."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ValueError)
        and any(words in str(error) for words in _NO_MEMORY)
    )


@contextlib.contextmanager
def as_mistakes() -> Iterator[None]:
    """Raise what the user can mend as an error of this catalogue, whoever noticed it first."""
    try:
        yield
    except Exception as error:
        mistake = mistake_in(error)
        if mistake is None or mistake is error:
            raise
        raise mistake from error


# keys of data that each head has of its own
OWN_DATA = (
    *("source", "train", "validation", "test"),
    *("columns", "format", "delimiter", "quote", "header", "doubtful", "label_separator"),
    *("empty", "label_names", "validation_fraction", "cluster"),
)


def naming_head(name: str) -> contextlib.AbstractContextManager[None]:
    """Say ``data.heads.NAME.train`` for ``data.train`` in what a block says of an error."""
    return naming(f"heads.{name}", OWN_DATA, f"head {name}")


@contextlib.contextmanager
def naming(place: str, names: Sequence[str], called: str) -> Iterator[None]:
    """Put ``place``, below ``data`` and ``model``, into the keys of an error that has one.

    ``names`` are the keys of ``data`` that are there; other errors begin with ``called``.
    """
    try:
        yield
    except BertlabError as error:
        # "data.source: found none" -> "data.heads.mrpc.source: found none"
        text = re.sub(rf"\bdata\.({'|'.join(names)})\b", rf"data.{place}.\1", str(error))
        text = re.sub(r"\bmodel\.head\.", f"model.{place}.", text)
        raise type(error)(text if f".{place}" in text else f"{called}: {text}") from error


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, what it was raised from or while it was handled, and so on."""
    found: BaseException | None = error
    seen: set[int] = set()  # ``raise error from error`` is a circle
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or found.__context__
