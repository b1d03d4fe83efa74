"""Kill a study's runner, and sometimes its runs, at random moments; compare with no kill at all.

    python benchmarks/study_kills.py                       # a plan of small programs that only hash
    python benchmarks/study_kills.py --kills 20 --longest 60 -- \
        bertlab study run study.yaml --directory {study}   # real fits; {study} is filled in

The command is run once to its end in ``undisturbed``. Then it is started in ``disturbed-1`` and
killed by SIGKILL after a random time, again and again, until a start comes to its end; if there are
kills left, so in ``disturbed-2``, and so on. Every run of each has to be done, by exactly one
attempt, and its ``results.json`` and ``predictions.jsonl`` have to be the undisturbed run's, byte
for byte. Exit code 0 if they are. Linux only.
"""

import argparse
import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

COMPARED = ("results.json", "predictions.jsonl")
RUNNER = (sys.executable, __file__, "runner", "{study}")


@dataclass
class Kills:
    """What was killed, and when.

    Attributes:
        left: kills still to do.
        children: how often runs were killed with their runner, or alone.
        orphans: how often runs went on without their runner.
        moments: seconds after the start of a runner.
    """

    left: int
    children: int = 0
    orphans: int = 0
    moments: list[float] = field(default_factory=list)


def main() -> int:
    """Run undisturbed, run disturbed, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--longest", type=float, help="seconds from a start to a kill")
    parser.add_argument("--share", type=float, default=0.4, help="of kills that hit runs as well")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--directory", type=Path, help="of the studies; by default a new one")
    parser.add_argument("command", nargs="*", help="that runs a study: {study} is its directory")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="study-kills-"))
    command = arguments.command or list(RUNNER)
    began = time.monotonic()
    if start(command, directory / "undisturbed").wait() != 0:
        print(f"the undisturbed study failed; see {directory}")
        return 1
    seconds = time.monotonic() - began
    print(f"undisturbed: {seconds:.1f} s, {len(runs(directory / 'undisturbed'))} runs")
    kills = Kills(arguments.kills)
    longest = arguments.longest or seconds / 2
    rng = random.Random(arguments.seed)  # noqa: S311
    faults, number = [], 0
    while kills.left:
        number += 1
        study = directory / f"disturbed-{number}"
        disturb(command, study, kills, longest, arguments.share, rng)
        faults += compare(directory / "undisturbed", study)
    print(
        f"{len(kills.moments)} kills of the runner in {number} studies, {min(kills.moments):.1f} … "
        f"{max(kills.moments):.1f} s after its start; {kills.children} also killed runs, "
        f"{kills.orphans} left runs at work"
    )
    print("\n".join(faults) or "all runs done once; all results equal to the undisturbed ones")
    return 1 if faults else 0


def start(command: list[str], study: Path) -> "subprocess.Popen[bytes]":
    """Start a runner in a session of its own, which its runs share."""
    study.mkdir(parents=True, exist_ok=True)
    filled = [part.replace("{study}", str(study)) for part in command]
    with (study.parent / f"{study.name}.log").open("ab") as log:
        return subprocess.Popen(filled, stdout=log, stderr=log, start_new_session=True)


def disturb(
    command: list[str], study: Path, kills: Kills, longest: float, share: float, rng: random.Random
) -> None:
    """Start and kill until a start comes to its end."""
    sessions: set[int] = set()
    while True:
        runner = start(command, study)
        sessions.add(runner.pid)
        moment = rng.uniform(0, longest) if kills.left else None
        try:
            runner.wait(moment)
            return
        except subprocess.TimeoutExpired:
            pass
        hit_children, hit_alone = rng.random() < share, rng.random() < share / 2
        if hit_alone:  # a run dies, its runner sees it and starts it again
            if kill_children(sessions, runner.pid, rng):
                kills.children += 1
            time.sleep(rng.uniform(0, 1))
        runner.kill()
        if runner.wait() != -signal.SIGKILL:
            return
        kills.left -= 1
        kills.moments.append(moment or 0.0)
        if hit_children and not hit_alone and kill_children(sessions, runner.pid, rng):
            kills.children += 1
        kills.orphans += bool(members(sessions, runner.pid))


def kill_children(sessions: set[int], runner: int, rng: random.Random) -> bool:
    """Kill some of the runs; return whether there were any."""
    found = members(sessions, runner)
    for process in rng.sample(found, rng.randint(min(1, len(found)), len(found))):
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGKILL)
    return bool(found)


def members(sessions: set[int], runner: int) -> list[int]:
    """Return the processes of the runners' sessions that live, without the runner."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (process / "stat").read_text().rpartition(")")[2].split()
            if int(state[3]) in sessions and state[0] != "Z" and int(process.name) != runner:
                found.append(int(process.name))
    return found


def runs(study: Path) -> list[str]:
    """Return the runs in a study's directory."""
    return sorted(path.name for path in (study / "runs").iterdir())


def compare(undisturbed: Path, disturbed: Path) -> list[str]:
    """Return what differs, a line each."""
    faults = []
    if runs(undisturbed) != runs(disturbed):
        return [f"{disturbed}: other runs: {runs(undisturbed)}, {runs(disturbed)}"]
    for run in runs(undisturbed):
        for name in COMPARED:
            one, two = (each / "runs" / run / name for each in (undisturbed, disturbed))
            if one.is_file() != two.is_file() or (
                one.is_file() and one.read_bytes() != two.read_bytes()
            ):
                faults.append(f"{two}: differs from the undisturbed one")
        listed = json.loads((disturbed / "attempts" / f"{run}.json").read_text("utf-8"))
        outcomes = [attempt["outcome"] for attempt in listed["attempts"]]
        if outcomes.count("done") != 1 or outcomes[-1] != "done":
            faults.append(f"{disturbed}: {run}: attempts that ended: {outcomes}")
    return faults


def run_plan(study: Path) -> int:
    """Run a plan of three pre-trainings with two evaluations each, two at a time."""
    from bertlab_studies.execute.local import run_local  # noqa: PLC0415  of no use to the others
    from bertlab_studies.plan.plan import PlannedRun  # noqa: PLC0415

    plan = []
    for seed in range(3):
        plan.append(PlannedRun(f"base-{seed}", "base", "v", seed, ("--steps", "60"), None, 60))
        for task in ("x", "y"):
            arguments = ("--steps", "30", "--weights", "{weights}")
            plan.append(
                PlannedRun(f"{task}-{seed}", task, "v", seed, arguments, f"base-{seed}", 30)
            )
    program = (sys.executable, __file__, "fit")
    summary = run_local(
        plan,
        study,
        workers=2,
        threads=1,
        retries=1,
        on_change=lambda change: print(change.run.id, change.text, flush=True),
        program=program,
    )
    print(*summary.lines(study), sep="\n")
    return summary.exit_code


def fit(argv: list[str]) -> int:
    """Hash for some steps, with a run directory as ``bertlab fit`` keeps one."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--run_dir", type=Path)
    parser.add_argument("--ckpt_path", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--steps", type=int, default=0)
    given = parser.parse_args(argv)
    directory: Path = given.ckpt_path or given.run_dir
    checkpoint = directory / "checkpoints" / "last.ckpt"
    time.sleep(0.3)  # of a real start, in which nothing is written
    if given.ckpt_path:
        with zipfile.ZipFile(checkpoint) as archive:
            state = json.loads(archive.read("state"))
    else:
        checkpoint.parent.mkdir(parents=True)
        (directory / "manifest.json").write_text("{}")
        before = (given.weights / "results.json").read_text() if given.weights else directory.name
        state = {"step": 0, "steps": given.steps, "value": before}
    while state["step"] < state["steps"]:
        time.sleep(0.05)
        state["step"] += 1
        state["value"] = hashlib.sha256(f"{state['value']}{state['step']}".encode()).hexdigest()
        if state["step"] % 7 == 0:
            with zipfile.ZipFile(checkpoint.with_suffix(".partial"), "w") as archive:
                archive.writestr("state", json.dumps(state))
            checkpoint.with_suffix(".partial").replace(checkpoint)
    results = json.dumps({"loss": int(state["value"][:12], 16)})
    (directory / "results.partial").write_text(results)
    (directory / "results.partial").replace(directory / "results.json")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["runner"]:
        sys.exit(run_plan(Path(sys.argv[2])))
    sys.exit(fit(sys.argv[2:]) if sys.argv[1:2] == ["fit"] else main())
