"""Checks of executors: what they are given is computed once for each batch, in order."""

import inspect
import operator
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from bertlab import ConfigError, check_at_least
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check

_MADE = ("is_complete", "arguments_have_defaults")
_BATCHES = 20
# processes that are started anew need not import this kit for these
_READ = partial(range, _BATCHES)
_Mapped = Callable[[Callable[[], Any], Callable[[int], Any]], Generator[Any, None, None]]


@check("executor", after=_MADE)
def only_for_studies_are_options(case: Case) -> None:
    """``only_for_studies`` names arguments of ``__init__``."""
    options = inspect.signature(case.plugin).parameters
    if unknown := [name for name in case.plugin.only_for_studies if name not in options]:
        raise ConformanceFailure(
            f"only_for_studies has {', '.join(unknown)}; __init__ takes {', '.join(options)}",
            "name the options that prepare does not offer, as __init__ does",
        )


@check("executor", after=_MADE)
def results_come_in_order(case: Case) -> None:
    """There is a result for each batch, in the order of the batches, with any number of workers."""
    for workers in (1, 2, None):
        with _mapping(case, workers) as mapped:
            found = list(mapped(_READ, operator.neg))
        if found != [-number for number in range(_BATCHES)]:
            raise ConformanceFailure(
                f"with workers={workers}, the negatives of 0 to {_BATCHES - 1} are {found}",
                "yield the results in the order of the batches, whichever is ready first",
            )


@check("executor", after=("results_come_in_order",))
def errors_are_passed_on(case: Case) -> None:
    """A ``BertlabError`` of ``function`` or ``read`` is raised where the results are awaited."""
    refuse = partial(check_at_least, "batch", least=_BATCHES)  # all that _READ yields
    for name, read, function in (
        ("function", _READ, refuse),
        ("read", partial(refuse, 0), operator.neg),
    ):
        try:
            with _mapping(case, 2) as mapped:
                for _ in mapped(read, function):
                    pass
        except ConfigError as error:
            if "batch: found" in str(error):
                continue
            raise ConformanceFailure(f"an error of {name} becomes {error}", "keep it") from error
        except NotApplicable:
            raise
        except Exception as error:
            raise ConformanceFailure(
                f"a ConfigError of {name} becomes {type(error).__name__}: {error}",
                "raise what was raised there: it is meant for the user",
            ) from error
        raise ConformanceFailure(
            f"a ConfigError of {name} is lost", "raise it where the results are awaited"
        )


@check("executor", after=("results_come_in_order",))
def ends_early(case: Case) -> None:
    """Closing the generator ends the work, and the context can be left."""
    with _mapping(case, 2) as mapped:
        results = mapped(_READ, operator.neg)
        first = next(results)
        results.close()
    if first != 0:
        raise ConformanceFailure(f"the first result is {first}", "yield the first batch first")


@contextmanager
def _mapping(case: Case, workers: int | None) -> Iterator[_Mapped]:
    from bertlab.api import Executor  # noqa: PLC0415  of bertlab-studies, which may not be there

    if case.plugin.mapping is Executor.mapping:
        raise NotApplicable("it has no mapping: it executes the runs of studies alone")
    with case.new().mapping(workers) as mapped:
        yield mapped
