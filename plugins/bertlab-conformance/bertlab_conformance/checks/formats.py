"""Checks of named formats: what they declare, and that a submission is whole or absent."""

from collections.abc import Mapping
from pathlib import Path, PurePath
from tempfile import TemporaryDirectory

from bertlab.api import DataError, NamedFormat
from bertlab.extend import entry_points_of, listed
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check

_MADE = ("is_made_without_arguments",)


@check("format", after=_MADE)
def columns_have_sources(case: Case) -> None:
    """``columns`` names, for each column of a head, where it may come from."""
    for name, sources in case.plugin.columns.items():
        fits = isinstance(sources, list | tuple) and all(
            isinstance(each, str | tuple) for each in sources
        )
        if not fits or not sources:
            raise ConformanceFailure(
                f"columns[{name!r}] is {sources!r}",
                "give a tuple of names, the first that is there wins: ('sentence', 'text')",
            )


@check("format", after=_MADE)
def class_names_differ(case: Case) -> None:
    """Every class has a name of its own."""
    given = case.plugin.label_names or ()
    names = list(given.values() if isinstance(given, Mapping) else given)
    if isinstance(given, Mapping):  # several raw labels may mean one class
        names = list(dict.fromkeys(names))
    if len(set(names)) < len(names) or not all(isinstance(name, str) for name in names):
        raise ConformanceFailure(
            f"label_names are {names}", "give each class its own name, in the order of the ids"
        )


@check("format", after=_MADE)
def says_what_files_are(case: Case) -> None:
    """Files are tables, or ``read`` is defined; a file that is not there is a ``DataError``."""
    if case.plugin.table is not None:
        return
    if case.plugin.read is NamedFormat.read:
        raise ConformanceFailure("table is None, and read is missing", "define read(path)")
    try:
        for _ in case.plugin().read("no/such/file").rows:
            break
    except DataError:
        return
    except Exception as error:
        raise ConformanceFailure(
            f"read('no/such/file') raises {type(error).__name__}: {error}",
            "raise bertlab.DataError, which names the file",
        ) from error
    raise ConformanceFailure("read('no/such/file') finds rows", "raise bertlab.DataError")


@check("format")
def endings_can_be_found(case: Case) -> None:
    """The endings that its package claims are those of names, and name formats."""
    package = case.plugin.__module__.partition(".")[0]
    entries = entry_points_of("bertlab.endings")
    claims = [each for each in entries if each.value.partition(":")[0].split(".")[0] == package]
    if not claims:
        raise NotApplicable(f"no entry point of bertlab.endings names a class of {package}")
    formats = {each.target for each in listed("format")}
    for each in claims:
        # caught: "xlsx", ".XLSX", ".tar.xlsx", of which a name's ending is .xlsx
        if PurePath(f"name{each.name}".lower()).suffix != each.name:
            raise ConformanceFailure(
                f"bertlab.endings: {each.name!r} is no ending of a name",
                'write it in lower case, with its dot: ".xlsx"',
            )
        if each.value not in formats:
            raise ConformanceFailure(
                f"bertlab.endings: {each.name} = {each.value}, which is no entry point of "
                "bertlab.formats",
                "name the class of a format as its entry point does",
            )


@check("format", after=_MADE)
def a_discarded_submission_leaves_nothing(case: Case) -> None:
    """After an error, there is no file of predictions."""
    if case.plugin.submission is None:
        raise NotApplicable("it has no submission")
    with TemporaryDirectory() as place:
        submission = case.plugin.submission(Path(place, "submission"), case.plugin())
        submission.discard()
        left = sorted(path.name for path in Path(place).iterdir())
    if left:
        raise ConformanceFailure(
            f"discard() leaves {', '.join(left)}",
            "write to self.file alone, which appears when close() is called",
        )
