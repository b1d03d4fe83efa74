"""Checks of a data source: documents, labelled rows, or both."""

import inspect
from collections.abc import Mapping
from contextlib import suppress
from itertools import islice

from bertlab.api import BertlabError, CorpusError, DataError, DataSource, RawDocument
from bertlab_conformance.cases import SourceCase
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.checks.training import refused_output
from bertlab_conformance.comparisons import pickled

_SOME = 200  # documents or rows that are looked at
_PLAIN = (str, int, float, bool, list, dict, type(None))


@check("source", after=("is_complete",))
def is_made_of_name_and_argument(case: SourceCase) -> None:
    """``__init__`` takes ``name``, ``argument``, and then settings; none is called ``source``."""
    names = list(inspect.signature(case.plugin).parameters)
    if names[:2] != ["name", "argument"]:
        raise ConformanceFailure(
            f"__init__ takes {', '.join(names) or 'nothing'}",
            "take name and argument and call super().__init__(name, argument); settings of its "
            "own stand behind them: data.corpus: {source: my_source, folder: FOLDER}",
        )
    if "source" in names:
        raise ConformanceFailure(
            "__init__ takes a setting called source",
            "give it another name; data.corpus.source is the name of the source itself",
        )


@check("source", after=("gives_documents_or_rows",))
def settings_are_those_of_the_object(case: SourceCase) -> None:
    """Another object with other settings, changes no documents of this one."""
    source, settings = case.new(), case.settings
    first = _documents(case, source)
    if not settings:
        raise NotApplicable("it has no settings; those of the test are arguments={…}")
    texts = {key: "no such setting" for key, value in settings.items() if isinstance(value, str)}
    with suppress(Exception):  # it may refuse them
        case.plugin(source.name, source.argument, **{**settings, **texts})
    try:
        again = _read(source)
    except CorpusError as error:
        again = [RawDocument(str(error), False, "")]
    if first != again:
        raise ConformanceFailure(
            "another object with other settings changes what this one reads",
            "keep settings on self, not on the class or in the module",
        )


@check("source", after=("is_made_of_name_and_argument", "methods_take_what_they_are_given"))
def gives_documents_or_rows(case: SourceCase) -> None:
    """It gives documents to pre-train on, labelled rows, or both."""
    reasons = []
    for read in (_documents, _rows):
        try:
            read(case)
        except NotApplicable as reason:
            reasons.append(str(reason))
    if len(reasons) == 2:
        raise ConformanceFailure(
            f"it gives neither: {'; '.join(reasons)}",
            'define documents() or examples(split); give the kit arguments={"argument": …} that it '
            'can read, and {"split": …} if it has no train',
        )


@check("source", after=("gives_documents_or_rows",))
def documents_have_text(case: SourceCase) -> None:
    """``documents`` yields RawDocument with text in Unicode, lines parted by LF, and a place."""
    for number, document in enumerate(_documents(case), 1):
        if not isinstance(document, RawDocument):
            raise ConformanceFailure(
                f"document {number} is a {type(document).__name__}",
                "yield bertlab.api.examples.RawDocument(text, presplit, source)",
            )
        if not document.text.strip():
            raise ConformanceFailure(
                f"document {number} ({document.source}) is empty", "leave empty documents out"
            )
        # character offsets and hashes would depend on the system where the text was written
        if "\r" in document.text:
            raise ConformanceFailure(
                f"document {number} ({document.source}) has a carriage return",
                'part lines by LF: text.replace("\\r\\n", "\\n")',
            )
        if not document.source:
            raise ConformanceFailure(
                f"document {number} has no source", "say where it stands, as file:line"
            )
        _check_unicode(document.text, document.source)


@check("source", after=("gives_documents_or_rows",))
def documents_repeat(case: SourceCase) -> None:
    """``documents`` yields the same in the same order, from the same object and from another."""
    _documents(case)
    source = case.new()
    first = _read(source)
    # caught: a generator that is used up, the order of a set, glob() without sorted()
    for words, again in (("again", source), ("from another object", case.new())):
        second = _read(again)
        if first != second:
            # first [a, b], second [a, c] -> 2; [a, b] and [a] -> 2
            place = next(
                (
                    n
                    for n, pair in enumerate(zip(first, second, strict=False), 1)
                    if pair[0] != pair[1]
                ),
                min(len(first), len(second)) + 1,
            )
            raise ConformanceFailure(
                f"read {words}, document {place} of {len(first)} differs",
                "yield from a fixed order: sort files by name, draw nothing, and begin anew at "
                "each call",
            )


@check("source", after=("documents_repeat",))
def fingerprint_repeats(case: SourceCase) -> None:
    """``fingerprint`` is a text that is the same for the same documents."""
    _documents(case)
    one, other = case.new().fingerprint(), case.new().fingerprint()
    if not isinstance(one, str) or not one:
        raise ConformanceFailure(f"fingerprint() gives {one!r}", "return a text that is not empty")
    if one != other:
        raise ConformanceFailure(
            f"fingerprint() gives {one[:40]!r}, then {other[:40]!r}",
            "make it from the documents, or from names, sizes and versions of what they come from; "
            "never from the time or from hash()",
        )


@check("source", after=("gives_documents_or_rows",))
def rows_have_columns(case: SourceCase) -> None:
    """``rows`` yields mappings from column names to texts, numbers, lists or dicts."""
    for number, row in enumerate(_rows(case), 1):
        if not isinstance(row, Mapping) or not row:
            raise ConformanceFailure(f"row {number} is {str(row)[:60]}", "yield a dict by column")
        for name, value in row.items():
            if not isinstance(name, str) or not isinstance(value, _PLAIN):
                raise ConformanceFailure(
                    f"row {number}: {name!r} is a {type(value).__name__}",
                    "yield plain Python: .tolist() of arrays, str of dates",
                )
            if isinstance(value, str):
                _check_unicode(value, f"row {number}: {name}")


@check("source", after=("gives_documents_or_rows",))
def rows_repeat(case: SourceCase) -> None:
    """``rows`` yields the same rows in the same order every time."""
    source = case.new()
    first = _rows(case, source)
    if first != _rows(case, source) or first != _rows(case):
        raise ConformanceFailure(
            f"{len(first)} rows are others the second time",
            "yield from a fixed order and begin anew at each call",
        )


@check("source", after=("gives_documents_or_rows",))
def unknown_split_is_an_error(case: SourceCase) -> None:
    """A split that is not there is a DataError that names it."""
    _rows(case)
    name = "no_such_split"
    try:
        found = next(iter(case.new().raw_examples(name).rows), None)  # rows are lazy: ask for one
    except DataError as error:
        if name not in str(error):
            raise ConformanceFailure(
                f"the error is {str(error)!r}", f"name the split ({name}) and those that are there"
            ) from error
        return
    raise ConformanceFailure(
        f"split {name!r} gives {str(found)[:60]}",
        "raise bertlab.errors.DataError with the splits that are there",
    )


@check("source", after=("gives_documents_or_rows",))
def wrong_argument_is_no_traceback(case: SourceCase) -> None:
    """An argument that means nothing is a BertlabError, or plays no part."""
    # caught: FileNotFoundError or KeyError, which would be a traceback for a typing error
    name, argument = "conformance:no such/argument", "no such/argument"
    source = case.plugin(name, argument, **case.settings)
    for words, read in (
        ("documents()", lambda: list(islice(source.documents(), 1))),
        ("examples()", lambda: list(islice(source.raw_examples(case.split).rows, 1))),
    ):
        try:
            read()
        except BertlabError:
            continue
        except Exception as error:
            raise ConformanceFailure(
                f"{words} of an argument that means nothing raises {type(error).__name__}: {error}",
                "raise CorpusError or DataError with self.name, what was found and what expected",
            ) from error


@check("source", after=("gives_documents_or_rows",))
def pickles(case: SourceCase) -> None:
    """The source can be pickled before it was read."""
    advice = "open files and connections in documents() and examples(), not in __init__"
    pickled(case.new(), "source", advice)


@check("source", after=("gives_documents_or_rows",))
def prints_nothing(case: SourceCase) -> None:
    """Reading writes nothing to the terminal."""
    with refused_output():
        for read in (_documents, _rows):
            try:
                read(case)
            except NotApplicable:
                continue


def _read(source: DataSource) -> list[RawDocument]:
    return list(islice(source.documents(), _SOME))


def _documents(case: SourceCase, source: DataSource | None = None) -> list[RawDocument]:
    try:
        documents = _read(source or case.new())
    except CorpusError as error:
        raise NotApplicable(f"no documents: {error}") from error
    if not documents:
        raise NotApplicable("no documents")
    return documents


def _rows(case: SourceCase, source: DataSource | None = None) -> list[Mapping[str, object]]:
    try:
        found = (source or case.new()).raw_examples(case.split).rows
        return [values for _, values in islice(found, _SOME)]
    except DataError as error:
        raise NotApplicable(f"no labelled rows: {error}") from error


def _check_unicode(text: str, place: str) -> None:
    try:
        # Python holds "\ud800", half a character, but UTF-8 has no bytes for it
        text.encode()
    except UnicodeEncodeError as error:
        raise ConformanceFailure(
            f"{place} holds a lone surrogate \\u{ord(text[error.start]):04x}",
            'read with encoding="utf-8" and errors="strict", or replace what is no character',
        ) from None
