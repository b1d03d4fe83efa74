"""Runs of a study on this machine: once each, in order, through kills, failures and signals."""

import json
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bertlab.errors import CommandError, ConfigError, NumericalError
from bertlab_studies.execute import schedule
from bertlab_studies.execute.execution import execute, start
from bertlab_studies.execute.executor import Local, check_number
from bertlab_studies.execute.live_table import LiveTable, event_line, main_result, watch
from bertlab_studies.execute.local import run_local, worker_environments
from bertlab_studies.execute.run_state import (
    Attempt,
    Outcome,
    State,
    is_locked,
    last_step,
    own_state,
    read_attempts,
    read_states,
    read_status,
    write_attempts,
)
from bertlab_studies.execute.schedule import Change, Schedule, Summary
from bertlab_studies.execute.stopping import StopSignals, stop_all
from bertlab_studies.execute.time_left import TimeLeft, duration
from bertlab_studies.plan.plan import PlannedRun
from fake_fit import FAKE, endless_family, fake_run, slow_family, wait_for

Plan = list[PlannedRun]


def family() -> Plan:
    """A pre-training with two evaluations, and one without."""
    return [
        fake_run("a", steps=3),
        fake_run("a-x", "a", steps=2),
        fake_run("a-y", "a", steps=2),
        fake_run("b", steps=2),
    ]


def run_all(plan: Plan, study: Path, **settings: object) -> tuple[Summary, list[tuple[str, State]]]:
    seen: list[tuple[str, State]] = []
    note = lambda change: seen.append((change.run.id, change.state))  # noqa: E731
    summary = run_local(plan, study, on_change=note, program=FAKE, **settings)  # type: ignore[arg-type]
    return summary, seen


def results(plan: Plan, study: Path) -> dict[str, bytes]:
    return {run.id: (run.directory(study) / "results.json").read_bytes() for run in plan}


def completed(study: Path) -> list[str]:
    """What the fake program itself says that it completed."""
    return (study / "completed.txt").read_text().split()


def outcomes(run: PlannedRun, study: Path) -> list[Outcome]:
    return [attempt.outcome for attempt in read_attempts(run, study)]


RUNNER = """
import sys
from pathlib import Path
from bertlab_studies.execute.local import run_local
from fake_fit import FAKE, {plan}
say = lambda change: print(change.run.id, change.state, change.text, flush=True)
summary = run_local({plan}(), Path(sys.argv[1]), workers=2, threads=1, on_change=say, program=FAKE)
print(*summary.lines(Path(sys.argv[1])), sep="\\n", flush=True)
sys.exit(summary.exit_code)
"""


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Start a runner as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(plan: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-c", RUNNER.format(plan=plan), str(tmp_path)]
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.communicate()


@pytest.mark.first_fast
@pytest.mark.parametrize("workers", [1, 3])
def test_parents_come_before_children_and_nothing_is_run_twice(
    workers: int, tmp_path: Path
) -> None:
    plan = family()
    summary, seen = run_all(plan, tmp_path, workers=workers)
    assert sorted(summary.done) == ["a", "a-x", "a-y", "b"]
    assert summary.exit_code == 0
    assert seen.index(("a", State.DONE)) < seen.index(("a-x", State.RUNNING))
    assert sorted(completed(tmp_path)) == ["a", "a-x", "a-y", "b"]
    before = results(plan, tmp_path)
    again, seen = run_all(plan, tmp_path)
    assert (sorted(again.done), seen) == (["a", "a-x", "a-y", "b"], [])
    assert results(plan, tmp_path) == before
    assert all(outcomes(run, tmp_path) == [Outcome.DONE] for run in plan)


def test_the_longest_chain_comes_first(tmp_path: Path) -> None:
    plan = [
        fake_run("short", steps=4),
        fake_run("short-x", "short", steps=5),
        fake_run("long", steps=3),
        fake_run("long-x", "long", steps=9),
    ]
    schedule = Schedule(plan, tmp_path, retries=0, on_change=lambda change: None)
    taken = [schedule.take(), schedule.take(), schedule.take()]
    assert [run and run.id for run in taken] == ["long", "short", None]


@pytest.mark.slow
def test_a_child_gets_its_parents_weights_and_its_share_of_the_machine(tmp_path: Path) -> None:
    plan = [fake_run("a"), fake_run("a-x", "a")]
    run_all(plan, tmp_path, threads=3)
    facts = json.loads((tmp_path / "runs" / "a-x" / "manifest.json").read_text())
    assert facts["weights"] == str(tmp_path / "runs" / "a")
    assert facts["threads"] == "3"


@pytest.mark.slow
def test_a_failed_run_is_retried_from_its_checkpoint(tmp_path: Path) -> None:
    run = fake_run("a", steps=4, fail_at=3, failures=1)
    summary, _ = run_all([run], tmp_path, retries=1)
    assert summary.done == ["a"]
    first, second = read_attempts(run, tmp_path)
    assert (first.outcome, first.exit_code, first.resumed) == (Outcome.FAILED, 7, False)
    assert (second.outcome, second.exit_code, second.resumed) == (Outcome.DONE, 0, True)
    status = read_status(run, tmp_path, State.DONE)
    assert status.seconds == pytest.approx(first.seconds + second.seconds)
    log = run.log(tmp_path).read_text()
    assert log.count("== ") == log.count(f" on {platform.node()}: ") == 2
    assert f"--ckpt_path {run.directory(tmp_path)}" in log
    undisturbed = fake_run("a", steps=4)
    run_all([undisturbed], tmp_path / "other")
    assert results([run], tmp_path) == results([undisturbed], tmp_path / "other")


def test_a_mistake_is_not_tried_again(tmp_path: Path) -> None:
    run = fake_run("a", steps=4, fail_at=3, failures=1, exit_code=2)
    summary, _ = run_all([run], tmp_path, retries=3)
    assert list(summary.failed) == ["a"]
    assert [attempt.exit_code for attempt in read_attempts(run, tmp_path)] == [2]


@pytest.mark.slow
def test_a_mistake_that_all_variants_share_is_told_once_and_ends_the_study(tmp_path: Path) -> None:
    plan = [fake_run(name, fail_at=0, failures=9, exit_code=2) for name in "abc"]
    plan += [fake_run(f"{name}-x", name) for name in "abc"]
    told: list[Change] = []
    summary = run_local(plan, tmp_path, on_change=told.append, program=FAKE)
    assert list(summary.failed) == ["a", "b"]
    assert summary.blocked == {"a-x": "a", "b-x": "b"}
    assert summary.left == ["c", "c-x"]
    assert summary.exit_code == 1
    assert "\n".join(summary.lines(tmp_path)).count("out of paper") == 1
    assert sum("out of paper" in change.text for change in told) == 1
    assert not any(read_attempts(run, tmp_path) for run in plan[2:])
    (tmp_path / "mended").touch()
    assert len(run_all(plan, tmp_path)[0].done) == 6


@pytest.mark.slow
def test_a_loss_that_is_no_number_is_no_mistake_of_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two trials of tuning may diverge at the same step; others need not."""
    line = f"bertlab: error {NumericalError.code}: step 1: the loss is nan"
    monkeypatch.setattr(schedule, "last_line", lambda log: line)
    plan = [fake_run(name, fail_at=0, failures=9, exit_code=2) for name in "ab"]
    summary, _ = run_all([*plan, fake_run("c")], tmp_path, retries=3)
    assert list(summary.failed) == ["a", "b"]
    assert summary.done == ["c"]


def of_variant(run: PlannedRun, variant: str) -> PlannedRun:
    return replace(run, variant=variant)


@pytest.mark.slow
def test_a_mistake_of_one_variant_does_not_keep_the_others_from_running(tmp_path: Path) -> None:
    wrong = [of_variant(fake_run(name, fail_at=0, failures=9, exit_code=2), "w") for name in "abc"]
    summary, seen = run_all([*wrong, fake_run("d")], tmp_path)
    assert summary.done == ["d"]
    assert list(summary.failed) == ["a", "b", "c"]
    ended = [run for run, state in seen if state in (State.DONE, State.FAILED)]
    assert ended == ["a", "d", "b", "c"]  # after the first mistake another variant is tried
    alone = run_all(wrong, tmp_path / "alone")[0]
    assert (list(alone.failed), alone.left) == (["a", "b"], ["c"])


@pytest.mark.slow
def test_other_failures_do_not_keep_runs_from_starting(tmp_path: Path) -> None:
    plan = [fake_run(name, fail_at=0, failures=9) for name in "abc"]
    summary, _ = run_all(plan, tmp_path, retries=0)
    assert list(summary.failed) == ["a", "b", "c"]


@pytest.mark.slow
def test_a_run_that_fails_for_good_blocks_what_needs_it_and_nothing_else(tmp_path: Path) -> None:
    plan = [
        fake_run("a", steps=2, fail_at=1, failures=9),
        fake_run("a-x", "a"),
        fake_run("a-x-z", "a-x"),
        fake_run("b"),
    ]
    summary, seen = run_all(plan, tmp_path, retries=1)
    assert summary.done == ["b"]
    assert summary.failed == {"a": "exit code 7: out of paper"}
    assert summary.blocked == {"a-x": "a", "a-x-z": "a"}
    assert summary.exit_code == 1
    assert ("a-x", State.BLOCKED) in seen
    text = "\n".join(summary.lines(tmp_path))
    assert f"out of paper (log: {plan[0].log(tmp_path)})" in text
    assert f"mend it and continue with: bertlab study run {tmp_path}" in text
    states = read_states(plan, tmp_path)
    assert list(states.values()) == [State.FAILED, State.BLOCKED, State.BLOCKED, State.DONE]
    status = read_status(plan[0], tmp_path, State.FAILED)
    assert (status.attempts, status.exit_code, status.last_line) == (2, 7, "out of paper")
    (tmp_path / "mended").touch()
    assert sorted(run_all(plan, tmp_path)[0].done) == ["a", "a-x", "a-x-z", "b"]


def test_a_program_that_ends_without_results_has_failed(tmp_path: Path) -> None:
    run = fake_run("a")
    program = (sys.executable, "-c", "print('nothing to do')")
    assert execute(run, tmp_path, environment={}, program=program) == 1
    assert own_state(run, tmp_path) is State.FAILED


def test_a_run_without_a_checkpoint_starts_anew_and_one_cut_short_is_none(tmp_path: Path) -> None:
    run = fake_run("a", steps=3)
    directory = run.directory(tmp_path)
    (directory / "checkpoints").mkdir(parents=True)
    (directory / "manifest.json").write_text("{}")
    assert own_state(run, tmp_path) is State.BEGUN
    last = directory / "checkpoints" / "last.ckpt"
    last.write_bytes(b"PK\x03\x04 the beginning of an archive")
    assert own_state(run, tmp_path) is State.BEGUN
    assert execute(run, tmp_path, environment={}, program=FAKE) == 0
    whole = results([run], tmp_path)
    (directory / "results.json").unlink()
    assert own_state(run, tmp_path) is State.RESUMABLE
    assert execute(run, tmp_path, environment={}, program=FAKE) == 0
    assert results([run], tmp_path) == whole


def test_a_run_is_refused_before_its_parent_is_done(tmp_path: Path) -> None:
    plan = [fake_run("a"), fake_run("a-x", "a")]
    with pytest.raises(ConfigError, match="a-x: needs the weights of a, which is not done"):
        execute(plan[1], tmp_path, environment={}, program=FAKE)
    assert not is_locked(plan[1], tmp_path)
    assert list(read_states(plan, tmp_path).values()) == [State.READY, State.WAITING]
    assert not (tmp_path / "attempts").exists()


@pytest.mark.parametrize(
    "attempt",
    [
        '{"begun": 3}',
        '{"started": 3, "resumed": false, "outcome": "done", "seconds": "x"}',
        '{"started": null, "resumed": false, "outcome": "done"}',
        '{"started": 3, "resumed": false, "outcome": "done", "seconds": NaN}',
        '{"started": Infinity, "resumed": false, "outcome": "done"}',
    ],
)
def test_a_damaged_list_of_attempts_is_named(attempt: str, tmp_path: Path) -> None:
    run = fake_run("a")
    (tmp_path / "attempts").mkdir()
    (tmp_path / "attempts" / "a.json").write_text(f'{{"attempts": [{attempt}]}}')
    with pytest.raises(ConfigError, match=r"a\.json: damaged"):
        read_attempts(run, tmp_path)


@pytest.mark.slow
def test_a_run_at_work_is_not_started_again(tmp_path: Path) -> None:
    run = fake_run("a", steps=3, seconds=0.2)
    work = start(run, tmp_path, {}, FAKE)
    assert not isinstance(work, State)
    assert own_state(run, tmp_path) is State.RUNNING
    assert start(run, tmp_path, {}, FAKE) is State.RUNNING
    while work.poll() is None:
        time.sleep(0.02)
    assert start(run, tmp_path, {}, FAKE) is State.DONE
    assert completed(tmp_path) == ["a"]


@pytest.mark.slow
def test_a_process_that_does_not_stop_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bertlab_studies.execute.stopping.GRACE", 0.3)
    run = fake_run("a", steps=100, seconds=0.1, stubborn=True)
    work = start(run, tmp_path, {}, FAKE)
    assert not isinstance(work, State)
    wait_for(lambda: (last_step(run.directory(tmp_path)) or 0) > 0)
    stop_all([work], StopSignals())
    (attempt,) = read_attempts(run, tmp_path)
    assert (attempt.outcome, attempt.exit_code) == (Outcome.STOPPED, -signal.SIGKILL)
    assert own_state(run, tmp_path) is State.RESUMABLE


@pytest.mark.nightly
def test_a_runner_that_was_killed_leaves_runs_at_work_which_the_next_one_waits_for(
    tmp_path: Path, runner: Callable[[str], "subprocess.Popen[str]"]
) -> None:
    plan = slow_family()
    first = runner("slow_family")
    wait_for(lambda: (last_step(plan[0].directory(tmp_path)) or 0) > 2)
    first.kill()
    first.wait()
    assert own_state(plan[0], tmp_path) is State.RUNNING
    summary, seen = run_all(plan, tmp_path, workers=2)
    assert summary.done == ["a", "a-x"]
    assert completed(tmp_path) == ["a", "a-x"]
    assert outcomes(plan[0], tmp_path) == [Outcome.DONE]
    assert read_attempts(plan[0], tmp_path)[0].seconds > 1
    assert seen[:2] == [("a", State.RUNNING), ("a", State.DONE)]


@pytest.mark.nightly
def test_a_run_killed_with_its_runner_goes_on_from_its_checkpoint(
    tmp_path: Path, runner: Callable[[str], "subprocess.Popen[str]"]
) -> None:
    plan = slow_family()
    first = runner("slow_family")
    directory = plan[0].directory(tmp_path)
    wait_for(lambda: (last_step(directory) or 0) > 2)
    first.kill()
    first.wait()
    os.kill(json.loads((directory / "manifest.json").read_text())["process"], signal.SIGKILL)
    wait_for(lambda: own_state(plan[0], tmp_path) is State.RESUMABLE)
    summary, _ = run_all(plan, tmp_path)
    assert summary.done == ["a", "a-x"]
    assert outcomes(plan[0], tmp_path) == [Outcome.LOST, Outcome.DONE]
    assert 0 < read_attempts(plan[0], tmp_path)[0].seconds < 10
    run_all(plan, tmp_path / "other")
    assert results(plan, tmp_path) == results(plan, tmp_path / "other")


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_runs_and_the_runner_says_how_to_go_on(
    number: signal.Signals,
    tmp_path: Path,
    runner: Callable[[str], "subprocess.Popen[str]"],
) -> None:
    plan = endless_family()
    process = runner("endless_family")
    wait_for(lambda: (last_step(plan[0].directory(tmp_path)) or 0) > 2)
    process.send_signal(number)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert f"stopped; continue with: bertlab study run {tmp_path}" in output
    assert "2 left" in output
    assert outcomes(plan[0], tmp_path) == [Outcome.STOPPED]
    assert own_state(plan[0], tmp_path) is State.RESUMABLE
    assert plan[0].log(tmp_path).read_text().count("told to stop") == 1  # once each


@pytest.mark.nightly
def test_an_orphan_is_told_to_stop_as_well(
    tmp_path: Path, runner: Callable[[str], "subprocess.Popen[str]"]
) -> None:
    plan = endless_family()
    first = runner("endless_family")
    wait_for(lambda: (last_step(plan[0].directory(tmp_path)) or 0) > 2)
    first.kill()
    first.wait()
    second = runner("endless_family")
    assert second.stdout is not None
    assert "waiting for it" in second.stdout.readline()
    second.send_signal(signal.SIGINT)
    output, _ = second.communicate(timeout=20)
    assert "a running told to stop" in output
    wait_for(lambda: own_state(plan[0], tmp_path) is State.RESUMABLE)


def test_workers_share_cores_and_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4, 5,6,7")
    given = [each["CUDA_VISIBLE_DEVICES"] for each in worker_environments(2, 3, None)]
    assert given == ["4,5", "6,7"]
    given = [each["CUDA_VISIBLE_DEVICES"] for each in worker_environments(6, 3, None)]
    assert given == ["4", "5", "6", "7", "4", "5"]
    assert worker_environments(2, 3, 1)[1]["CUDA_VISIBLE_DEVICES"] == "5"
    assert {each["OMP_NUM_THREADS"] for each in worker_environments(2, 3, None)} == {"3"}
    assert "CUDA_VISIBLE_DEVICES" not in worker_environments(1, None, None)[0]
    with pytest.raises(ConfigError, match="need 6, but there are 4 CUDA devices"):
        worker_environments(3, None, 2)
    with pytest.raises(ConfigError, match="--workers: found 0, expected 1 or more"):
        worker_environments(0, None, None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES" not in worker_environments(2, None, None)[0]


def test_steps_are_read_from_a_log_that_is_being_written(tmp_path: Path) -> None:
    for version, text in ((9, "epoch,step\n0,50\n"), (10, "loss,step\n0.1,60\n0.2,70\n0.3,8")):
        folder = tmp_path / "csv" / f"version_{version}"
        folder.mkdir(parents=True)
        (folder / "metrics.csv").write_text(text)
    assert last_step(tmp_path) == 70
    (tmp_path / "csv" / "version_10" / "metrics.csv").write_text("")
    assert last_step(tmp_path) == 50
    assert last_step(tmp_path / "csv") is None


@pytest.mark.slow
def test_events_and_the_table_say_what_happens(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = [fake_run("a", steps=3), fake_run("b[x]", fail_at=0, failures=9)]
    table = LiveTable(plan, tmp_path)
    with watch(plan, tmp_path) as tell:
        run_local(
            plan,
            tmp_path,
            on_change=lambda change: (tell(change), table.note(change))[0],
            retries=0,
            program=FAKE,
        )
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert "a: started" in lines[0]
    result = main_result(plan[0].directory(tmp_path))
    assert f"a: done in 0:00, {result}; 1 of 2 runs done" in lines[1]
    assert lines[3].endswith("b[x]: failed, exit code 7: out of paper")
    with watch(plan, tmp_path) as tell:
        tell(Change(plan[0], State.RUNNING, "started"))
    from rich.console import Console

    console = Console(width=120, record=True, file=(tmp_path / "screen").open("w"))
    with console.file:
        console.print(table.render())
    shown = console.export_text()
    assert "1 done, 1 failed; 1 of 2 runs done" in shown
    assert "out of paper" in shown
    assert "fake accuracy 50.0%" in event_line(Change(plan[0], State.DONE, "done"), tmp_path)
    assert [duration(59.6), duration(3723)] == ["1:00", "1:02:03"]


def test_the_time_that_is_left_follows_from_the_runs_that_are_done(tmp_path: Path) -> None:
    # of two variants: a pre-training of 100 seconds or 200, then a fine-tuning
    plan = []
    for variant, seed in (("slow", 1), ("fast", 1), ("slow", 2), ("fast", 2)):
        parent = PlannedRun(f"{variant}-{seed}", "base", variant, seed, ())
        plan += [parent, PlannedRun(f"{variant}-{seed}-mrpc", "mrpc", variant, seed, (), parent.id)]
    runs = {run.id: run for run in plan}

    def end(run: str, seconds: float) -> str:
        left.note(Change(runs[run], State.RUNNING, "started"))
        attempt = Attempt(0.0, False, Outcome.DONE, seconds, 0)
        write_attempts(runs[run], tmp_path, [attempt])
        left.note(Change(runs[run], State.DONE, "done"))
        return left.words()

    left = TimeLeft(plan, tmp_path)
    assert left.words() == "0 of 8 runs done"
    # three pre-trainings of 200 seconds, as far as is known; of fine-tunings nothing is
    assert end("slow-1", 200.0) == "1 of 8 runs done, over 10:00 left"
    assert end("fast-1", 100.0) == "2 of 8 runs done, over 5:00 left"
    assert end("slow-1-mrpc", 30.0) == "3 of 8 runs done, 6:30 left"
    for run in ("slow-2", "fast-2"):  # two at a time from here on
        left.note(Change(runs[run], State.RUNNING, "started"))
    assert left.words() == "3 of 8 runs done, 3:20 left"  # 390 / 2, but one takes 200
    again = TimeLeft(plan, tmp_path)  # as if the study was started again
    assert again.words() == "0 of 8 runs done"  # without results none is done


@pytest.mark.nightly
@pytest.mark.timeout(900)  # five processes that import torch, on a machine with other work
def test_real_fits_go_on_after_a_kill_and_repeat_the_undisturbed_results(
    tiny_config: Path, tmp_path: Path
) -> None:
    settings = ("--config", str(tiny_config), "--trainer.max_steps=24")
    parent = PlannedRun("base", "base", "v", 3, settings, steps=24)
    more = ("--config", str(tiny_config), "--model.init_from={weights}")
    child = PlannedRun("child", "more", "v", 3, more, "base", steps=6)
    plan = [parent, child]
    undisturbed, disturbed = tmp_path / "one", tmp_path / "two"
    # the number of threads decides the order of sums, and so the last digits
    assert run_local(plan, undisturbed, threads=1, on_change=lambda change: None).exit_code == 0
    work = start(parent, disturbed, worker_environments(1, 1, None)[0])
    assert not isinstance(work, State)
    wait_for((parent.directory(disturbed) / "checkpoints" / "last.ckpt").exists)
    work.process.kill()
    while work.poll() is None:
        time.sleep(0.02)
    assert run_local(plan, disturbed, threads=1, on_change=lambda change: None).exit_code == 0
    assert outcomes(parent, disturbed) == [Outcome.FAILED, Outcome.DONE]
    assert read_attempts(parent, disturbed)[1].resumed
    assert results(plan, disturbed) == results(plan, undisturbed)
    assert last_step(parent.directory(disturbed)) == 23  # they count from 0


@pytest.mark.parametrize("number", ["2", 1.5, True], ids=repr)
@pytest.mark.parametrize("name", ["workers", "threads", "devices", "retries"])
def test_what_is_no_whole_number_is_refused_by_name(name: str, number: Any) -> None:
    with pytest.raises(CommandError, match=f"^{name}: found {number!r}, expected a whole number"):
        Local(**{name: number})


def test_a_part_of_a_device_is_a_number_where_runs_may_share_one() -> None:
    assert check_number("gpus", 0.5, 0, shared=True) == 0.5
    for number in ("1", True):
        with pytest.raises(CommandError, match=f"gpus: found {number!r}, expected a number"):
            check_number("gpus", number, 0, shared=True)
