"""The mapping of a source's columns to the columns that a head reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bertlab.api.examples import Column, RawExamples
from bertlab.api.format import ColumnSource, ColumnSources
from bertlab.data.rows.tables import PLAIN, RowReading
from bertlab.errors import DataError, nearest

_MOST_SHOWN = 30


@dataclass(frozen=True)
class Mapped:
    """Where a head's column comes from."""

    column: Column
    source: ColumnSource  # key of the raw rows, or several
    place: str  # what messages call it
    class_names: tuple[str, ...] | None  # for the class ids in it, if the source declares them


def is_place(source: str) -> bool:
    """Return whether a column is given by its place: 0, 1, …, or -1, -2, … from the end.

    Files with such columns have no header.
    """
    return source.removeprefix("-").isdecimal()


def is_header(
    cells: Sequence[str], wanted: Sequence[Column], candidates: ColumnSources, is_named: bool
) -> bool:
    """Return whether the first line of a table names its columns; ``is_named``: of a named format.

    It does where no column is given by its place, or one of its cells names one of the columns.
    """
    names = _names(candidates)
    if not any(map(is_place, names)) or any(n in cells for n in names if not is_place(n)):
        return True
    return not is_named and _is_heading(cells, wanted, candidates)


def _names(candidates: ColumnSources) -> list[str]:
    options = [option for options in candidates.values() for option in options]
    return [name for each in options for name in ([each] if isinstance(each, str) else each)]


def read_mapping(
    given: Mapping[str, object], wanted: Sequence[Column], where: str
) -> dict[str, tuple[ColumnSource, ...]]:
    """Return the user's ``columns`` as candidates; others keep their names or aliases."""
    names = [column.name for column in wanted]
    candidates: dict[str, tuple[ColumnSource, ...]] = {
        column.name: (column.name, *column.aliases) for column in wanted
    }
    for name, value in given.items():
        if name not in candidates:
            told = f"{where}: columns: the head reads no {name!r}{nearest(name, names)}"
            raise DataError(f"{told}; it reads {', '.join(names)}")
        candidates[name] = (_as_source(name, value, where),)
    return candidates


def _as_source(name: str, given: object, where: str) -> ColumnSource:
    if isinstance(given, str | int) and not isinstance(given, bool):
        return str(given)
    # type(): to isinstance(), True is an int
    if isinstance(given, list) and given and all(type(each) in (str, int) for each in given):
        return tuple(map(str, given))
    told = f"{where}: columns: {name}: found {given!r}, expected the name of a column"
    raise DataError(f"{told}, its number from 0 where there is no header, or a list of these")


def map_columns(
    raw: RawExamples,
    wanted: Sequence[Column],
    candidates: ColumnSources,
    needs_truth: bool,
    reading: RowReading = PLAIN,
) -> list[Mapped]:
    """Find the head's columns in a source; optional ones, and truth not needed, may be missing."""
    mapped, missing = [], {}
    taken: set[str] = set()
    for column in wanted:
        options = candidates.get(column.name, ())
        found = [keys for option in options if (keys := _resolve(option, raw.columns, taken))]
        if found:
            taken.update([found[0]] if isinstance(found[0], str) else found[0])
            names = raw.class_names.get(found[0]) if isinstance(found[0], str) else None
            mapped.append(Mapped(column, found[0], _place(found[0], column.name), names))
        elif column.required and (needs_truth or not column.is_truth):
            missing[column.name] = options
        elif raw.rows_vary and options:  # a later row may have it
            mapped.append(Mapped(column, options[0], _place(options[0], column.name), None))
    if missing:
        raise _missing(raw, missing, taken, reading)
    return mapped


def _place(source: ColumnSource, name: str) -> str:
    if source == name:
        return f"column {name!r}"
    place = repr(source) if isinstance(source, str) else ", ".join(map(repr, source))
    return f"column {place} ({name})"


_LABEL_HEADINGS = {"label", "labels", "class", "target", "tag", "tags", "category", "sentiment"}


def _is_heading(cells: Sequence[str], wanted: Sequence[Column], candidates: ColumnSources) -> bool:
    """Return whether a first line heads columns that are given by place: it says 'label' there."""
    keys = tuple(map(str, range(len(cells))))
    for column in wanted:
        options = candidates.get(column.name, ())
        place = _resolve(options[0], keys, set()) if column.is_truth and options else None
        names = {column.name, *column.aliases, *_LABEL_HEADINGS}
        if isinstance(place, str) and cells[int(place)].strip().lower() in names:
            return True
    return False


def name_places(candidates: ColumnSources, columns: Sequence[str]) -> ColumnSources:
    """Return the candidates with names for places, of a table whose header was read."""

    def named(source: ColumnSource) -> ColumnSource:
        if isinstance(source, tuple):
            return tuple(str(named(each)) for each in source)
        if source in columns or not is_place(source):
            return source
        place = int(source) + (len(columns) if source.startswith("-") else 0)  # -1 of 4 -> 3
        return columns[place] if 0 <= place < len(columns) else source

    return {name: [named(each) for each in options] for name, options in candidates.items()}


def _resolve(source: ColumnSource, columns: Sequence[str], taken: set[str]) -> ColumnSource | None:
    """Return the keys of the raw rows that a source stands for; None if they are missing."""
    # a place from the end may not meet a column that is taken: in a file of words alone the last
    # column is not the tags
    if isinstance(source, tuple):
        keys = [_resolve(each, columns, set()) for each in source]
        return tuple(key for key in keys if isinstance(key, str)) if all(keys) else None
    if source in columns:
        return source
    if source.startswith("-") and is_place(source):
        place = str(len(columns) + int(source))  # "-1" of 4 columns -> "3"
        # CoNLL's last column is its only one, which the words have taken: there are no tags
        return place if place in columns and place not in taken else None
    return None


def _missing(
    raw: RawExamples, missing: ColumnSources, taken: set[str], how: RowReading
) -> DataError:
    numbered = raw.columns == tuple(map(str, range(len(raw.columns))))
    others = [each for each in raw.columns if not is_place(each) and each not in taken]
    found = []
    for name, options in missing.items():
        names = _names({name: options})
        fitting = [each for each in names if is_place(each) == numbered] or names
        lacking = [each for each in fitting if each not in raw.columns]
        of_them = f"{' or '.join(map(repr, lacking))}, which {name!r} comes from"
        sought = f"no column {repr(name) if name in lacking else of_them}"
        found.append(sought + next(filter(None, (nearest(each, others) for each in lacking)), ""))
    if numbered and len(raw.columns) == 1:
        return DataError(f"{raw.name}: {sought}: its lines have one column alone; check the format")
    shown = ", ".join(map(repr, raw.columns[:_MOST_SHOWN]))
    there = f"{len(raw.columns)}, numbered from 0" if numbered else shown
    places = [f"{name}: {n if numbered else 'COLUMN'}" for n, name in enumerate(missing, 1)]
    without = "" if numbered else " (its number, from 0, where there is no header)"
    names_them = f"name them, as in data.columns: {{{', '.join(places)}}}{without}, or "
    told = f"{raw.name}: {'; '.join(found)}; columns there: {there}"
    advice = how.advise(names_them, "call them so in the file, or ")
    return DataError(f"{told}; {advice}check the format")
