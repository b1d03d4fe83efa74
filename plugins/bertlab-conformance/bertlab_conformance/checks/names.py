"""Checks of functions that a package adds to bertlab, under ``bertlab.names``."""

import inspect
from importlib.metadata import EntryPoint

import bertlab
from bertlab import PretrainedModel, Run
from bertlab.extend import entry_package, entry_points_of
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check

NAMES = "bertlab.names"
_OF_OBJECTS = {"PretrainedModel": PretrainedModel, "Run": Run}


@check("name")
def arguments_are_named(case: Case) -> None:
    """Every argument has a name, by which it can be given, and the first takes the object."""
    found = list(inspect.signature(case.plugin).parameters.values())
    wrong = [each for each in found if each.kind in (each.VAR_POSITIONAL, each.POSITIONAL_ONLY)]
    if wrong:
        raise ConformanceFailure(
            f"{case.plugin.__name__}{inspect.signature(case.plugin)} has {wrong[0]}",
            "name every argument; of PretrainedModel.NAME and Run.NAME the first is the object",
        )
    if not found and any(each.name.partition(".")[0] in _OF_OBJECTS for each in _entries(case)):
        raise ConformanceFailure("it takes no argument", "take the object: def name(model): …")


@check("name")
def name_is_free(case: Case) -> None:
    """No name of bertlab's own, or of another package, is the same."""
    entries = _entries(case)
    if not entries:
        raise NotApplicable(f"no entry point of {NAMES} names it")
    for each in entries:
        place, _, name = each.name.rpartition(".")
        owner = _OF_OBJECTS.get(place, bertlab if not place else None)
        others = [
            e for e in entry_points_of(NAMES) if e.name == each.name and e.value != each.value
        ]
        taken = [" ".join(entry_package(e)) for e in others]
        own = bertlab.__all__ if owner is bertlab else vars(owner) if owner else ()
        if name in own or taken:
            raise ConformanceFailure(
                f"{each.name} is a name of {', '.join(taken) or 'bertlab itself'} already, which "
                "wins, or neither does",
                "give it another name",
            )


def _entries(case: Case) -> list[EntryPoint]:
    target = f"{case.plugin.__module__}:{case.plugin.__qualname__}"
    return [each for each in entry_points_of(NAMES) if each.value == target]
