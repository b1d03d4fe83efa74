"""SECURITY.md, "Few bytes take little memory": generated bombs, and the peak of who reads them."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.reliability.bombs import MAKERS, Maker
from tests.reliability.commands import Answer, check_answered
from tests.reliability.peak_memory import Measured

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc tells the peak")

MOST_MB = 1000
_SLOW = ("json_rows", "tokenizer_json", "checkpoint", "hashes", "records")  # the others every night
_NIGHTLY = 20
Measure = Callable[[list[str]], Measured]


@pytest.fixture(scope="module")
def measure() -> Iterator[Measure]:
    """Run commands each in a fork of its own, which has imported all."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    environment.pop("BERTLAB_READING_MB", None)
    server = subprocess.Popen(
        [sys.executable, "-m", "tests.reliability.peak_memory"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None

    def run(arguments: list[str]) -> Measured:
        print(json.dumps(arguments), file=server.stdin, flush=True)
        return Measured(**json.loads(server.stdout.readline()))

    yield run
    server.stdin.close()
    server.stdout.close()
    server.wait()


def check(maker: Maker, seed: int, run: Path, folder: Path, measure: Measure) -> None:
    """Check that what is drawn by a seed is read, or refused by name, in little memory."""
    arguments = maker(folder, run, random.Random(seed))
    told = measure(arguments)
    shown = f"seed {seed}: {' '.join(arguments)}: {told}"
    print(f"{maker.__name__} {seed}: {told.peak:.0f} MB")  # -rP shows it
    assert told.peak <= MOST_MB, shown
    if told.code == -signal.SIGALRM:  # memory is what is promised, not time
        return
    assert told.code in (0, 2), shown
    names = (*(path.name for path in folder.rglob("*")), "data.validation_fraction")
    check_answered(Answer(told.code, "", told.error), names)


@pytest.mark.nightly
@pytest.mark.parametrize(
    "maker",
    [each for each in MAKERS if each.__name__ in _SLOW],
    ids=lambda maker: maker.__name__,
)
def test_few_bytes_take_little_memory(
    maker: Maker, tmp_path: Path, tiny_run: Path, measure: Measure
) -> None:
    check(maker, 0, tiny_run, tmp_path, measure)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(_NIGHTLY))
@pytest.mark.parametrize("maker", MAKERS, ids=lambda maker: maker.__name__)
def test_many_bombs(
    maker: Maker, seed: int, tmp_path: Path, tiny_run: Path, measure: Measure
) -> None:
    check(maker, seed, tiny_run, tmp_path, measure)
