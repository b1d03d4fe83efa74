"""Kill training and other commands at random moments; compare with no kill at all.

    python benchmarks/fit_kills.py --kills 40 pretrain
    python benchmarks/fit_kills.py --kills 30 finetune
    python benchmarks/fit_kills.py --kills 30 prepare
    python benchmarks/fit_kills.py --kills 20 --signals KILL changing
    python benchmarks/fit_kills.py --kills 20 --signals KILL stages
    python benchmarks/fit_kills.py --kills 16 --signals KILL tokenizer|export|embed|predict|evaluate
    python benchmarks/fit_kills.py --kills 5 --signals KILL my-plugin/configs/my-plugin.yaml

The command is run once to its end. Then it is started and killed after a random time, by SIGKILL or
SIGTERM, alone or with its data workers, and the same line is started again and killed again, until
the kills of one job (``--kills_a_job``) are spent and it comes to its end; then the next job. What
is compared with the undisturbed job: weights, the optimiser's state, ``results.json``, and every
line of the log, also those that were logged twice; of the other commands every byte of what they
write, and that nothing is left beside it. Data workers are 0, 1 and 2 in turn. Exit code 0 if all
is equal.

Each job is a process forked from this one, which has imported torch already: what is killed is
training, not the start of Python.
"""

import argparse
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from compared_outputs import compare_runs
from fault_jobs import KINDS, Arguments, fit
from forked_commands import start, wait

_SIGNALS = {
    "both": [signal.SIGKILL, signal.SIGKILL, signal.SIGTERM],
    "KILL": [signal.SIGKILL],
}


@dataclass
class Tally:
    """What was killed, and what was wrong afterwards."""

    left: int
    kills: dict[str, int] = field(default_factory=dict)
    jobs: int = 0
    faults: list[str] = field(default_factory=list)


def main() -> int:
    """Run undisturbed, run disturbed, compare, tell."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kind", help=f"{', '.join(KINDS)}, or the config of a fit")
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--kills_a_job", type=int, default=5)
    parser.add_argument("--signals", choices=["both", "KILL"], default="both")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"{Path(given.kind).stem}-kills-"))
    os.environ["BERTLAB_CACHE"] = str(folder / "cache")
    if given.kind in KINDS:
        command, compare = KINDS[given.kind](folder)
    else:
        command, compare = fit(Path(given.kind)), compare_runs
        wait(start(command(folder / "first", 0), folder / "first.log"))  # fills the cache
    first = folder / "undisturbed"
    began = time.monotonic()
    if wait(start(command(first, 0), Path(f"{first}.log"))) != 0:
        print(f"the undisturbed job failed; see {first}.log")
        return 1
    seconds = time.monotonic() - began
    rng = random.Random(given.seed)  # noqa: S311
    tally = Tally(given.kills)
    while tally.left > 0:
        place = folder / f"disturbed-{tally.jobs}"
        disturb(command, place, seconds, given.kills_a_job, tally, rng, _SIGNALS[given.signals])
        tally.faults += compare(first, place)
        tally.jobs += 1
    told = ", ".join(f"{count} × {how}" for how, count in sorted(tally.kills.items()))
    print(
        f"{given.kind}: {sum(tally.kills.values())} kills in {tally.jobs} jobs of {seconds:.1f} s"
    )
    print(f"  {told}")
    print("\n".join(tally.faults) or "  every job came to its end, equal to the undisturbed one")
    return 1 if tally.faults else 0


def disturb(
    command: Arguments,
    place: Path,
    seconds: float,
    kills: int,
    tally: Tally,
    rng: random.Random,
    signals: Sequence[signal.Signals],
) -> None:
    """Start and kill a job until it comes to its end."""
    done = 0
    for workers in itertools.cycle([0, 1, 2]):
        process = start(command(place, workers), Path(f"{place}.log"))
        kill = done < kills and tally.left > 0
        code = wait(process, rng.uniform(0, seconds) if kill else None)
        if code is not None:
            if code != 0:
                tally.faults.append(f"{place}: exit code {code}; see {place}.log")
            if code == 0 or not kill:
                return
            continue
        number = rng.choice(signals)
        group = rng.random() < 0.5
        (os.killpg if group else os.kill)(process, number)
        code = wait(process)
        done += 1
        tally.left -= 1
        how = f"{signal.Signals(number).name}{' with its workers' if group else ''}"
        tally.kills[how] = tally.kills.get(how, 0) + 1
        # finished in that very moment, killed, or saved and stopped
        if code not in (0, -number, 128 + signal.SIGTERM):
            tally.faults.append(f"{place}: exit code {code} after {how}; see {place}.log")
        if code == 0:
            return


if __name__ == "__main__":
    sys.exit(main())
