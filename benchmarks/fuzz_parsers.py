"""Fuzz a parser of strangers' files, guided by coverage (atheris, libFuzzer).

    pip install atheris
    python benchmarks/fuzz_parsers.py                    # all parsers, 20,000 runs each
    python benchmarks/fuzz_parsers.py --runs 500000 squad

A file is read, or refused by a BertlabError; any other error, and anything that takes over ten
seconds or 2 GB, is a crash: it is shown, and the file that did it is kept. Exit code 0 if none.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # for the tests' parsers


def main() -> int:
    """Fuzz each parser in a process of its own."""
    import atheris  # noqa: PLC0415

    with atheris.instrument_imports(include=["bertlab"]):
        from tests.reliability.parsers import PARSERS  # noqa: PLC0415

    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("parsers", nargs="*", metavar="PARSER", help=", ".join(PARSERS))
    arguments.add_argument("--runs", type=int, default=20_000)
    arguments.add_argument("--here", action="store_true", help="one parser, in this process")
    given = arguments.parse_args()
    if given.here:
        return fuzz(given.parsers[0], given.runs)
    crashed = []
    for name in given.parsers or PARSERS:
        began = time.monotonic()
        command = [sys.executable, __file__, "--here", name, "--runs", str(given.runs)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
        last = [line for line in done.stderr.splitlines() if " cov: " in line][-1:]
        seconds = time.monotonic() - began
        covered = last[0].split("cov: ")[1].split()[0] if last else "?"
        outcome = "crashed" if done.returncode else "no crash"
        print(f"{name}: {given.runs} runs, {covered} edges, {seconds:.0f} s: {outcome}", flush=True)
        if done.returncode:
            crashed.append(name)
            print(done.stderr[-3000:])
    return 1 if crashed else 0


def fuzz(name: str, runs: int) -> int:
    """Fuzz one parser; ends the process."""
    import atheris  # noqa: PLC0415

    from tests.reliability.parsers import PARSERS  # noqa: PLC0415

    parser = PARSERS[name]
    folder = Path(tempfile.mkdtemp(prefix=f"fuzz-{name}-", dir=memory()))
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "whole").write_bytes(parser.whole)
    file = folder / parser.file

    def parse(data: bytes) -> None:
        file.write_bytes(data)
        parser.takes(file)

    limits = ["-timeout=10", "-rss_limit_mb=4096", "-max_len=4096", "-seed=1"]
    atheris.Setup(
        [name, f"-runs={runs}", *limits, f"-artifact_prefix={folder}/", str(corpus)], parse
    )
    atheris.Fuzz()
    return 0


def memory() -> str | None:
    """Return a folder in memory, if there is one."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108


if __name__ == "__main__":
    sys.exit(main())
