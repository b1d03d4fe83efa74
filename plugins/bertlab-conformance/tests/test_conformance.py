"""What the author of a plugin says to the kit, and what it answers."""

from importlib.metadata import EntryPoint

import pytest

import broken_objectives
from bertlab.api.examples import Column, Example, Features
from bertlab.api.task import Task
from bertlab.errors import DataError, PluginError
from bertlab.plugins import index
from bertlab.plugins.index import Plugin
from bertlab.testing import batch_of, conformance, list_checks
from bertlab_conformance.cases import KINDS
from bertlab_conformance.check import CheckRunner, ConformanceFailure, NotApplicable
from bertlab_conformance.checks import classes, formats
from bertlab_conformance.kit import checks_of, find_plugin, make_case
from good_exchange import GoodFormat
from good_plugins import GoodEncoder, GoodHead, GoodMetric, GoodObjective
from tests.plugins.strange_packages import install

EXPECTED = {
    "encoder": 35,
    "objective": 60,
    "head": 65,
    "adapter": 15,
    "masking_unit": 14,
    "input_format": 13,
    "transform": 14,
    "metric": 24,
    "source": 12,
    "evaluation": 20,
    "optimizer": 20,
    "schedule": 15,
    "tokenizer": 15,
    "command": 9,
    "exporter": 15,
    "reader": 9,
    "executor": 15,
    "format": 11,
    "data_module": 9,
    "tokenizer_model": 9,
    "huggingface_form": 10,
    "name": 3,
    "hooks": 9,
}


def parameters(test):
    (mark,) = test.pytestmark
    return {parameter.id: parameter for parameter in mark.args[1]}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_has_its_checks_each_with_a_line_that_says_what_holds(kind):
    listed = list_checks(kind)
    names = [name for name, _ in listed]
    assert len(names) == len(set(names)) >= EXPECTED[kind]
    for name, summary in listed:
        assert name.isidentifier()
        assert summary.endswith(".")
        assert len(summary) > 20


def test_checks_build_on_checks_that_exist():
    every = [check for kind in KINDS for check in checks_of(kind)]
    known = {check.name for check in every}
    assert {name for check in every for name in check.after} <= known


def test_a_case_for_each_check_with_its_name_as_id():
    names = [name for name, _ in list_checks("objective")]
    assert list(parameters(conformance(GoodObjective))) == names


def test_the_kind_follows_from_the_base_class():
    assert "causal_is_true" in parameters(conformance(GoodEncoder))
    assert "monitor_exists" in parameters(conformance(GoodHead))
    assert "several_devices_agree" in parameters(conformance(GoodMetric))
    assert "corrupts_input_is_true" in parameters(conformance("mlm"))


def test_a_skipped_check_shows_its_reason():
    test = conformance(GoodObjective, skip={"learns": "the labels are random"})
    (mark,) = parameters(test)["learns"].marks
    assert mark.name == "skip"
    assert mark.kwargs["reason"] == "the labels are random"


class OfNoKind(Task):
    """Neither objective nor head."""


@pytest.mark.parametrize(
    ("plugin", "options", "words"),
    [
        (
            GoodObjective,
            {"skip": {"learn": "…"}},
            "no check 'learn' of objectives; did you mean 'learns'?",
        ),
        (
            GoodObjective,
            {"rows": [{"text": "a"}]},
            "objectives have no use for rows; it is for: head, metric",
        ),
        (GoodMetric, {"encoder": GoodEncoder}, "metrics have no use for encoder"),
        (OfNoKind, {}, "OfNoKind is of no kind; a task is an Objective or a Head"),
        (int, {}, "builtins.int is of no kind"),
        (GoodObjective(), {}, "expected a class"),
        ("mml", {}, "no installed plugin is called 'mml'; did you mean 'mlm'?"),
    ],
)
def test_a_wrong_line_is_refused_with_one_message(plugin, options, words):
    with pytest.raises(PluginError) as raised:
        conformance(plugin, **options)
    assert words in str(raised.value)


def runner_of(plugin, **options):
    kind, _ = find_plugin(plugin)
    case = make_case(kind, plugin, {}, options)
    return CheckRunner(case, {check.name: check for check in checks_of(kind)}, skipped=set())


def test_given_rows_are_checked_and_refused_with_the_reason():
    rows = [{"text": "the house", "label": "yes"}, {"text": "water", "label": "no"}] * 4
    assert runner_of(GoodHead, rows=rows).outcome("merges_to_rows") is None
    failure = runner_of(GoodHead, rows=[*rows, {"text": "", "label": "no"}]).outcome("evaluates")
    assert isinstance(failure, NotApplicable)
    assert str(failure) == "encode_fits_the_encoder fails; mend that first"
    failure = runner_of(GoodHead, rows=[{"text": "", "label": "no"}]).outcome(
        "encode_fits_the_encoder"
    )
    assert isinstance(failure, ConformanceFailure)
    assert "encode() refuses the given rows: rows:1: text: is empty" in str(failure)


class WithParents(GoodHead):
    """Read the number of each word's parent besides; refuse what is no number."""

    columns = (*GoodHead.columns, Column("parents", "tags", is_truth=True))

    def truth(self, row: Example) -> dict[str, int]:
        wrong = [each for each in row.values.get("parents", []) if not each.isdigit()]
        if wrong:
            raise DataError(f"{row.where}: parents: found {wrong[0]!r}, expected a number")
        return super().truth(row)


@pytest.mark.parametrize("check", ["unknown_label_is_an_error", "one_class_is_no_traceback"])
def test_values_that_are_no_classes_are_left_as_they_are_given(check):
    rows = [
        {"text": "the house", "label": "yes", "parents": ["1", "0"]},
        {"text": "water runs", "label": "no", "parents": ["0", "0"]},
    ]
    runner = runner_of(WithParents, rows=rows * 4)
    assert runner.outcome(check) is None
    assert "the kit cannot make values of parents" in str(runner.outcome("many_classes_work"))


def test_a_class_that_no_entry_point_of_its_package_names(monkeypatch):
    """As after a class was renamed in the module and not in pyproject.toml."""
    outcome = runner_of(GoodObjective).outcome("entry_point_names_it")
    assert str(outcome) == "no installed package has entry points of good_plugins"
    for name, words in (
        ("Goodobjective", "(there is good = good_plugins:Goodobjective)"),
        ("GoodObjective", None),
    ):
        target = f"good_plugins:{name}"
        plugin = Plugin("objective", "good", target, "bertlab-good", "1.0", 3)
        monkeypatch.setattr(classes, "listed", lambda kind, own=plugin: [own] * (kind == own.kind))
        outcome = runner_of(GoodObjective).outcome("entry_point_names_it")
        assert (outcome is None) if words is None else (words in str(outcome))


@pytest.mark.parametrize(
    ("ending", "target", "words"),
    [
        (".good", "good_exchange:GoodFormat", None),
        ("good", "good_exchange:GoodFormat", "'good' is no ending of a name"),
        (".GOOD", "good_exchange:GoodFormat", "'.GOOD' is no ending of a name"),
        (".good", "good_exchange:Renamed", "good_exchange:Renamed, which is no entry point"),
        (".good", "of_others:Format", "no entry point of bertlab.endings names a class"),
    ],
)
def test_endings_that_a_package_claims(ending, target, words, monkeypatch):
    entry = EntryPoint(ending, target, "bertlab.endings")
    plugin = Plugin("format", "good", "good_exchange:GoodFormat", "bertlab-good", "1.0", 3)
    monkeypatch.setattr(formats, "entry_points_of", lambda group: [entry])
    monkeypatch.setattr(formats, "listed", lambda kind: [plugin])
    outcome = runner_of(GoodFormat).outcome("endings_can_be_found")
    assert (outcome is None) if words is None else (words in str(outcome))


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"text": ["a", "list"], "label": "no"}, "expected a text"),
        ({"text": "", "label": "no"}, "is empty, expected a text"),
        ({"label": "no"}, "text: is missing"),
        ({"text": "one", "label": 1}, "label is 1, and a run would get '1'"),
    ],
)
def test_a_row_that_no_run_would_get_is_caught(row: dict[str, object], words: str) -> None:
    rows = [{"text": "good", "label": "yes"}, row]
    failure = runner_of(GoodHead, rows=rows).outcome("given_rows_are_readable")
    assert words in str(failure)


def test_given_tokens_are_the_vocabulary():
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "over", "sea", "##s", "and", "land"]
    runner = runner_of(GoodObjective, vocabulary=tokens)
    assert runner.outcome("loss_is_a_finite_scalar") is None
    assert runner.outcome("every_input_format_works") is None


def test_one_cause_is_one_failure():
    runner = runner_of(broken_objectives.AbstractOne)
    outcomes = {name: runner.outcome(name) for name, _ in list_checks("objective")}
    failed = [name for name, each in outcomes.items() if isinstance(each, ConformanceFailure)]
    assert failed == ["is_complete"]
    assert str(outcomes["learns"]) == "is_complete fails; mend that first"


def test_an_error_of_the_plugin_names_its_line_and_keeps_its_cause():
    failure = runner_of(broken_objectives.NeedsTwoSequences).outcome("one_sequence_works")
    assert isinstance(failure, ConformanceFailure)
    assert "IndexError" in failure.seen
    assert "broken_objectives.py, line " in failure.seen
    # from Python 3.12 on, a comprehension is part of its function
    assert failure.seen.endswith(("in <listcomp>)", "in decode)"))
    assert isinstance(failure.__cause__, IndexError)


def test_random_numbers_of_other_tests_go_on_undisturbed():
    import numpy as np
    import torch

    torch.manual_seed(1)
    np.random.seed(1)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    runner = runner_of(broken_objectives.DrawsFromNumPy)
    runner.outcome("prepare_leaves_global_random_numbers_alone")
    runner.outcome("learns")
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


def test_a_head_s_own_tests_make_batches_of_its_features():
    batch = batch_of(
        [Features([2, 9, 3], [0] * 3, {"label": 1}), Features([2, 3], [0] * 2, {"label": 0})]
    )
    assert batch.cu_seqlens.tolist() == [0, 3, 5]
    assert batch.fields["label"].tolist() == [1, 0]


def test_a_name_of_bertlabs_own_is_taken(tmp_path, monkeypatch):
    code = "def predict(model):\n    '''Guess.'''\n"
    targets = {"bertlab.names": {"PretrainedModel.predict": "guessing:predict"}}
    install(tmp_path, "guesses", targets, {"guessing": code})
    monkeypatch.syspath_prepend(tmp_path)
    index.forget_installed()
    try:
        kind, found = find_plugin("PretrainedModel.predict")
        case = make_case(kind, found, {}, {})
        with pytest.raises(ConformanceFailure, match="a name of bertlab itself already"):
            next(each for each in checks_of(kind) if each.name == "name_is_free").run(case)
    finally:
        index.forget_installed()
