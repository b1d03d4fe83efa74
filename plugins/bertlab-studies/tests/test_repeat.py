"""``fit --seeds`` and ``fit --against_scratch``: where their runs lie, and how they go on."""

import json
import math
import os
import signal
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bertlab.config.merge import read_request
from bertlab.errors import ConfigError, OutputError
from bertlab_studies import repeat
from bertlab_studies.errors import MixtureError, StudyChangedError
from bertlab_studies.execute.run_state import Outcome, read_attempts
from bertlab_studies.repeat import (
    Repetition,
    asks_for_runs,
    find_repetition,
    fit_repeatedly,
    report,
    spread,
)
from fake_fit import FAKE, fake_run, wait_for


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "x"  # the fake program writes two folders above a run


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeat, "FIT", FAKE)


def asked(
    run_dir: Path,
    seeds: Sequence[int] | None = (1, 2),
    against_scratch: bool = False,
    **program: int,
) -> Repetition:
    run_dir.mkdir(parents=True, exist_ok=True)
    arguments = fake_run("any", **program).arguments  # type: ignore[arg-type]
    return Repetition(arguments, run_dir, seeds and tuple(seeds), against_scratch)


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("seeds", "against_scratch", "places"),
    [
        ((3, 1), False, ["seed-3", "seed-1"]),
        ((2,), True, ["seed-2", "from-scratch/seed-2"]),
        (None, True, ["", "from-scratch"]),
    ],
)
def test_runs_lie_where_those_of_fit_do(
    seeds: tuple[int, ...] | None,
    against_scratch: bool,
    places: list[str],
    run_dir: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    repetition = asked(run_dir, seeds, against_scratch)
    runs = repetition.runs()
    assert [run.directory(run_dir) for run in runs] == [run_dir / place for place in places]
    assert ["--model.from_scratch=true" in run.arguments for run in runs] == [
        "scratch" in place for place in places
    ]
    assert fit_repeatedly(repetition) == 0
    losses = [
        json.loads((run_dir / place / "results.json").read_text())["loss"] for place in places
    ]
    found = json.loads((run_dir / "repeated.json").read_text())
    assert found["seeds"] == (None if seeds is None else list(seeds))
    of_pre_trained = found["pre-trained"] if against_scratch else found
    mean = of_pre_trained["last"]["loss"]["mean"]
    assert mean == statistics.fmean(losses[:1] if against_scratch else losses)
    out = capfd.readouterr().out
    assert out.count("done in") == len(places)
    assert "fake/accuracy" in out.splitlines()[-2] or "50.0%" in out


@pytest.mark.slow
def test_a_run_that_fails_gives_its_exit_code_and_the_same_again_goes_on(
    run_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    repetition = asked(run_dir, fail_at=1, failures=1, steps=3)
    assert fit_repeatedly(repetition) == 7
    out = capfd.readouterr().out
    assert "out of paper\n" in out  # what the run itself printed
    assert "failed: seed-1: exit code 7: out of paper" in out
    assert "continue with: the same command" in out
    assert not (run_dir / "repeated.json").exists()
    assert fit_repeatedly(repetition) == 7  # now the second one fails
    assert fit_repeatedly(repetition) == 0
    for run in repetition.runs():
        outcomes = [each.outcome for each in read_attempts(run, run_dir)]
        assert outcomes == [Outcome.FAILED, Outcome.DONE]
        assert read_attempts(run, run_dir)[1].resumed
    assert fit_repeatedly(repetition) == 0  # only prints the table again
    more = asked(run_dir, (1, 2, 3))
    assert fit_repeatedly(more) == 0
    attempts = [len(read_attempts(run, run_dir)) for run in more.runs()]
    assert attempts == [2, 2, 1]


def test_what_an_attempt_in_the_common_directory_left_is_removed_and_nothing_else(
    run_dir: Path,
) -> None:
    repetition = asked(run_dir, None, against_scratch=True)
    (run_dir / "csv").mkdir()
    (run_dir / "manifest.json").write_text("{}")
    (run_dir / "csv" / "metrics.csv").write_text("")
    (run_dir / "plan.json").write_text("{}")
    (run_dir / "from-scratch").mkdir()
    (run_dir / "from-scratch" / "manifest.json").write_text("{}")
    (run_dir / "from-scratch" / "results.json").write_text('{"loss": 0.5}')
    assert fit_repeatedly(repetition) == 0
    assert not (run_dir / "csv" / "metrics.csv").exists()
    assert (run_dir / "plan.json").exists()
    assert json.loads((run_dir / "from-scratch" / "results.json").read_text()) == {"loss": 0.5}
    assert [len(read_attempts(run, run_dir)) for run in repetition.runs()] == [1, 0]


def test_where_no_run_begins_nothing_is_left(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nothing = Repetition(("--seconds=many",), run_dir, (1, 2), against_scratch=False)
    run_dir.mkdir(parents=True)
    (run_dir / "plan.json").write_text("{}")
    assert fit_repeatedly(nothing) == 2
    assert not run_dir.exists()
    said = capsys.readouterr().out
    assert said.count("invalid float value") == 1, "once, as the run said it"
    assert "log:" not in said, "it is gone, too"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (("--model.optimizer.lerning_rate=1",), "lerning_rate: no such key; did you mean"),
        (("--data.batch_size=0",), "data.batch_size: found 0, expected 1 or more"),
        (("--seeds=[1,2,1]",), r"seeds: found \[1, 2, 1\], expected each seed once"),
    ],
)
def test_what_is_wrong_is_told_before_the_first_run(
    tmp_path: Path, given: tuple[str, ...], expected: str
) -> None:
    asked_for = ("finetune/quickstart", "--model.init_from=run", f"--run_dir={tmp_path}/runs")
    with pytest.raises(ConfigError, match=expected):
        found("--config", *asked_for, *given)
    assert not list(tmp_path.iterdir())


def found(*arguments: object) -> Repetition:
    argv = list(map(str, arguments))
    return find_repetition(read_request(argv))


@pytest.mark.parametrize("off", ["False", "false", "no", "off", "null", "~"])
@pytest.mark.parametrize("key", ["against_scratch", "seeds"])
def test_what_is_off_in_yaml_asks_for_no_runs(
    key: str, off: str, tiny_config: Path, tmp_path: Path
) -> None:
    given = ("--config", str(tiny_config), "--run_dir", str(tmp_path / "x"))
    assert not asks_for_runs(read_request([*given, f"--{key}={off}"]))
    beside = {"against_scratch": "--seeds=2", "seeds": "--seed_everything=4"}[key]
    asked_for = read_request([*given, f"--{key}={off}", beside])
    assert asks_for_runs(asked_for) == (key == "against_scratch")
    if key == "against_scratch":  # with no pre-trained model it would be refused
        assert found(*given, f"--{key}={off}", beside).against_scratch is False


@pytest.mark.parametrize("off", ["False", "no", "null"])
def test_predictions_that_are_not_to_be_kept_are_said_so_in_one_word(
    off: str, tiny_config: Path, tmp_path: Path
) -> None:
    given = ("--config", tiny_config, "--run_dir", tmp_path / "x", "--seeds=2")
    arguments = found(*given, f"--keep_predictions={off}").arguments
    assert [each for each in arguments if "keep_predictions" in each][-1].endswith("=false")


@pytest.mark.parametrize("lost", [math.nan, math.inf])
def test_the_spread_of_a_figure_that_is_not_finite_is_none(lost: float) -> None:
    found = spread([{"loss": lost, "accuracy": 0.25}, {"loss": 1.0, "accuracy": 0.75}])
    mean, deviation = found["loss"].values()
    assert mean is not None
    assert not math.isfinite(mean)
    assert deviation is not None
    assert math.isnan(deviation)
    assert found["accuracy"] == {"mean": 0.5, "deviation": pytest.approx(0.125**0.5)}
    assert spread([{"loss": lost}])["loss"]["deviation"] is None
    both = spread([{"loss": math.inf}, {"loss": -math.inf}])["loss"]["mean"]
    assert both is not None
    assert math.isnan(both)


@pytest.mark.slow
def test_the_same_command_finds_its_directory_again_until_it_is_done(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = ("--config", tiny_config, "--seeds", "2")
    place = Path("runs") / tiny_config.stem
    assert found(*given).study_dir == place
    assert found(*given).study_dir == place
    assert found(*given, "--trainer.max_steps", "2").study_dir == Path(f"{place}-2")
    (place / "repeated.json").write_text("{}")
    assert found(*given).study_dir == Path(f"{place}-3")


def test_a_directory_with_other_runs_is_refused(tiny_config: Path, tmp_path: Path) -> None:
    given = ("--config", tiny_config, "--seeds", "2", "--run_dir", tmp_path / "x")
    assert found(*given).seeds == (1, 2)
    with pytest.raises(StudyChangedError, match="max_steps: '2' here, None there"):
        found(*given, "--trainer.max_steps", "2")
    (tmp_path / "x" / "plan.json").unlink()  # as versions without it left it
    (tmp_path / "x" / "seed-1").mkdir()
    (tmp_path / "x" / "seed-1" / "manifest.json").write_text("{}")
    with pytest.raises(OutputError, match="seed-1 already holds a run"):
        found(*given)


def test_a_wrong_config_is_refused_before_there_is_a_directory(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for wrong in ("--trainer.max_step=3", "--data.max_seq_length=100000"):
        with pytest.raises(Exception, match=r"max_steps|max_seq_length"):
            found("--config", tiny_config, "--seeds", "2", wrong)
    assert not list(tmp_path.iterdir())


@pytest.mark.nightly
@pytest.mark.timeout(600)  # processes that import torch, on a machine with other work
def test_an_interrupted_command_goes_on_when_it_is_given_again(
    tiny_config: Path, tmp_path: Path
) -> None:
    def command(run_dir: Path) -> list[str]:
        fit = [sys.executable, "-m", "bertlab", "fit", "--config", str(tiny_config)]
        return [*fit, "--seeds=2", "--trainer.max_steps=24", f"--run_dir={run_dir}"]

    stopped = tmp_path / "stopped"
    process = subprocess.Popen(command(stopped), stdout=subprocess.PIPE, text=True)
    wait_for((stopped / "seed-1" / "checkpoints" / "last.ckpt").exists, 300)
    os.kill(process.pid, signal.SIGINT)
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 130, out
    assert "stopped; continue with: the same command" in out
    assert not (stopped / "seed-2").exists()
    for run_dir in (stopped, tmp_path / "undisturbed"):
        subprocess.run(command(run_dir), check=True, capture_output=True)
    results = [
        (tmp_path / name / "repeated.json").read_bytes() for name in ("stopped", "undisturbed")
    ]
    assert results[0] == results[1]


def test_runs_of_other_data_have_no_common_table(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    repetition = asked(run_dir, (1, 2, 3))
    for run, rows in zip(repetition.runs(), ("aa", "aa", "bb"), strict=True):
        directory = run.directory(run_dir)
        directory.mkdir(parents=True)
        facts = {"data": {"train": {"rows": 4, "fingerprint": rows}, "report": {}}}
        (directory / "manifest.json").write_text(json.dumps(facts))
        (directory / "results.json").write_text('{"loss": 0.5}')
    words = rf"different data.*: {run_dir}/seed-1, {run_dir}/seed-2 \| {run_dir}/seed-3; delete"
    with pytest.raises(MixtureError, match=words):
        report(repetition)
    assert not (run_dir / "repeated.json").exists()
    capsys.readouterr()
    report(asked(run_dir, (1, 2)))
    assert (run_dir / "repeated.json").exists()


def test_the_home_directory_is_meant_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    line = ["--config", "quickstart", "--seeds", "[1, 2]", "--run_dir=~/x"]
    for _ in range(2):
        assert find_repetition(read_request(line)).study_dir == tmp_path / "x"
    with pytest.raises(StudyChangedError, match="holds runs of another config"):
        find_repetition(read_request([*line, "--trainer.max_steps", "3"]))
