"""Take processes from a run of torchrun, give it new ones; compare with a run that kept its own.

    python benchmarks/elastic_kills.py --kills 50
    python benchmarks/elastic_kills.py --kills 10 --strategy fsdp

Two nodes of one process each, gloo on the CPU, no dropout. In turn a node is killed (SIGKILL, its
agent and its process), the other goes on alone, and a new node joins it; in between the process of
a node that stays is killed, and the node at which all meet. A kill comes some steps after the run
went on, every fifth at a random moment, mostly while processes start. Compared with the undisturbed
run of two nodes: the losses of all logged steps, also of those logged twice, weights, moments,
held-out figures. Exit code 0 if all are within ``--tolerance``, no step is missing, and each job
came to its end.

A node does as docs/cluster/fit-torchrun.sh: its agent is begun again while the run gets on. Agents
and processes are torch's own, forked from this one, which has imported torch already: what is
killed is training, not the start of Python.
"""

import argparse
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from agreement import DROPOUT, differences
from compared_outputs import log_lines
from fault_jobs import PRETRAIN
from forked_commands import wait
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from bertlab.cli.main import main as bertlab

_PATIENCE = 300  # seconds for a run to go on
_STEPS = (1, 12)  # after the run went on, until the next kill
_TRIES = 5  # of a node whose run does not get on
_JOINED = "joined"
_STRATEGIES = {
    "ddp": "{class_path: DDPStrategy, init_args: {timeout: '0:00:40'}}",
    "fsdp": "fsdp",
}


@dataclass
class Job:
    """A run, its nodes, and where they meet.

    Attributes:
        run: its directory.
        command: of each process, after ``bertlab``.
        port: of the first node, at which all meet.
        nodes: processes that are nodes, each the leader of a group; the first one comes first.
    """

    run: Path
    command: list[str]
    port: int
    nodes: list[int] = field(default_factory=list)

    def join(self) -> None:
        """Start one more node; the first, if that is gone."""
        is_host = not self.nodes
        self.nodes.append(forked(self.run.with_suffix(".log"), lambda: self._node(is_host)))

    def lose(self, node: int) -> None:
        """Kill a node: its agent and its process."""
        self.nodes.remove(node)
        os.killpg(node, signal.SIGKILL)
        wait(node)

    def end(self) -> list[int | None]:
        """Return the exit codes of all nodes; those that do not end are killed."""
        codes = [wait(node, _PATIENCE) for node in self.nodes]
        for node, code in zip(self.nodes, codes, strict=True):
            if code is None:
                os.killpg(node, signal.SIGKILL)
        return codes

    def _node(self, is_host: bool) -> None:
        tries = 0
        last = self.run / "checkpoints" / "last.ckpt"
        while True:
            before = last.stat().st_mtime if last.exists() else None
            if wait(forked(None, lambda: self._agent(is_host))) == 0:
                return
            tries = tries + 1 if last.exists() and last.stat().st_mtime == before else 0
            if tries == _TRIES:
                sys.exit(1)
            time.sleep(2)

    def _agent(self, is_host: bool) -> None:
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=2,
            nproc_per_node=1,
            run_id=self.run.name,
            rdzv_backend="c10d",
            rdzv_endpoint=f"127.0.0.1:{self.port}",
            rdzv_configs={"is_host": is_host, "last_call_timeout": 2},
            max_restarts=3,
            start_method="fork",
        )
        elastic_launch(config, work)(self.command)


def work(command: list[str]) -> None:
    """Run a command of bertlab: what each process of a node does."""
    for number in (signal.SIGTERM, signal.SIGINT):  # not as the agent has them
        signal.signal(number, signal.SIG_DFL)
    sys.exit(bertlab(command))


def forked(log: Path | None, call: Callable[[], object]) -> int:
    """Call something in a process; return it.

    Args:
        log: of its own group; None for a process of this group, with its log.
        call: ends the process.
    """
    process = os.fork()
    if process:
        return process
    if log is not None:
        os.setpgid(0, 0)
        written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(written, 1)
        os.dup2(written, 2)
    code = 1
    try:
        call()
        code = 0
    except BaseException:
        traceback.print_exc()
        raise
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def worker_of(node: int) -> int | None:
    """Return the process that a node's agent has started, if it has one now."""
    process = node
    for _ in range(2):  # node -> agent -> its process
        children = Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()
        if not children:
            return None
        process = int(children[0])
    return process


def free_port() -> int:
    """Return a port that nobody listens to."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def sessions(run: Path) -> list[int]:
    """Return how many processes each session of a run had."""
    manifest = run / "manifest.json"
    if not manifest.is_file():
        return []
    return [each["processes"] for each in json.loads(manifest.read_text())["sessions"]]


def logs_of(run: Path) -> list[Path]:
    """Return the log of each session that took a step, in order."""
    return sorted(run.glob("csv/*/metrics.csv"), key=lambda each: each.stat().st_mtime)


def goes_on(job: Job, since: int, steps: int) -> bool:
    """Wait until all nodes have taken steps together; return whether they did.

    Args:
        job: whose nodes.
        since: logs that there were before.
        steps: that a new one has to have.
    """
    end = time.monotonic() + _PATIENCE
    while time.monotonic() < end:
        if (job.run / "results.json").is_file():
            return True
        logs, processes = logs_of(job.run), sessions(job.run)
        fresh = len(logs) > since and processes[-1:] == [len(job.nodes)]
        if fresh and len(logs[-1].read_bytes().splitlines()) > steps:
            return True
        time.sleep(0.02)
    return False


def disturb(job: Job, kills: int, tally: Counter[str], rng: random.Random) -> list[str]:
    """Kill and start nodes until the kills are spent; then wait for the end.

    Returns:
        What went wrong, a line each.
    """
    job.join()
    job.join()
    since = done = 0
    while done < kills:
        if done % 5 == 4:
            time.sleep(rng.uniform(0, 10))
        elif not goes_on(job, since, rng.randint(*_STEPS)):
            return [f"{job.run}: did not go on with {len(job.nodes)} processes"]
        if (job.run / "results.json").is_file():
            break
        before = len(logs_of(job.run))
        what = hurt(job, rng)
        if what is not None:
            tally[what] += 1
            since, done = before, done + (what != _JOINED)
    while len(job.nodes) < 2 and not (job.run / "results.json").is_file():
        job.join()
        tally[_JOINED] += 1
    codes = job.end()
    whole = (job.run / "results.json").is_file()
    # one that joins at the very end finds the meeting point closed
    return [] if 0 in codes and whole else [f"{job.run}: exit codes {codes}"]


def hurt(job: Job, rng: random.Random) -> str | None:
    """Kill a node or a process, or start a node; return which it was, None if there was none."""
    chance = rng.random()
    if len(job.nodes) == 1:
        if chance < 0.3 and (worker := worker_of(job.nodes[0])):
            os.kill(worker, signal.SIGKILL)
            return "the only process"
        job.join()
        return _JOINED
    if chance < 0.7:
        job.lose(job.nodes[1])
        return "the second node"
    if chance < 0.8:  # without which the other waits
        job.lose(job.nodes[0])
        other = job.nodes.pop()
        job.join()
        job.nodes.append(other)
        return "the first node"
    worker = worker_of(rng.choice(job.nodes))
    if worker is None:
        return None
    os.kill(worker, signal.SIGKILL)
    return "a process of two"


def compare(one: Path, two: Path, tolerance: float) -> tuple[tuple[float, ...], list[str]]:
    """Return the largest differences of two runs, and what is wrong, a line each."""
    lines, others = log_lines(one), log_lines(two)
    faults = []
    if lines.keys() != others.keys():
        faults.append(f"{two}: other steps are logged: {sorted(lines.keys() ^ others.keys())[:5]}")
    losses = 0.0
    for key in lines.keys() & others.keys():
        true = dict(lines[key][0])
        for line in others[key]:  # some steps were taken twice
            losses = max(
                losses,
                *(
                    abs(float(value) - float(true[name]))
                    for name, value in line
                    if name.endswith("loss")
                ),
            )
    found = (losses, *differences(one, two)[1:])
    if max(found) > tolerance:
        faults.append(f"{two}: differs by {max(found):.1e}")
    if left := [path.name for path in two.rglob("*.partial")]:
        faults.append(f"{two}: left behind: {left}")
    return found, faults


def main() -> int:
    """Run undisturbed, run disturbed, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--kills_a_job", type=int, default=10)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--strategy", choices=_STRATEGIES, default="ddp")
    parser.add_argument("--tolerance", type=float, default=1e-5)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="elastic-kills-"))
    os.environ |= {"BERTLAB_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"  # as fit-torchrun.sh
    (folder / "fit.yaml").write_text(PRETRAIN)
    rng = random.Random(given.seed)  # noqa: S311
    first = folder / "undisturbed"
    tally: Counter[str] = Counter()
    worlds: Counter[int] = Counter()
    largest, faults = (0.0, 0.0, 0.0, 0.0), []
    left, jobs = given.kills, 0
    while left > 0:
        run = first if jobs == 0 else folder / f"disturbed-{jobs}"
        command = ["fit", "--config", str(folder / "fit.yaml"), "--run_dir", str(run)]
        command += ["--ckpt_path", "last", "--trainer.strategy", _STRATEGIES[given.strategy]]
        command += [f"--model.encoder.{each}=0" for each in DROPOUT]
        command += [f"--trainer.max_steps={given.steps}"]
        job = Job(run, command, free_port())
        kills = 0 if jobs == 0 else min(left, given.kills_a_job)
        before = tally.total() - tally[_JOINED]
        found = disturb(job, kills, tally, rng)
        if jobs == 0 and found:
            print("\n".join(found), f"see {run}.log", sep="\n")
            return 1
        if jobs:
            left -= tally.total() - tally[_JOINED] - before
            worlds.update(sessions(run))
            if not found:
                apart, found = compare(first, run, given.tolerance)
                largest = tuple(map(max, largest, apart))
            faults += found
            print(f"{run}: {given.kills - left} kills, sessions of {sessions(run)}", flush=True)
        jobs += 1
    told = ", ".join(f"{count} × {what}" for what, count in sorted(tally.items()))
    print(f"{given.strategy}: {given.kills - left} kills in {jobs - 1} jobs of {given.steps} steps")
    print(f"  {told}")
    print(f"  sessions: {worlds[2]} of two processes, {worlds[1]} of one")
    parts = zip(("losses", "weights", "moments", "held-out"), largest, strict=True)
    print("  largest differences: " + ", ".join(f"{name} {apart:.1e}" for name, apart in parts))
    print("\n".join(faults) or "  every job came to its end, within the tolerance")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
