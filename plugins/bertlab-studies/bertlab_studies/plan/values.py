"""Values of a study file that several keys share, and what is said of one that is wrong."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bertlab import nearest
from bertlab.extend import Config, shipped_configs
from bertlab_evaluations.entries import why_no_file_name
from bertlab_studies.errors import StudyError

MOST = 10_000  # variants, seeds, points of a grid: a larger number can hardly be meant


def check_count(count: int, what: str, where: str) -> None:
    """Raise StudyError if a study asks for too many of something, before they are made."""
    if count > MOST:
        raise StudyError(f"{where}: found {count:,} {what}, expected at most {MOST:,}")


def first_repeated(values: Iterable[Any]) -> Any:  # noqa: ANN401
    """Return the first value that another one equals, as 1 and 1.0; None if all differ."""
    seen: dict[Any, Any] = {}
    for value in values:
        key = value if isinstance(value, Hashable) else repr(value)
        if key in seen:
            return seen[key]
        seen[key] = value
    return None


def refuse_repeated(names: list[str], where: str) -> None:
    """Raise StudyError if a name is there twice."""
    name = first_repeated(names)
    if name is not None:
        raise StudyError(
            f"{where}: {name!r} is there twice; expected names that differ (give them as a "
            "mapping: {name: …})"
        )


def check_keys(given: Config, known: Sequence[str], where: str) -> None:
    """Raise StudyError if a key is unknown."""
    fits = [key for key in ("model", "trainer") if key in given and "base" not in given]
    if fits:
        raise StudyError(
            f"{where}: found {fits[0]!r}, as in a config of bertlab fit, expected a study: a file "
            f"with base: {where}, variants and seeds"
        )
    for key in given:
        if key not in known:
            raise StudyError(
                f"{where}: no key is called {key!r}{nearest(str(key), known)} "
                f"(there are: {', '.join(known)})"
            )


def mapping(given: object, where: str) -> dict[str, Any]:
    """Return a mapping, or raise StudyError."""
    if not isinstance(given, dict):
        raise StudyError(f"{where}: found {given!r}, expected a mapping")
    return given


def text(given: object, where: str, expected: str) -> str:
    """Return a text that is not empty, or raise StudyError."""
    if not isinstance(given, str) or not given:
        raise StudyError(f"{where}: found {given!r}, expected {expected}")
    return given


def folder_name(given: object, where: str) -> str:
    """Return the name of a study, which is that of its directory."""
    name = text(given, where, "a name")
    if (expected := why_no_file_name(name)) is not None:
        raise StudyError(f"{where}: found {name[:80]!r}, expected {expected}")
    return name


def file(folder: Path, name: str, where: str) -> Path:
    """Return the path of a config file or of one of bertlab's by name, or raise StudyError."""
    path = folder / name
    if not path.is_file() and name in shipped_configs():
        path = shipped_configs()[name]
    if not path.is_file():
        near = nearest(path.name, [each.name for each in path.parent.glob("*.yaml")])
        raise StudyError(f"{where}: {path}: no such config file{near}")
    return path.resolve()


def decide_and_margins(given: object, where: str) -> tuple[tuple[str, ...], dict[str, float]]:
    """Return the measures of pre-training that decide, and the margins of those that have one.

    Args:
        given: ``[mlm loss]`` or ``{mlm loss: {margin: 0.02}}``.
        where: the file and key, for messages.
    """
    if isinstance(given, dict):
        found = {}
        for name, fields in given.items():
            check_keys(mapping(fields, f"{where}.{name}"), ("margin",), f"{where}.{name}")
            found[str(name)] = margin(fields.get("margin"), f"{where}.{name}.margin")
        return tuple(found), {name: each for name, each in found.items() if each is not None}
    if given is not None and not (
        isinstance(given, list) and all(isinstance(each, str) for each in given)
    ):
        raise StudyError(
            f"{where}: found {given!r}, expected a list of measures: [mlm loss], or "
            "{mlm loss: {margin: 0.02}}"
        )
    return tuple(given or ()), {}


def margin(given: object, where: str) -> float | None:
    """Return the size below which a difference counts as none; None if it is not said."""
    if given is None:
        return None
    # type(): to isinstance(), True is an int
    if type(given) not in (int, float) or not 0 < float(given) < math.inf:  # type: ignore[arg-type]
        raise StudyError(
            f"{where}: found {given!r}, expected a number above 0, in units of the measure: 0.01 "
            "is one point of a share"
        )
    return float(given)  # type: ignore[arg-type]


def fine_tunes(config: Config) -> bool:
    """Whether a resolved config has a head, or several."""
    return bool(config["model"].get("head") or config["model"].get("heads"))


def heads_by_name(section: Mapping[str, Any]) -> dict[str, Config]:
    """Return the heads of a resolved ``model`` section, a single one by its plugin's name."""
    heads: dict[str, Config] = dict(section.get("heads") or {})
    single = section.get("head")
    return {single["name"]: single} if single else heads
