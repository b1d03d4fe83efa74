"""The model as the first word of a command, and evaluations by the names that they are known by."""

import json
from pathlib import Path

import pytest

from bertlab_evaluations.embed_command import _with_model
from bertlab_evaluations.evaluate_command import _named
from tests.conftest import Command


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["m", "blimp"], ["--ckpt_path", "m", "--config", "evaluations/blimp"]),
        (
            ["m", "probing", "--data", "d"],
            ["--ckpt_path", "m", "--evaluation", "probing", "--data", "d"],
        ),
        (["m", "attention"], ["--ckpt_path", "m", "--config", "evaluations/attention"]),
        (
            ["m", "attention", "--data", "d"],
            ["--ckpt_path", "m", "--evaluation", "attention", "--data", "d"],
        ),
        (["m", "own.yaml"], ["--ckpt_path", "m", "--config", "own.yaml"]),
        (["m", "--config", "own.yaml"], ["--ckpt_path", "m", "--config", "own.yaml"]),
        (["--ckpt_path", "m", "--evaluation", "probing"],) * 2,
    ],
)
def test_words_in_front_stand_for_options(typed: list[str], meant: list[str]) -> None:
    assert _named(typed, helping=False) == meant


def test_the_model_of_embed() -> None:
    assert _with_model(["m", "a.txt", "b.npy"]) == ["--model", "m", "a.txt", "b.npy"]
    old = ["--model", "m", "a.txt", "b.npy"]
    assert _with_model(old) == old
    assert _with_model(["a.txt", "b.npy", "--model", "m"]) == ["a.txt", "b.npy", "--model", "m"]


def test_a_known_name_with_data_of_ones_own(
    tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    pairs = tmp_path / "pairs.csv"
    pairs.write_text("good,bad\nit is so,so it is\nthey are here,they is here\n", "utf-8")
    where = tmp_path / "out"
    code, _, error = bertlab("evaluate", tiny_run, "blimp", "--data", pairs, "--output", where)
    assert code == 0, error
    assert "blimp/accuracy" in json.loads((where / "results.json").read_text("utf-8"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["RUN", "blimp", "--ckpt_path", "x"], "found RUN and --ckpt_path, expected one model"),
        (["RUN", "blimp", "--evaluation", "probing"], "found blimp and --evaluation"),
        (["RUN", "blimp", "stsb"], "expected MODEL NAME"),
        (["RUN", "blmp"], "no evaluation is called 'blmp'; did you mean 'blimp'?"),
        (["RUN", "evaluations/blmp"], "no evaluation is called 'blmp'; did you mean 'blimp'?"),
        (["RUN", __file__], f"expected an evaluation: bertlab evaluate RUN NAME --data {__file__}"),
        (["blimp", "RUN"], "expected the model first: bertlab evaluate RUN blimp"),
        (["RUN", "all", "--data", "x"], "has 3 evaluations, expected one"),
        (["RUN"], "expected NAME or --config FILE"),
        (["RUN", "blimb", "--data", "x"], "blimb"),
    ],
)
def test_mistakes(arguments: list[str], said: str, tiny_run: Path, bertlab: Command) -> None:
    given = [str(tiny_run) if each == "RUN" else each for each in arguments]
    code, _, error = bertlab("evaluate", *given)
    assert code == 2
    assert said.replace("RUN", str(tiny_run)) in error


def test_data_that_is_not_here(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "some-run").mkdir()  # a model that is not there is told first
    code, _, error = bertlab("evaluate", "some-run", "stsb")
    assert code == 2
    assert "stsb reads ../shared/data/glue/STS-B/dev.tsv.gz, which is not here" in error


@pytest.mark.slow
def test_the_model_of_predict_and_validate(tiny_run: Path, bertlab: Command) -> None:
    line = ("--text", "it [MASK] so")
    old = bertlab("predict", "--ckpt_path", tiny_run, *line)
    assert old[0] == 0
    assert bertlab("predict", tiny_run, *line)[1] == old[1]
    assert bertlab("validate", tiny_run)[0] == 0
    code, _, error = bertlab("predict", tiny_run, "--ckpt_path", tiny_run, *line)
    assert code == 2
    assert "expected one model" in error
