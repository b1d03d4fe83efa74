"""A check: a function of a case, with what the kit has to know of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertlab.plugins import Kind

TASK_KINDS: tuple[Kind, ...] = ("objective", "head")
CONFIG_KINDS: tuple[Kind, ...] = ("encoder", "objective", "head", "metric")
ALL_KINDS: tuple[Kind, ...] = (*CONFIG_KINDS, "source")


@dataclass(frozen=True)
class Check:
    """One thing that a plugin must do.

    Attributes:
        name: of the function; the id of the test.
        summary: first line of its docstring.
        run: raises ConformanceFailure, or NotApplicable, for a case.
        kinds: of plugins that it is made for.
        after: checks that have to pass for this one to mean anything; where one of them fails,
            this one is not run.
    """

    name: str
    summary: str
    run: Callable[[Any], None]
    kinds: tuple[Kind, ...]
    after: tuple[str, ...]


def check(*kinds: Kind, after: tuple[str, ...] = ()) -> Callable[[Callable[[Any], None]], Check]:
    """Make a check of a function whose docstring says in its first line what holds."""

    def make(run: Callable[[Any], None]) -> Check:
        summary = (run.__doc__ or "").strip().splitlines()[0]
        return Check(run.__name__, summary, run, kinds, after)

    return make
