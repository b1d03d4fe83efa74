"""What pytest shows of the kit: messages without tracebacks, reasons of skips; its fixtures."""

import pytest

import broken_objectives  # noqa: F401

# pytester forgets what is imported inside
from bertlab_conformance import pytest_plugin  # noqa: F401

pytest_plugins = "pytester"

FILE = """
from bertlab.testing import conformance
from broken_objectives import MeanLoss

test_conformance = conformance(MeanLoss, skip={"learns": "takes long"})

def test_sum():
    total = 2
    assert total == 3
"""
CONFTEST = 'pytest_plugins = ["bertlab_conformance.pytest_plugin"]'
FIXTURES = """
def test_fixtures(bertlab_tokenizer, bertlab_encoder):
    ids = bertlab_tokenizer.encode("the house")
    assert bertlab_tokenizer.unk_id not in ids
    assert bertlab_encoder.vocab_size == bertlab_tokenizer.vocab_size
"""
CHOSEN = ("-k", "loss_is_a_sum or loss_does_not_leak or learns or pooled or sum")


@pytest.fixture
def run(pytester, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")

    def run_pytest(text, *arguments, debug="0"):
        monkeypatch.setenv("BERTLAB_DEBUG", debug)
        pytester.makepyfile(test_plugin=text)
        # hypothesis and anyio would be imported anew in each run
        without = [
            f"-pno:{name}" for name in ("cacheprovider", "hypothesispytest", "anyio", "bertlab")
        ]
        return pytester.runpytest_inprocess(*without, *arguments)

    return run_pytest


@pytest.mark.slow
def test_messages_and_reasons(run):
    result = run(FILE, *CHOSEN, "-ra", "-v")
    result.assert_outcomes(passed=3, failed=2, skipped=2)
    text = result.stdout.str()
    failure = text[text.index("__ test_conformance[loss_is_a_sum] __") :].split("\n__")[0]
    assert "\nloss_is_a_sum: sum is " in failure
    assert "that is a mean\n  what to do: return the sum over the predictions" in failure
    assert len(failure.splitlines()) == 3
    result.stdout.fnmatch_lines(["test_plugin.py::test_conformance[[]uses_pooled_is_true] PASSED*"])
    result.stdout.fnmatch_lines(["SKIPPED * test_plugin.py:4: takes long"])
    result.stdout.fnmatch_lines(
        ["SKIPPED * test_plugin.py:4: loss_is_a_sum fails; mend that first"]
    )
    result.stdout.fnmatch_lines(
        ["FAILED *test_conformance[[]loss_is_a_sum] - ConformanceFailure: loss_is_a_sum: sum *"]
    )


def test_one_line_in_conftest_opts_in_to_the_fixtures(run, pytester):
    run(FIXTURES).assert_outcomes(errors=1)
    pytester.makeconftest(CONFTEST)
    run(FIXTURES).assert_outcomes(passed=1)


def test_failures_of_other_tests_keep_their_traceback(run):
    result = run(FILE, "-k", "test_sum")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([">*assert total == 3", "E*assert 2 == 3"])


@pytest.mark.slow
def test_the_traceback_is_there_for_those_who_want_it(run):
    result = run(FILE, "-k", "loss_is_a_sum", debug="1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *ConformanceFailure: loss_is_a_sum*", "*losses.py:*"])


def test_a_line_that_the_kit_refuses_is_one_message(run):
    result = run("from bertlab.testing import conformance\ntest_conformance = conformance(int)\n")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["conformance: builtins.int is of no kind; subclass one: *"])
    assert "Traceback" not in result.stdout.str()
    assert "kit.py" not in result.stdout.str()
