"""Plugins with one bug each are caught by the check that is made for it, and by no other."""

from collections.abc import Callable
from typing import Any

import pytest

import broken_adapters
import broken_commands
import broken_data
import broken_evaluations
import broken_exchange
import broken_forms
import broken_heavy_command
import broken_hooks
import broken_masking
import broken_objectives
import broken_optimizers
import broken_others
import broken_tokenizers
import good_commands
import good_exchange
import good_plugins
import small_bugs
from bertlab_conformance.cases import KINDS
from bertlab_conformance.check import Check, CheckRunner, ConformanceFailure
from bertlab_conformance.checks import forms, whole_runs
from bertlab_conformance.kit import checks_of, find_plugin, make_case

# of a second together, and of no bug but their own
SLOW = {
    "learns",
    "lowers_a_loss",
    "resumes_exactly",
    "tasks_can_read_it",
    "every_input_format_works",
    "works_in_a_run",
    "run_goes_on_without_its_config",
    "transformers_gives_the_same",
    "defaults_change_nothing",
    "events_are_taken_note_of",
    "is_a_score_of_the_run",
    "models_of_transformers_are_read",
    "models_are_written_back",
    "other_layers_are_refused",
}

TAKE_SECONDS = ("WaitsForTorch", "SlowEncoding", "Slow")  # to be slow is their bug
OF_FORMS = {each.name for each in vars(forms).values() if isinstance(each, Check)}
OF_A_RUN = {each.name for each in vars(whole_runs).values() if isinstance(each, Check)}


def classes(*modules: object) -> list[Any]:
    found = [value for module in modules for value in vars(module).values()]
    return [v for v in found if isinstance(v, type) and isinstance(vars(v).get("expects"), tuple)]


BUGS = classes(
    *(broken_objectives, broken_others, broken_evaluations, broken_optimizers, broken_tokenizers),
    *(broken_commands, broken_exchange, broken_heavy_command, broken_adapters, broken_masking),
    *(broken_data, broken_forms),
)
BUGS += [*broken_hooks.BUGS, *broken_data.BUGS]
SMALL_BUGS = [bug for bug in classes(small_bugs) if bug not in BUGS]
GOOD = [
    value
    for module in (good_plugins, good_commands, good_exchange)
    for name, value in vars(module).items()
    if name.startswith("Good")
]
GOOD += [broken_hooks.Good, broken_data.GoodData, broken_data.GoodWordPiece]
GOOD.append(broken_data.good_name)


def failures(plugin: Any, wanted: Callable[[str], bool] = lambda name: True) -> dict[str, str]:
    kind, _ = find_plugin(plugin)
    options = {"encoder": good_plugins.GoodEncoder} if kind in ("objective", "head") else {}
    case = make_case(kind, plugin, vars(good_exchange).get(f"{kind}_arguments", {}), options)
    known = {check.name: check for check in checks_of(kind)}
    runner = CheckRunner(case, known, skipped=set())
    outcomes = {name: runner.outcome(name) for name in known if wanted(name)}
    return {
        name: str(outcome)
        for name, outcome in outcomes.items()
        if isinstance(outcome, ConformanceFailure)
    }


@pytest.mark.nightly  # runs all checks on each bug; the next test runs the one that must find it
@pytest.mark.parametrize("plugin", BUGS, ids=lambda plugin: plugin.__name__)
def test_exactly_the_check_made_for_it_catches_a_bug(plugin):
    check, words = plugin.expects
    found = failures(plugin, wanted=lambda name: name not in SLOW or name == check)
    assert list(found) == [check]
    assert words in found[check]
    assert "\n  what to do: " in found[check]


@pytest.mark.parametrize(
    "plugin",
    [
        # those that a run finds need one; the bugs of the other checks are found in a moment
        pytest.param(each, marks=[pytest.mark.nightly] * (each.expects[0] in OF_A_RUN))
        if each.__name__ not in TAKE_SECONDS and each.expects[0] not in OF_FORMS
        else pytest.param(each, marks=pytest.mark.slow)
        for each in [*BUGS, *SMALL_BUGS]
    ],
    ids=lambda plugin: plugin.__name__,
)
def test_the_check_made_for_it_catches_a_bug_and_what_it_builds_on_does_not(plugin):
    check, words = plugin.expects
    found = failures(plugin, wanted=lambda name: name == check)
    assert words in found[check]
    assert "\n  what to do: " in found[check]


@pytest.mark.parametrize("plugin", GOOD, ids=lambda plugin: plugin.__name__)
def test_the_same_plugins_without_a_bug_pass(plugin):
    assert failures(plugin, wanted=lambda name: name not in SLOW) == {}


@pytest.mark.nightly
@pytest.mark.parametrize("plugin", GOOD, ids=lambda plugin: plugin.__name__)
def test_they_pass_in_whole_runs(plugin):
    assert failures(plugin, wanted=lambda name: name in SLOW) == {}


def test_there_are_bugs_of_every_kind():
    kinds = [find_plugin(plugin)[0] for plugin in BUGS]
    assert set(KINDS) == set(kinds)
    assert len(kinds) >= 40


def test_nearly_every_check_has_its_bug():
    caught = {(find_plugin(bug)[0], bug.expects[0]) for bug in [*BUGS, *SMALL_BUGS]}
    checks = {check.name for kind in KINDS for check in checks_of(kind)}
    without = checks - {name for _, name in caught}
    assert without == {
        "entry_point_names_it",  # of an installed package: test_conformance
        "endings_can_be_found",  # of an installed package: test_conformance
        "name_is_free",  # of an installed package: test_conformance
        "given_rows_are_readable",  # of given rows, not of a plugin: test_conformance
        "neighbours_do_not_matter",  # holds if nothing leaks: for those who read one message only
        "order_does_not_matter",
        "prepares_the_same_in_a_worker",
        "tasks_can_read_it",
        "runs_on_a_gpu",
    }
