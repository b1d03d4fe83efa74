"""Mistakes of a first run: a template as it came, numbers as classes; an example for each code."""

from pathlib import Path

import pytest

from bertlab.errors import remedy_of
from bertlab_conformance.error_examples import EXAMPLES
from bertlab_conformance.explain import catalogue
from bertlab_conformance.number_labels import are_numbers
from tests.conftest import Command


def test_a_template_that_is_not_filled_in(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bertlab("init", "classification", "mine.yaml")[0] == 0
    lines = Path("mine.yaml").read_text("utf-8").splitlines()
    source, text, label = (n for n, line in enumerate(lines, 1) if "# <<<" in line)
    code, _, error = bertlab("fit", "mine.yaml")
    assert code == 2
    assert f"mine.yaml:{source}: data.source: my-texts.csv is the template's" in error
    assert f"fill in lines {source}, {text}, {label}" in error
    # what the command line gives is filled in
    code, _, error = bertlab("fit", "mine.yaml", "--data.source", "other.csv")
    assert "template" not in error
    assert bertlab("init", "pretraining", "text.yaml")[0] == 0
    code, _, error = bertlab("fit", "text.yaml")
    assert "data.corpus: my-text/ is the template's" in error
    assert "fill in line " in error


@pytest.mark.parametrize(
    ("names", "asks"),
    [
        (["1", "2", "3", "4", "5"], True),
        (["0", "1"], False),
        (["0.5", "1.5"], True),
        (["0,5", "1,5"], True),
        (["-1", "0", "1"], False),
        (["a", "1", "2", "3", "4"], False),
    ],
)
def test_labels_that_are_numbers(names: list[str], asks: bool) -> None:
    assert are_numbers(names) is asks


@pytest.mark.slow
def test_numbers_as_classes_are_asked_about(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    rows = tmp_path / "rows.csv"
    rows.write_text("text,label\n" + "".join(f"it is {n},{n % 5}\n" for n in range(60)), "utf-8")
    common = (
        *("fit", "--model.init_from", tiny_run, "--model.head", "single_sentence"),
        *("--data.source", rows, "--data.max_seq_length", 32, "--data.batch_size", 8),
        *("--trainer.max_steps", 1, "--trainer.accelerator", "cpu", "--run_dir"),
    )
    code, _, error = bertlab(*common, tmp_path / "a")
    assert code == 0, error
    assert "the 5 labels are numbers, from 0 to 4" in error
    code, _, error = bertlab(*common, tmp_path / "b", "--model.head.regression", "true")
    assert code == 0, error
    assert "labels are numbers" not in error


def test_every_code_has_a_remedy_and_an_example(bertlab: Command) -> None:
    for code, error in catalogue().items():
        assert remedy_of(error)
        assert code in EXAMPLES, code
    assert "For example:  bertlab fit quikstart" in bertlab("explain", "E102")[1]
