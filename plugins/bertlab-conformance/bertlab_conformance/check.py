"""``Check``, the failure that it raises, and the runner of all checks of a plugin."""

import os
import random
import traceback
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from bertlab.extend import Kind

if TYPE_CHECKING:
    from bertlab_conformance.cases import Case


SHOWN_ALONE: Any = pytest.fail.Exception  # pytest prints its message without a traceback


class ConformanceFailure(AssertionError, SHOWN_ALONE):  # type: ignore[misc]  # noqa: N818
    """A plugin does not keep its contract.

    It is a failure in pytest's own sense, so that pytest prints the message alone; with
    ``BERTLAB_DEBUG=1`` it prints the traceback too.

    Args:
        seen: what was seen, with numbers.
        advice: what to do about it, in a sentence.

    Attributes:
        check: name of the check; filled in by the kit.
    """

    __module__ = "builtins"  # as of pytest's own failures: its summary leaves the module out

    def __init__(self, seen: str, advice: str) -> None:
        SHOWN_ALONE.__init__(self, seen, pytrace=os.environ.get("BERTLAB_DEBUG") == "1")
        self.seen = seen
        self.advice = advice
        self.check = ""

    def __str__(self) -> str:
        start = f"{self.check}: " if self.check else ""
        return f"{start}{self.seen}\n  what to do: {self.advice}"


class NotApplicable(Exception):  # noqa: N818  nothing is wrong
    """The plugin has nothing that the check is about; the message says what."""


TASK_KINDS: tuple[Kind, ...] = ("objective", "head")
CONFIG_KINDS: tuple[Kind, ...] = (
    *("encoder", "objective", "head", "adapter", "metric", "evaluation", "optimizer", "schedule"),
    *("transform", "tokenizer", "exporter", "executor"),
)
# made without arguments
BARE_KINDS: tuple[Kind, ...] = (
    *("command", "reader", "format", "masking_unit", "huggingface_form"),
)
# read from files, or made by the run
READ_KINDS: tuple[Kind, ...] = ("source", "input_format", "data_module", "tokenizer_model")
ALL_KINDS: tuple[Kind, ...] = (*CONFIG_KINDS, *READ_KINDS, *BARE_KINDS)  # of classes


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


_KIT = Path(__file__).parent
Outcome = ConformanceFailure | NotApplicable | None


class CheckRunner:
    """Runs the checks of a case and remembers what came of them.

    Args:
        case: the plugin.
        checks: those of its kind by name.
        skipped: names of checks that are taken for passed.
    """

    def __init__(self, case: "Case", checks: Mapping[str, Check], skipped: Set[str]) -> None:
        self._case = case
        self._checks = checks
        self._outcomes: dict[str, Outcome] = dict.fromkeys(skipped)
        self._causes: dict[str, str] = {}  # by check that was not run

    def run(self, name: str) -> None:
        """Run a check, as a test does.

        Raises:
            ConformanceFailure: the plugin does not pass it.
        """
        __tracebackhide__ = True  # pytest leaves this frame out
        outcome = self.outcome(name)
        if isinstance(outcome, NotApplicable):
            pytest.skip(str(outcome))
        if outcome is not None:
            raise outcome

    def outcome(self, name: str) -> Outcome:
        """Return why a check fails, or is not run; None if the plugin passes it."""
        if name not in self._outcomes:
            check = self._checks[name]
            cause = self._cause(check)
            if cause is None:
                self._outcomes[name] = _outcome(check, self._case)
            else:
                self._causes[name] = cause
                self._outcomes[name] = NotApplicable(f"{cause} fails; mend that first")
        return self._outcomes[name]

    def _cause(self, check: Check) -> str | None:
        """Return the check that fails and that this one builds on, directly or not."""
        for name in check.after:
            if name not in self._checks:  # made for another kind
                continue
            if isinstance(self.outcome(name), ConformanceFailure):
                return name
            if name in self._causes:
                return self._causes[name]
        return None


def _outcome(check: Check, case: "Case") -> Outcome:
    try:
        with _own_random_state():
            check.run(case)
    except NotApplicable as reason:
        return reason
    except ConformanceFailure as failure:
        failure.check = check.name
        return failure
    except Exception as error:  # whatever the plugin's code raises
        crash = ConformanceFailure(
            f"{type(error).__name__}: {error} ({_place(error)})",
            f"make this hold: {check.summary} BERTLAB_DEBUG=1 shows the traceback",
        )
        crash.check = check.name
        crash.__cause__ = error  # the traceback of BERTLAB_DEBUG=1
        return crash
    return None


def _place(error: Exception) -> str:
    """Return file, line and function of the plugin's code that an error came out of."""
    frames = traceback.extract_tb(error.__traceback__)
    installed = [frame for frame in frames if Path(frame.filename).parent != _KIT]
    outside = [frame for frame in installed if "site-packages" not in frame.filename]
    # from outside in: neither the kit, nor installed packages, nor the rest of bertlab:
    # an IndexError that torch raises in the author's loss() is reported at that line of loss()
    own = [frame for frame in outside if _KIT.parent not in Path(frame.filename).parents]
    frame = (own or outside or installed or list(frames))[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}, in {frame.name}"


@contextmanager
def _own_random_state() -> Iterator[None]:
    """Leave the random numbers of other tests as they are."""
    before = random.getstate(), np.random.get_state(), torch.get_rng_state()  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        torch.set_rng_state(before[2])
