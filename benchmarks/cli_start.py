"""Time of commands that need no torch, and of importing what the others need.

    python benchmarks/cli_start.py --rounds 10

Each command is a fresh process; with it runs, in turn, Python that imports nothing, and Python that
imports torch alone. Said as well: whether the command imported torch.
"""

import argparse
import statistics
import subprocess
import sys
import time

from bertlab.errors import print_table

PYTHON = [sys.executable, "-c"]
COMMANDS = {
    "bertlab --version": [sys.executable, "-m", "bertlab", "--version"],
    "bertlab --help": [sys.executable, "-m", "bertlab", "--help"],
    "bertlab plugins list": [sys.executable, "-m", "bertlab", "plugins", "list"],
    "bertlab explain E104": [sys.executable, "-m", "bertlab", "explain", "E104"],
    "bertlab fit --help": [sys.executable, "-m", "bertlab", "fit", "--help"],
    "python, nothing imported": [*PYTHON, "pass"],
    "python, import torch": [*PYTHON, "import torch"],
    "python, import transformers.Trainer": [*PYTHON, "from transformers import Trainer"],
}


def main() -> None:
    """Run all commands in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(given.rounds):
        for name, command in COMMANDS.items():
            began = time.monotonic()
            subprocess.run(command, check=True, capture_output=True)
            times[name].append(time.monotonic() - began)
    rows = []
    for name, taken in times.items():
        spread = f"{statistics.median(taken):.2f} ({min(taken):.2f} … {max(taken):.2f})"
        rows.append((name, spread, "torch" if imports_torch(COMMANDS[name]) else ""))
    title = f"seconds from start to end, {given.rounds} of each in turn"
    print_table(title, rows, ("", "median (smallest … largest)", "imports"))


def imports_torch(command: list[str]) -> bool:
    """Run a command once more and look at what it imported."""
    traced = [command[0], "-X", "importtime", *command[1:]]
    done = subprocess.run(traced, check=True, capture_output=True, text=True)
    return any(line.endswith(" torch") for line in done.stderr.splitlines())


if __name__ == "__main__":
    main()
