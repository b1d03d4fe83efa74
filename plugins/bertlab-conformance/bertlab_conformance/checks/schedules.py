"""Checks of schedules: factors in range, of the progress alone."""

import math
import pickle
from dataclasses import replace

from bertlab.api import Progress, Schedule
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check

_MADE = ("is_complete", "arguments_have_defaults")
_ENDS = (1.0, 7.0, 1000.0, 1e6)
_WARMUPS = (0.0, 0.1)  # shares


def _moments(end: float, warmup: float) -> list[Progress]:
    """Return moments after warm-up, the end and later among them."""
    shares = [warmup + (1 - warmup) * each / 20 for each in range(23)]
    return [Progress(share * end, end, warmup * end) for share in shares]


def _all_moments(schedule: Schedule) -> list[Progress]:
    found = [each for end in _ENDS for warmup in _WARMUPS for each in _moments(end, warmup)]
    if schedule.monitor is None:
        return found
    # 3, 2, 2, 4, 1, … and more of them from moment to moment
    scores = [float(3 * number % 5) for number in range(len(found))]
    return [replace(each, scores=scores[:number]) for number, each in enumerate(found)]


@check("schedule", after=_MADE)
def factors_are_in_range(case: Case) -> None:
    """A factor is a finite number, 0 or more, at every moment, after the end as well."""
    schedule: Schedule = case.new()
    for progress in _all_moments(schedule):
        factor = schedule.factor(progress)
        if not isinstance(factor, float | int) or not math.isfinite(factor) or factor < 0:
            raise ConformanceFailure(
                f"factor({progress}) is {factor!r}",
                "return a float of 0 or more; progress.share is from 0 to 1 at every moment",
            )


@check("schedule", after=("factors_are_in_range",))
def begins_at_one(case: Case) -> None:
    """Where warm-up ends, the factor is 1: the learning rate is the peak of the config."""
    schedule: Schedule = case.new()
    for warmup in _WARMUPS:
        progress = _moments(1000.0, warmup)[0]
        factor = schedule.factor(progress)
        if abs(factor - 1) > 1e-9:
            raise ConformanceFailure(
                f"factor({progress}) is {factor}",
                "divide by it; warm-up before that is bertlab's, not the schedule's",
            )


@check("schedule", after=("factors_are_in_range",))
def keeps_no_state(case: Case) -> None:
    """Asked in another order, or by another object, it gives the same factors."""
    schedule: Schedule = case.new()
    moments = _all_moments(schedule)
    forward = [schedule.factor(each) for each in moments]
    backward = [schedule.factor(each) for each in reversed(moments)][::-1]
    fresh: Schedule = case.new()
    resumed = [fresh.factor(each) for each in moments[len(moments) // 2 :]]
    if forward != backward or resumed != forward[len(moments) // 2 :]:
        raise ConformanceFailure(
            "the factors depend on what was asked before",
            "compute the factor from progress alone; a resumed run asks for the later ones only",
        )


@check("schedule", after=("keeps_no_state",))
def goes_by_its_metric(case: Case) -> None:
    """With a ``monitor``, scores that get worse change the factor; its better end is ``mode``."""
    schedule: Schedule = case.new()
    if schedule.monitor is None:
        raise NotApplicable("it goes by steps alone")
    rising = [float(number) for number in range(1, 101)]
    found = {}
    for mode in ("min", "max"):
        schedule.mode = mode
        for better, scores in (("min", rising[::-1]), ("max", rising)):
            progress = Progress(500.0, 1000.0, 0.0, scores)
            found[mode, better] = schedule.factor(progress)
    # caught: the loss that is meant, where the metric is an accuracy
    if found["min", "min"] != found["max", "max"] or found["min", "max"] != found["max", "min"]:
        raise ConformanceFailure(
            "a metric whose better end is max gives other factors than one whose end is min",
            "compare by self.mode, which is min or max when a run asks for factors",
        )
    if found["min", "min"] == found["min", "max"]:
        raise ConformanceFailure(
            f"after 100 better scores and after 100 worse ones the factor is {found['min', 'min']}",
            "go by progress.scores, or leave monitor at None",
        )


@check("schedule", after=("factors_are_in_range",))
def needs_end_is_true(case: Case) -> None:
    """Where ``needs_end`` is False, the factor does not change with the run's end."""
    schedule: Schedule = case.new()
    if schedule.needs_end:
        return
    for done in (10.0, 50.0, 100.0):
        found = {end: schedule.factor(Progress(done, end, 10.0)) for end in (100.0, math.inf)}
        if len(set(found.values())) > 1:
            raise ConformanceFailure(
                f"after {done:g} steps, the factor is {found[100.0]} in a run of 100 steps and "
                f"{found[math.inf]} in an endless one",
                "set needs_end = True, so that a run without an end is refused",
            )


@check("schedule", after=_MADE)
def can_be_sent_to_workers(case: Case) -> None:
    """A pickled schedule gives the same factors: data workers ask for them, too."""
    schedule: Schedule = case.new()
    progress = Progress(500.0, 1000.0)
    try:
        again: Schedule = pickle.loads(pickle.dumps(schedule))  # noqa: S301  our own bytes
    except Exception as error:
        raise ConformanceFailure(
            f"pickling it raises {type(error).__name__}: {error}",
            "keep numbers and texts in self, no functions that __init__ makes",
        ) from error
    if again.factor(progress) != schedule.factor(progress):
        raise ConformanceFailure(
            "pickled, it gives other factors", "keep its settings in self, not in globals"
        )
