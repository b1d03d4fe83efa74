"""Runs forked from a warm parent: what they are given, what they cannot reach, how they end."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from bertlab_studies.execute import warm_parent
from bertlab_studies.execute.execution import Work, start
from bertlab_studies.execute.fork_server import may_fork
from bertlab_studies.execute.local import run_local
from bertlab_studies.execute.run_state import (
    Outcome,
    State,
    holders,
    is_locked,
    last_step,
    lock_file,
    own_state,
    read_attempts,
)
from bertlab_studies.execute.warm_parent import ForkedProcess, WarmParent
from bertlab_studies.plan.plan import PlannedRun
from fake_fit import FAKE, FORKED_FAKE, fake_run, wait_for

# what a run may break, and how it finds things; it is imported by no parent
PROBE = """
import json, os, signal, string, sys, random, warnings
from pathlib import Path
import numpy as np

report = {
    "argv": sys.argv[1:],
    "module": sys.modules["__main__"].__spec__.name,
    "path": sys.path[0],
    "directory": os.getcwd(),
    "variables": {name: os.environ.get(name) for name in ("MINE", "LEFT", "PYTHONUNBUFFERED")},
    "own group": os.getpid() == os.getpgid(0),
    "session": os.getsid(0),
    "broken": hasattr(string, "broken") or len(warnings.filters),
    "handlers": [str(signal.getsignal(n)) for n in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD)],
    "descriptors": sorted(
        str(each.readlink()) for each in Path("/proc/self/fd").iterdir() if each.exists()
    ),
    "input": sys.stdin.read(),
    "product": float((np.ones((600, 600)) @ np.ones((600, 600))).sum()),  # in two threads
    "draws": [random.random(), np.random.random()],
}
print(json.dumps(report), flush=True)
os.environ["LEFT"] = "by another run"
os.chdir("/")
string.broken = True
warnings.simplefilter("error")
os.umask(0o777)
if "die" in sys.argv:
    os.kill(os.getpid(), signal.SIGSEGV)
sys.exit(int(sys.argv[-1]) if sys.argv[-1].isdigit() else 0)
"""


@pytest.fixture
def light(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let parents import nothing, which is quick."""
    monkeypatch.setattr(warm_parent, "PRELOADED", ("string", "warnings"))


@pytest.fixture
def probe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """A program ``python -m probe`` in the working directory."""
    (tmp_path / "probe.py").write_text(PROBE)
    monkeypatch.chdir(tmp_path)
    return (sys.executable, "-m", "probe")


@pytest.fixture
def parent(light: None) -> Iterator[WarmParent]:
    with WarmParent(FORKED_FAKE, [{}]) as made:
        wait_for(made.is_ready)
        yield made


def ran(
    parent: WarmParent, command: tuple[str, ...], environment: dict[str, str]
) -> tuple[int, str]:
    """Run a command to its end; return its exit code and what it printed."""
    log, lock = Path("log"), os.open("lock", os.O_RDWR | os.O_CREAT)
    with log.open("wb") as output:
        process = parent.launch(command, environment, output.fileno(), lock)
    os.close(lock)
    wait_for(lambda: process.poll() is not None)
    code = process.poll()
    assert code is not None
    return code, log.read_text()


@pytest.mark.slow
def test_a_forked_run_finds_what_a_fresh_process_finds(
    light: None, probe: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {"MINE": "1", "OPENBLAS_NUM_THREADS": "2"}
    with WarmParent(probe, [environment]) as parent:
        wait_for(parent.is_ready)
        code, printed = ran(parent, (*probe, "a b", "3"), environment)
        forked = json.loads(printed)
    monkeypatch.setenv(warm_parent.FRESH, "1")
    with WarmParent(probe, [environment]) as parent:
        assert parent.is_ready()
        assert (code, 3) == (3, ran(parent, (*probe, "a b", "3"), environment)[0])
        fresh = json.loads(Path("log").read_text())
    assert forked.pop("draws") != fresh.pop("draws")
    assert forked == fresh
    assert (forked["own group"], forked["input"], forked["path"]) == (True, "", str(Path.cwd()))


def test_nothing_leaks_from_run_to_run(light: None, probe: tuple[str, ...]) -> None:
    with WarmParent(probe, [{}]) as parent:
        wait_for(parent.is_ready)
        first, second = (
            json.loads(ran(parent, (*probe, "0"), environment)[1])
            for environment in ({"MINE": "1"}, {})
        )
    assert first.pop("variables")["MINE"] == "1"
    assert second.pop("variables") == {"MINE": None, "LEFT": None, "PYTHONUNBUFFERED": "1"}
    assert first.pop("draws") != second.pop("draws")
    assert first == second
    assert first["directory"] == str(Path.cwd())


def test_a_run_that_dies_by_a_signal_tells_which_and_the_next_one_runs(
    light: None, probe: tuple[str, ...]
) -> None:
    with WarmParent(probe, [{}]) as parent:
        wait_for(parent.is_ready)
        assert ran(parent, (*probe, "die"), {})[0] == -signal.SIGSEGV
        assert ran(parent, (*probe, "5"), {})[0] == 5


def test_code_that_was_edited_between_two_runs_is_read_anew(
    light: None, probe: tuple[str, ...]
) -> None:
    with WarmParent(probe, [{}]) as parent:
        wait_for(parent.is_ready)
        assert ran(parent, probe, {})[0] == 0
        Path("probe.py").write_text("import sys; sys.exit(9)")
        assert ran(parent, probe, {})[0] == 9


@pytest.mark.slow
def test_what_a_normal_end_does_is_done(light: None, probe: tuple[str, ...]) -> None:
    Path("probe.py").write_text(
        "import atexit, sys, threading, time\n"
        "kept = open('kept', 'w'); kept.write('in a buffer')\n"
        "atexit.register(print, 'at exit')\n"
        "threading.Thread(target=lambda: (time.sleep(0.3), print('a thread'))).start()\n"
        "sys.exit({'code': 4, 'words': 'words', 'end': None}[sys.argv[1]])\n"
    )
    with WarmParent(probe, [{}]) as parent:
        wait_for(parent.is_ready)
        for word, code, printed in (
            ("code", 4, "a thread\nat exit\n"),
            ("words", 1, "words\na thread\nat exit\n"),
            ("end", 0, "a thread\nat exit\n"),
        ):
            assert ran(parent, (*probe, word), {}) == (code, printed)
            assert Path("kept").read_text() == "in a buffer"
        Path("probe.py").write_text("1 / 0")
        code, traceback = ran(parent, probe, {})
        assert code == 1
        assert "ZeroDivisionError" in traceback


@pytest.mark.first_fast
@pytest.mark.parametrize("program", [FAKE, FORKED_FAKE])
def test_failures_and_children_are_as_in_fresh_processes(
    light: None, program: tuple[str, ...], tmp_path: Path
) -> None:
    plan = [
        fake_run("a", steps=3, fail_at=2, failures=1),
        fake_run("a-x", "a"),
        fake_run("b", fail_at=0, failures=9),
        fake_run("b-x", "b"),
    ]
    summary = run_local(
        plan,
        tmp_path,
        workers=2,
        threads=3,
        on_change=lambda change: None,
        program=program,
    )
    assert sorted(summary.done) == ["a", "a-x"]
    assert summary.failed == {"b": "exit code 7: out of paper"}
    assert summary.blocked == {"b-x": "b"}
    attempts = read_attempts(plan[0], tmp_path)
    assert [each.outcome for each in attempts] == [Outcome.FAILED, Outcome.DONE]
    assert [each.exit_code for each in attempts] == [7, 0]
    facts = json.loads((tmp_path / "runs" / "a-x" / "manifest.json").read_text())
    assert (facts["weights"], facts["threads"]) == (str(tmp_path / "runs" / "a"), "3")
    assert "== " in plan[0].log(tmp_path).read_text()


@pytest.mark.slow
def test_the_lock_is_held_by_the_run_and_its_runner_and_not_by_the_parent(
    parent: WarmParent, tmp_path: Path
) -> None:
    run = fake_run("a", steps=500, seconds=0.1)
    work = start(run, tmp_path, {}, FORKED_FAKE, parent.launch)
    assert isinstance(work, Work)
    assert isinstance(work.process, ForkedProcess)
    both = {os.getpid(), work.process.pid}
    end = time.monotonic() + 30  # /proc may show what a new process has a moment later
    while set(holders(lock_file(run, tmp_path))) != both and time.monotonic() < end:
        time.sleep(0.05)
    ended = work.process.poll()
    assert ended is None, f"exit code {ended}: {run.log(tmp_path).read_text()}"
    assert set(holders(lock_file(run, tmp_path))) == both
    wait_for(lambda: (last_step(run.directory(tmp_path)) or 0) > 1)
    work.process.kill()
    wait_for(lambda: work.poll() is not None)
    assert read_attempts(run, tmp_path)[-1].exit_code == -signal.SIGKILL
    assert not is_locked(run, tmp_path)
    with (tmp_path / "other").open("w") as other:
        assert other.fileno() == work.lock  # the next file has the descriptor that is free again
        assert work.poll() == -signal.SIGKILL
        other.write("still open")
        other.flush()


@pytest.mark.slow
def test_a_process_that_opens_and_closes_other_files_still_holds_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / "a.lock"
    busy = (
        "import os, sys\n"
        "os.dup2(os.open(sys.argv[1], os.O_CREAT | os.O_RDWR), 60)\n"  # others are listed before
        "os.close(3)\n"
        "print('ready', flush=True)\n"
        "while True: os.close(os.open('/dev/null', os.O_RDONLY))\n"
    )
    with subprocess.Popen([sys.executable, "-c", busy, lock], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            process.stdout.readline()
            assert [list(holders(lock)) for _ in range(50)] == [[process.pid]] * 50
        finally:
            process.kill()


@pytest.mark.nightly
def test_runs_outlive_a_parent_that_is_killed_and_others_start_from_nothing(
    parent: WarmParent, tmp_path: Path
) -> None:
    first, second = fake_run("a", steps=20, seconds=0.1), fake_run("b")
    work = start(first, tmp_path, {}, FORKED_FAKE, parent.launch)
    assert isinstance(work, Work)
    assert parent._server is not None
    parent._server.kill()
    parent._server.wait()
    # whether it was forked just before the parent's end is not known
    assert start(second, tmp_path, {}, FORKED_FAKE, parent.launch) is State.RUNNING
    other = start(second, tmp_path, {}, FORKED_FAKE, parent.launch)
    assert isinstance(other, Work)
    assert not isinstance(other.process, ForkedProcess)
    for each in (work, other):
        wait_for(lambda each=each: each.poll() is not None)  # type: ignore[misc]
    assert [own_state(run, tmp_path) for run in (first, second)] == [State.DONE, State.DONE]
    assert [each.outcome for each in read_attempts(second, tmp_path)] == [
        Outcome.LOST,
        Outcome.DONE,
    ]


@pytest.mark.slow
def test_a_run_that_dies_after_its_parent_has_failed(parent: WarmParent, tmp_path: Path) -> None:
    run = fake_run("a", steps=500, seconds=0.1)
    work = start(run, tmp_path, {}, FORKED_FAKE, parent.launch)
    assert isinstance(work, Work)
    assert parent._server is not None
    parent._server.kill()
    parent._server.wait()
    work.process.send_signal(signal.SIGKILL)
    wait_for(lambda: work.poll() is not None)
    assert read_attempts(run, tmp_path)[-1].outcome is Outcome.FAILED


def test_a_parent_that_has_opened_a_gpu_forks_nothing(tmp_path: Path) -> None:
    (tmp_path / "3").symlink_to("/dev/null")
    assert may_fork(tmp_path)
    (tmp_path / "4").symlink_to("/dev/nvidiactl")
    assert not may_fork(tmp_path)
    assert may_fork()


@pytest.mark.slow
def test_a_parent_that_cannot_import_gives_way_to_fresh_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(warm_parent, "PRELOADED", ("no_such_module",))
    run = fake_run("a")
    summary = run_local([run], tmp_path, on_change=lambda change: None, program=FORKED_FAKE)
    assert summary.done == ["a"]
    assert len(read_attempts(run, tmp_path)) == 1


RUNNER = """
import sys
from pathlib import Path
from bertlab_studies.execute import warm_parent
from bertlab_studies.execute.fork_server import may_fork
from bertlab_studies.execute.local import run_local
from fake_fit import FORKED_FAKE, fake_run
warm_parent.PRELOADED = {preloaded}
plan = [fake_run("a", steps={steps}, seconds=0.1, stubborn={stubborn}), fake_run("a-x", "a")]
say = lambda change: print(change.run.id, change.state, change.text, flush=True)
summary = run_local(plan, Path(sys.argv[1]), threads=1, on_change=say, program=FORKED_FAKE)
print(*summary.lines(Path(sys.argv[1])), sep="\\n", flush=True)
sys.exit(summary.exit_code)
"""
Begin = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def runner(tmp_path: Path) -> Iterator[Begin]:
    """Start a runner as a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def begin(
        steps: int, stubborn: bool = False, preloaded: tuple[str, ...] = ()
    ) -> "subprocess.Popen[str]":
        code = RUNNER.format(steps=steps, stubborn=stubborn, preloaded=preloaded)
        command = [sys.executable, "-c", code, str(tmp_path)]
        started.append(
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0)
        )
        return started[-1]

    yield begin
    for each in started:
        each.kill()
        each.communicate()


def runs_of(process: "subprocess.Popen[str]") -> list[str]:
    """Return the command lines of a runner's children."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [Path(f"/proc/{each}/cmdline").read_text() for each in children]


@pytest.mark.nightly
def test_a_runner_that_was_killed_leaves_forked_runs_at_work(
    tmp_path: Path, runner: Begin, light: None
) -> None:
    run = fake_run("a", steps=40, seconds=0.1)
    first = runner(40)
    wait_for(lambda: (last_step(run.directory(tmp_path)) or 0) > 2)
    assert any("fork_server" in line for line in runs_of(first))
    first.kill()
    assert first.stdout is not None
    assert "started" in first.stdout.read()  # no process that goes on holds it open
    wait_for(lambda: len(list(holders(lock_file(run, tmp_path)))) == 1)
    assert own_state(run, tmp_path) is State.RUNNING
    seen: list[str] = []
    plan = [run, fake_run("a-x", "a")]
    summary = run_local(
        plan, tmp_path, on_change=lambda change: seen.append(change.text), program=FORKED_FAKE
    )
    assert summary.done == ["a", "a-x"]
    assert seen[0] == "is at work since before; waiting for it"
    assert (tmp_path / "completed.txt").read_text().split() == ["a", "a-x"]
    assert [each.outcome for each in read_attempts(run, tmp_path)] == [Outcome.DONE]


@pytest.mark.nightly
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_forked_runs_once(
    number: signal.Signals, tmp_path: Path, runner: Begin
) -> None:
    run = fake_run("a")
    process = runner(1500)
    wait_for(lambda: (last_step(run.directory(tmp_path)) or 0) > 2)
    os.killpg(process.pid, number)  # as the terminal does
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert "2 left" in output
    assert [each.outcome for each in read_attempts(run, tmp_path)] == [Outcome.STOPPED]
    assert run.log(tmp_path).read_text().count("told to stop") == 1


@pytest.mark.nightly
def test_a_second_ctrl_c_kills_forked_runs(tmp_path: Path, runner: Begin) -> None:
    run = fake_run("a")
    process = runner(1500, stubborn=True)
    wait_for(lambda: (last_step(run.directory(tmp_path)) or 0) > 2)
    process.send_signal(signal.SIGINT)
    wait_for(lambda: "no\n" in run.log(tmp_path).read_text())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    (attempt,) = read_attempts(run, tmp_path)
    assert (attempt.outcome, attempt.exit_code) == (Outcome.STOPPED, -signal.SIGKILL)


@pytest.mark.nightly
def test_a_signal_ends_a_runner_whose_parent_is_importing(tmp_path: Path, runner: Begin) -> None:
    process = runner(1, preloaded=("endless_import",))
    wait_for(lambda: any("fork_server" in line for line in runs_of(process)))
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=20)
    assert process.returncode == 128 + signal.SIGINT
    assert "2 left" in output


@pytest.mark.nightly
@pytest.mark.timeout(900)  # processes that import torch, on a machine with other work
def test_forked_fits_and_evaluations_compute_the_bits_of_fresh_ones(
    tiny_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # dropout draws numbers; two threads deadlock in a fork of a parent that has some of its own
    settings = (
        "--config",
        str(tiny_config),
        "--model.encoder.hidden_dropout_prob=0.1",
        "--trainer.max_steps=12",
    )
    more = ("--config", str(tiny_config), "--model.init_from={weights}")
    pairs = tmp_path / "pairs.jsonl"
    pair = {"sentence_good": "a statement", "sentence_bad": "statement a", "UID": "order"}
    pairs.write_text(json.dumps(pair) + "\n", "utf-8")
    asked = ("--evaluation=minimal_pairs", f"--data={pairs}", "--ckpt_path={weights}")
    plan = [
        PlannedRun("base", "base", "v", 3, settings, steps=12),
        PlannedRun("other", "base", "w", 4, (*settings, "--seed_everything=4"), steps=12),
        PlannedRun("child", "more", "v", 3, more, "base", steps=6),
        PlannedRun("pairs", "order", "v", 3, asked, "base", trains=False),
    ]
    forked, fresh = tmp_path / "forked", tmp_path / "fresh"
    with monkeypatch.context() as patched:
        patched.setattr(warm_parent, "start_fresh", None)  # whoever calls it fails
        assert run_local(plan, forked, threads=2, on_change=lambda change: None).exit_code == 0
    monkeypatch.setenv(warm_parent.FRESH, "1")
    assert run_local(plan, fresh, threads=2, on_change=lambda change: None).exit_code == 0
    for run in plan:
        one, two = (run.directory(study) for study in (forked, fresh))
        assert (one / "results.json").read_bytes() == (two / "results.json").read_bytes()
        if not run.trains:
            continue
        manifests = [json.loads((each / "manifest.json").read_text()) for each in (one, two)]
        assert [each["threads"] for each in manifests] == [2, 2]
        states = [
            torch.load(each / "checkpoints" / "last.ckpt", map_location="cpu")["state_dict"]
            for each in (one, two)
        ]
        assert states[0].keys() == states[1].keys()
        for name, weights in states[0].items():
            assert torch.equal(weights, states[1][name]), (run.id, name)
    rows = Path("runs", "pairs", "minimal_pairs.rows.jsonl")
    assert (forked / rows).read_bytes() == (fresh / rows).read_bytes()
