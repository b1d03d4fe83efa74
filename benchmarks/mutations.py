"""Seeds faults in modules of the core, and counts how many of them the fast tests find.

::

    pytest -n auto -m 'not slow' --cov=bertlab --cov-context=test --cov-report=  # with pytest-cov
    python benchmarks/mutations.py --faults 50 --seed 0 --covered .coverage

(In one process, with ``--dist=no`` for ``-n auto``: else pytest-cov records no test.)

A fault is an off-by-one, a dropped term or a swapped branch, in a line that the draw chooses. No
file is changed: the fault is put in when the module is imported, in the tests' processes and in
those that they start. First the tests that enter its line run (without ``--covered`` those of the
module's own room), then all fast tests, each until one fails. A fault that changes nothing that can
be seen is not found, nor is one in a line that no test reaches: the place of each is printed, to be
read.
"""

import argparse
import ast
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

LIMIT = 3600  # seconds for the tests of one fault
ROOT = Path(__file__).resolve().parents[1]
# texts and tables of names, whose numbers and branches are of words
NOT_COMPUTED = ("bertlab/errors/", "bertlab/extend.pyi")
COMPARISONS = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
}  # fmt: skip
AT_IMPORT = """
import importlib.machinery as machinery
place, before, after, start = {path!r}, {before!r}, {after!r}, {start}
get_code = machinery.SourceFileLoader.get_code
def changed(self, name):
    if self.path != place:
        return get_code(self, name)
    text = self.get_source(name)
    assert text.encode()[start:start + len(before)] == before, "the module has changed"
    data = text.encode()
    data = data[:start] + after + data[start + len(before):]
    return compile(data, place, "exec", dont_inherit=True)
machinery.SourceFileLoader.get_code = changed
"""


@dataclass(frozen=True)
class Fault:
    """A change of some bytes of a module.

    Attributes:
        path: of the module.
        line: of the change, from 1.
        kind: off by one, dropped term or swapped branch.
        start: byte at which it begins.
        before: bytes that are replaced.
        after: bytes in their place.
    """

    path: Path
    line: int
    kind: str
    start: int
    before: bytes
    after: bytes

    def __str__(self) -> str:
        place = f"{self.path.relative_to(ROOT)}:{self.line}"
        return f"{place}: {self.kind}: {self.before.decode()} -> {self.after.decode()}"


def faults_of(path: Path) -> Iterator[Fault]:
    """Yield all faults that can be seeded in a module."""
    data = path.read_bytes()
    starts = [0]  # of lines: "ab\ncd\n" -> 0, 3, 6
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(node: ast.expr) -> slice:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        begin = starts[node.lineno - 1] + node.col_offset
        return slice(begin, starts[node.end_lineno - 1] + node.end_col_offset)

    waiting: list[ast.AST] = [ast.parse(data)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.JoinedStr):  # Python 3.11 does not know the places in it
            continue
        waiting += ast.iter_child_nodes(node)
        for kind, old, new in changes(node, lambda part: data[place(part)]):
            span = place(old)
            yield Fault(path, old.lineno, kind, span.start, data[span], new)


def changes(
    node: ast.AST, text: Callable[[ast.expr], bytes]
) -> Iterator[tuple[str, ast.expr, bytes]]:
    """Yield kinds of faults at a node, what they replace, and by what."""
    match node:
        case ast.Constant(value=int(value)) if not isinstance(value, bool):
            yield "off by one", node, str(value + 1).encode()
        case ast.Compare(left=left, ops=[operator], comparators=[right]):
            if (other := COMPARISONS.get(type(operator))) is not None:
                yield "off by one", node, text(left) + f" {other} ".encode() + text(right)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult()):
            yield "dropped term", node, text(left)
        case ast.BoolOp(values=[first, *_]):
            yield "dropped term", node, text(first)
        case ast.If(test=test) | ast.IfExp(test=test):
            yield "swapped branch", test, b"(not (" + text(test) + b"))"


def draw_faults(count: int, seed: int) -> list[Fault]:
    """Draw faults of the core, each kind as often as the others."""
    by_kind: dict[str, list[Fault]] = {}
    for path in sorted((ROOT / "bertlab").rglob("*.py")):
        if not str(path.relative_to(ROOT)).startswith(NOT_COMPUTED):
            for each in faults_of(path):
                by_kind.setdefault(each.kind, []).append(each)
    draw = random.Random(seed)  # noqa: S311  no secret
    kinds = sorted(by_kind)
    return [draw.choice(by_kind[kinds[number % len(kinds)]]) for number in range(count)]


def tests_of(fault: Fault, covered: Path | None) -> list[str]:
    """Return the tests that enter the line of a fault; those of its room where none is known."""
    contexts: set[str] = set()
    if covered is not None:
        data = import_module("coverage").CoverageData(str(covered))
        data.read()
        contexts.update(data.contexts_by_lineno(str(fault.path)).get(fault.line, ()))
    # tests/a.py::test_b|run -> tests/a.py::test_b; what an import enters has no test
    if tests := sorted({each.rpartition("|")[0] for each in contexts} - {""}):
        return tests
    room = Path("tests", fault.path.relative_to(ROOT / "bertlab").parts[0])
    return [str(room)] if (ROOT / room).is_dir() else []


def finds(fault: Fault, tests: list[str]) -> str | None:
    """Return which fast test fails first with a fault, None where all pass."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tests.txt").write_text("\n".join(tests))
        text = AT_IMPORT.format(
            path=str(fault.path), before=fault.before, after=fault.after, start=fault.start
        )
        (Path(folder) / "sitecustomize.py").write_text(text)
        paths = filter(None, [folder, os.environ.get("PYTHONPATH")])
        command = [sys.executable, "-m", "pytest", "-qx", "-n2", "-p", "no:cacheprovider"]
        with subprocess.Popen(
            [*command, "-m", "not slow", *([f"@{folder}/tests.txt"] if tests else [])],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            text=True,
        ) as process:
            try:
                printed, _ = process.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:  # the fault made a loop endless
                os.killpg(process.pid, signal.SIGKILL)
                return f"not done after {LIMIT} s"
    if process.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+)", printed, re.MULTILINE)
    return failed[1] if failed else f"exit code {process.returncode}"


def main() -> int:
    """Seed, test, count."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--covered", type=Path, help="which tests enter a line: pytest-cov's file")
    parser.add_argument("--only_these", action="store_true", help="do not go on to all fast tests")
    given = parser.parse_args()
    found = 0
    for fault in draw_faults(given.faults, given.seed):
        began = time.monotonic()
        tests = tests_of(fault, given.covered)
        seen = finds(fault, tests) if tests else None
        if seen is None and not given.only_these:
            seen = finds(fault, [])
        found += seen is not None
        state = "NOT FOUND" if seen is None else "found"
        print(f"{state} {time.monotonic() - began:4.0f} s  {fault}  {seen or ''}", flush=True)
    print(f"{found} of {given.faults} faults found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
