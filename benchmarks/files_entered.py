"""Count the files and functions of bertlab that a fit enters before its first training step.

    python benchmarks/files_entered.py [--list]

Runs the quickstart in this process up to its first step, with a prepared corpus if there is one (so
run it twice), and watches calls with ``sys.setprofile``. What is done on import is not counted.
"""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from inspect import CO_OPTIMIZED
from pathlib import Path
from types import CodeType, FrameType

import bertlab

PACKAGE = str(Path(bertlab.__file__).parent)


class FirstStepError(Exception):
    """The first training step is about to begin."""


def main() -> None:
    """Run, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--list", action="store_true", help="print calls by file")
    listed = parser.parse_args().list
    entered: Counter[CodeType] = Counter()

    def watch(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(PACKAGE):
            return
        if code.co_name == "training_step":
            raise FirstStepError
        if code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<"):  # no class bodies
            entered[code] += 1

    run = command()
    with tempfile.TemporaryDirectory() as folder:
        arguments = ["fit", "--config", "configs/quickstart.yaml", "--run_dir", f"{folder}/run"]
        sys.setprofile(watch)
        try:
            run(arguments)
        except FirstStepError:
            pass
        finally:
            sys.setprofile(None)
    files = Counter({code.co_filename: 0 for code in entered})
    for code, calls in entered.items():
        files[code.co_filename] += calls
    sys.stdout.write(f"\n{len(files)} files, {len(entered)} functions entered\n")
    if listed:
        for file, calls in sorted(files.items()):
            sys.stdout.write(f"{calls:8,}  {Path(file).relative_to(PACKAGE)}\n")


def command() -> Callable[[list[str]], int]:
    """Return what dispatches a command line, of this version or of those before the rooms."""
    try:
        module = import_module("bertlab.cli.main")
    except ModuleNotFoundError:
        module = import_module("bertlab.cli")
    run: Callable[[list[str]], int] = module.run
    return run


if __name__ == "__main__":
    main()
