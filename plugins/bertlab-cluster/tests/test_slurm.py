"""Studies as jobs of SLURM: submitit's own executor, and a scheduler of one machine."""

import platform
import signal
import sys
from pathlib import Path

import pytest
import yaml

import fake_slurm
from bertlab.config.yaml_files import read_config
from bertlab.errors import ConfigError
from bertlab_cluster.slurm import run_on_slurm
from bertlab_studies.execute.run_state import Outcome, State, last_step, read_attempts
from bertlab_studies.execute.schedule import Change, Summary
from bertlab_studies.plan.plan import PlannedRun
from fake_fit import FAKE, fake_run, wait_for

Plan = list[PlannedRun]


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A directory whose name a shell would take apart."""
    folder = tmp_path / "a 'study' of $HOME; `touch oops`"
    folder.mkdir()
    return folder


def run(plan: Plan, study: Path, **settings: object) -> Summary:
    settings = {"on_change": lambda change: None, **settings}
    return run_on_slurm(plan, study, program=FAKE, **settings)  # type: ignore[arg-type]


def calls(slurm: Path, command: str) -> list[str]:
    file = slurm / "calls"
    lines = file.read_text().splitlines() if file.exists() else []
    return [line for line in lines if line.startswith(f"{command} ")]


def outcomes(run: PlannedRun, study: Path) -> list[Outcome]:
    return [attempt.outcome for attempt in read_attempts(run, study)]


def interrupted(plan: Plan, study: Path, **settings: object) -> Summary:
    """Return what a runner says that hears Ctrl-C once the first job is submitted."""
    stop = lambda change: signal.raise_signal(signal.SIGINT)  # noqa: E731
    return run(plan, study, on_change=stop, **settings)


def test_without_submitit_it_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ConfigError, match=r"pip install 'bertlab-lightning\[slurm\]'"):
        run([fake_run("a")], tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_slurm_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r'--executor slurm: Could not detect "srun"'):
        run([fake_run("a")], tmp_path)


@pytest.mark.nightly
@pytest.mark.usefixtures("slurm")
def test_options_that_another_directory_keeps(study: Path) -> None:
    kept_in = study / "slurm" / "options.yaml"
    run([fake_run("a")], study / "tuning", options={"time": 7}, kept_in=kept_in)
    assert read_config(kept_in)["time"] == 7
    assert not (study / "tuning" / "slurm" / "options.yaml").exists()
    kept_in.write_text("time: 0")
    with pytest.raises(ConfigError, match="time: found 0"):  # it is read
        run([fake_run("b")], study / "tuning", kept_in=kept_in)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"partitoin": "gpu"}, "--slurm: found 'partitoin'; did you mean 'partition'"),
        ({"nodes": 2}, "--slurm: found 'nodes'"),
        ({"time": "4:00:00"}, "--slurm: time: found '4:00:00', expected minutes"),
        ({"time": 0}, "time: found 0"),
        ({"cpus_per_task": None}, "cpus_per_task: found None, expected a number"),
    ],
)
def test_wrong_options_are_one_message_and_nothing_is_submitted(
    options: dict[str, object], message: str, slurm: Path, study: Path
) -> None:
    with pytest.raises(ConfigError, match=message):
        run([fake_run("a")], study, options=options)
    assert list(study.iterdir()) == []
    assert not calls(slurm, "sbatch")


def test_a_directory_with_a_pattern_of_slurms_is_refused(slurm: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="takes % in a path for one of its patterns"):
        run([fake_run("a")], tmp_path / "%j")


@pytest.mark.slow
def test_options_are_kept_and_edits_of_the_user_are_taken(slurm: Path, study: Path) -> None:
    (slurm / "hold").touch()
    interrupted([fake_run("a")], study, options={"partition": "gpu", "gpus_per_node": 1})
    file = study / "slurm" / "options.yaml"
    content = yaml.safe_load(file.read_text())
    assert content == {"time": 1440, "cpus_per_task": 4, "partition": "gpu", "gpus_per_node": 1}
    edited = "# ours\ntime: 30\ncpus_per_task: 2\naccount: nlp\n"
    file.write_text(edited)
    interrupted([fake_run("b")], study)
    assert file.read_text() == edited
    first, second = ((slurm / number / "script").read_text() for number in ("4711", "4712"))
    for line in ("job-name=a", "partition=gpu", "time=1440", "gpus-per-node=1", "requeue"):
        assert f"#SBATCH --{line}\n" in first
    for line in ("job-name=b", "account=nlp", "time=30", "cpus-per-task=2"):
        assert f"#SBATCH --{line}\n" in second
    assert "partition" not in second
    assert " --cpus-per-task=2 " in second  # of srun, which does not inherit it
    file.write_text("tiem: 30\n")
    with pytest.raises(ConfigError, match=r"options.yaml: found 'tiem'; did you mean 'time'"):
        run([fake_run("c")], study)


def test_what_sbatch_refuses_is_said(slurm: Path, study: Path) -> None:
    (slurm / "limit").write_text("0")
    with pytest.raises(ConfigError, match=r"QOSMaxSubmitJob.*options.yaml"):
        run([fake_run("a")], study)


@pytest.mark.nightly
@pytest.mark.timeout(600)  # each job imports torch, on a machine with other work
def test_each_run_is_a_job_and_children_wait_for_their_parents(slurm: Path, study: Path) -> None:
    (slurm / "limit").write_text("2")  # the third job is submitted when another has ended
    plan = [
        fake_run("a"),
        fake_run("a-x", "a"),
        fake_run("b", fail_at=0, failures=1),
        fake_run("c", fail_at=0, failures=9, exit_code=2),
        fake_run("c-x", "c"),
    ]
    seen: list[Change] = []
    options = {"cpus_per_task": 3}
    summary = run(plan, study, options=options, on_change=seen.append)
    assert sorted(summary.done) == ["a", "a-x", "b"]
    assert summary.failed == {"c": "exit code 2: out of paper"}
    assert summary.blocked == {"c-x": "c"}
    assert summary.jobs == []
    completed = (study / "completed.txt").read_text().split()
    assert completed.index("a") < completed.index("a-x")
    assert '"threads": "3"' in (study / "runs" / "a" / "manifest.json").read_text()
    assert outcomes(plan[2], study) == [Outcome.FAILED, Outcome.DONE]
    names = [
        next(line for line in script.read_text().splitlines() if "job-name" in line)
        for script in sorted(slurm.glob("*/script"))
    ]
    assert sorted(name.partition("=")[2] for name in names) == ["a", "a-x", "b", "b", "c"]
    texts = [change.text for change in seen]
    assert "job 4711" in texts
    refused = [text for text in texts if text.startswith("SLURM takes no job more for now: sbatch")]
    assert len(refused) == 1
    assert not list(study.rglob("oops"))
    # what is done is not submitted again
    before = len(calls(slurm, "sbatch"))
    assert run(plan[:3], study).exit_code == 0
    assert len(calls(slurm, "sbatch")) == before


@pytest.mark.nightly
@pytest.mark.timeout(600)  # each job imports torch, on a machine with other work
def test_a_job_of_a_runner_that_has_gone_is_waited_for_and_not_submitted_again(
    slurm: Path, study: Path
) -> None:
    (slurm / "hold").touch()
    plan = [fake_run("a")]
    summary = interrupted(plan, study)
    assert (summary.stopped_by, summary.left, summary.jobs) == (signal.SIGINT, ["a"], ["4711"])
    assert "jobs go on; to cancel them: scancel 4711" in summary.lines(study)
    assert (slurm / "4711" / "state").read_text() == "PENDING"
    seen: list[Change] = []

    def note(change: Change) -> None:
        seen.append(change)
        if change.state is State.RUNNING:
            fake_slurm.release(slurm)

    assert run(plan, study, on_change=note).done == ["a"]
    assert seen[0].text == "job 4711 is in the queue since before; waiting for it"
    assert len(calls(slurm, "sbatch")) == 1
    assert outcomes(plan[0], study) == [Outcome.DONE]


@pytest.mark.nightly
@pytest.mark.timeout(600)  # each job imports torch, on a machine with other work
@pytest.mark.parametrize("accounting", [True, False])
def test_a_job_that_slurm_does_not_know_any_more_is_submitted_again(
    accounting: bool, slurm: Path, study: Path
) -> None:
    (slurm / "hold").touch()
    plan = [fake_run("a")]
    assert interrupted(plan, study).jobs == ["4711"]
    if accounting:
        fake_slurm.scancel(["4711"], slurm)
    else:
        (slurm / "no-accounting").touch()
        (slurm / "4711" / "state").rename(slurm / "4711" / "forgotten")
    (slurm / "hold").unlink()
    assert run(plan, study).done == ["a"]
    assert len(calls(slurm, "sbatch")) == 2


@pytest.mark.first_fast
@pytest.mark.parametrize("accounting", [True, False])
def test_a_job_that_was_cancelled_in_the_queue_has_failed(
    accounting: bool, slurm: Path, study: Path
) -> None:
    (slurm / "hold").touch()
    if not accounting:
        (slurm / "no-accounting").touch()

    def cancel(change: Change) -> None:
        if change.state is State.RUNNING:
            fake_slurm.scancel([change.text.split()[-1]], slurm)

    summary = run([fake_run("a"), fake_run("a-x", "a")], study, on_change=cancel)
    assert summary.failed.keys() == {"a"}
    reason = "cancelled by 1000" if accounting else "unknown"
    assert summary.failed["a"].startswith(f"job 4712: {reason}; see ")
    assert summary.blocked == {"a-x": "a"}
    assert len(calls(slurm, "sbatch")) == 2  # it was tried again once


def test_an_error_of_the_runner_cancels_what_it_submitted(slurm: Path, study: Path) -> None:
    (slurm / "hold").touch()

    def fail(change: Change) -> None:
        raise ConfigError("other data")

    with pytest.raises(ConfigError, match="other data"):
        run([fake_run("a")], study, on_change=fail)
    assert (slurm / "4711" / "state").read_text() == "CANCELLED by 1000"


@pytest.mark.nightly
@pytest.mark.timeout(600)  # each job imports torch, on a machine with other work
@pytest.mark.parametrize("reason", ["time limit", "preempted"])
def test_a_job_that_has_to_leave_its_node_is_queued_again_and_goes_on(
    reason: str, slurm: Path, study: Path
) -> None:
    plan = [fake_run("a", steps=60, seconds=0.1)]
    told: list[str] = []

    def disturb() -> None:
        wait_for(lambda: (last_step(plan[0].directory(study)) or 0) > 3, 300)
        told.append(reason)
        if reason == "preempted":
            fake_slurm.preempt(slurm / "4711")
        else:  # all processes of the job hear it, the run's as well
            fake_slurm.tell(slurm / "4711", signal.SIGUSR2)

    summary = run(plan, study, on_change=lambda change: told or disturb())
    assert (summary.done, told) == (["a"], [reason])
    assert outcomes(plan[0], study) == [Outcome.STOPPED, Outcome.DONE]
    assert [attempt.resumed for attempt in read_attempts(plan[0], study)] == [False, True]
    assert len(calls(slurm, "sbatch")) == 1
    assert len(calls(slurm, "scontrol")) == (reason == "time limit")
    assert (study / "completed.txt").read_text().split() == ["a"]


@pytest.mark.nightly
@pytest.mark.timeout(600)  # each job imports torch, on a machine with other work
def test_a_node_without_the_working_directory_is_told(
    slurm: Path, study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    (slurm / "hold").touch()

    def leave(change: Change) -> None:
        if change.state is State.RUNNING:
            monkeypatch.chdir(study)
            here.rmdir()
            fake_slurm.release(slurm)

    monkeypatch.chdir(here)
    plan = [fake_run("a")]
    summary = run(plan, study, retries=0, on_change=leave)
    told = f"job 4711: {here} is not on the node {platform.node()}; put the study on a file system "
    assert summary.failed["a"].startswith(told)
    assert read_attempts(plan[0], study) == []


@pytest.mark.nightly
@pytest.mark.timeout(600)  # each job imports torch, on a machine with other work
def test_a_run_whose_job_is_cancelled_stops_where_it_can_go_on(slurm: Path, study: Path) -> None:
    plan = [fake_run("a", steps=1500, seconds=0.1)]

    def cancel(change: Change) -> None:
        if change.state is State.RUNNING:
            wait_for(lambda: (last_step(plan[0].directory(study)) or 0) > 3, 300)
            fake_slurm.scancel(["4711"], slurm)

    summary = run(plan, study, retries=0, on_change=cancel)
    assert summary.failed["a"].startswith("job 4711: cancelled by 1000")
    assert outcomes(plan[0], study) == [Outcome.STOPPED]
