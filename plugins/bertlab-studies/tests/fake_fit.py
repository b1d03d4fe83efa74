"""A program that keeps a run directory as ``bertlab fit`` does, and computes next to nothing."""

import argparse
import hashlib
import json
import os
import signal
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bertlab_studies.plan.plan import PlannedRun

FAKE = (sys.executable, __file__)
FORKED_FAKE = (sys.executable, "-m", "fake_fit")  # by a parent that has imported it


def fake_run(
    name: str,
    parent: str | None = None,
    *,
    steps: int = 1,
    seconds: float = 0.01,
    fail_at: int = -1,
    failures: int = 0,
    exit_code: int = 7,
    stubborn: bool = False,
) -> "PlannedRun":
    """Return a run of the fake program: it fails at a step, as often as said."""
    from bertlab_studies.plan.plan import PlannedRun  # slow to import, of no use to the program

    arguments = [f"--steps={steps}", f"--seconds={seconds}", f"--fail_at={fail_at}"]
    arguments += [
        f"--failures={failures}",
        f"--exit_code={exit_code}",
        f"--stubborn={int(stubborn)}",
    ]
    arguments += ["--weights={weights}"] if parent else []
    return PlannedRun(name, "base", name, 1, tuple(arguments), parent, steps)


def slow_family() -> "list[PlannedRun]":
    return [fake_run("a", steps=40, seconds=0.1), fake_run("a-x", "a", steps=2)]


def endless_family() -> "list[PlannedRun]":
    return [fake_run("a", steps=1500, seconds=0.1), fake_run("a-x", "a")]


def wait_for(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def main() -> int:
    parser = argparse.ArgumentParser()
    for name in ("run_dir", "ckpt_path", "weights"):
        parser.add_argument(f"--{name}", type=Path)
    numbers = ("steps", "fail_at", "failures", "exit_code", "stubborn")
    for name in numbers:
        parser.add_argument(f"--{name}", type=int)
    parser.add_argument("--seconds", type=float)
    given = vars(parser.parse_known_args()[0])
    directory = given["ckpt_path"] or given["run_dir"]
    checkpoint = directory / "checkpoints" / "last.ckpt"
    if given["ckpt_path"]:
        with zipfile.ZipFile(checkpoint) as archive:
            state = json.loads(archive.read("state"))
    else:
        checkpoint.parent.mkdir(parents=True)
        state = {key: given[key] for key in (*numbers, "seconds")}
        weights = given["weights"]
        state |= {"step": 0, "value": (weights / "results.json").read_text() if weights else ""}
        facts = {"weights": str(weights), "threads": os.environ.get("OMP_NUM_THREADS")}
        facts |= {"process": os.getpid(), "shares": {"fake": ["accuracy"]}}
        (directory / "manifest.json").write_text(json.dumps(facts))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stubborn_stop if state["stubborn"] else stop)
    attempts = directory.parent.parent / f"{directory.name}.failures"
    metrics = directory / "csv" / f"version_{os.getpid()}" / "metrics.csv"
    metrics.parent.mkdir(parents=True)
    with metrics.open("w", buffering=1) as log:
        log.write("loss,step\n")
        while state["step"] < state["steps"]:
            time.sleep(state["seconds"])
            before = attempts.read_text() if attempts.exists() else ""
            mended = (directory.parent.parent / "mended").exists()
            if state["step"] == state["fail_at"] and len(before) < state["failures"] and not mended:
                attempts.write_text(before + "x")
                print("out of paper\n")
                return int(state["exit_code"])
            state["step"] += 1
            state["value"] = hashlib.sha256(
                f"{state['value']}/{state['step']}".encode()
            ).hexdigest()
            partial = checkpoint.with_suffix(".partial")
            with zipfile.ZipFile(partial, "w") as archive:
                archive.writestr("state", json.dumps(state))
            partial.replace(checkpoint)
            log.write(f"0.5,{state['step']}\n")
    results = {"loss": int(state["value"][:8], 16) / 2**32, "fake/accuracy": 0.5}
    partial = directory / "results.partial"
    partial.write_text(json.dumps(results))
    with (directory.parent.parent / "completed.txt").open("a") as file:
        file.write(directory.name + "\n")
    partial.replace(directory / "results.json")
    return 0


def stop(number: int, frame: object) -> None:
    print("told to stop", flush=True)
    sys.exit(128 + number)


def stubborn_stop(number: int, frame: object) -> None:
    print("no", flush=True)


if __name__ == "__main__":
    sys.exit(main())
