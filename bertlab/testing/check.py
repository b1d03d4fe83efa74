"""What a check raises.

A check: a function of a case, with what the kit has to know of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bertlab.plugins.index import Kind


class ConformanceFailure(AssertionError):  # noqa: N818  pytest's word for it
    """A plugin does not keep its contract.

    Args:
        seen: what was seen, with numbers.
        advice: what to do about it, in a sentence.

    Attributes:
        check: name of the check; filled in by the kit.
    """

    def __init__(self, seen: str, advice: str) -> None:
        super().__init__(seen, advice)
        self.seen = seen
        self.advice = advice
        self.check = ""

    def __str__(self) -> str:
        start = f"{self.check}: " if self.check else ""
        return f"{start}{self.seen}\n  what to do: {self.advice}"


class NotApplicable(Exception):  # noqa: N818  nothing is wrong
    """The plugin has nothing that the check is about; the message says what."""


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
