"""Cost of ``bertlab fit`` and ``prepare`` against what they are given.

    python benchmarks/scaling.py corpus|length|size|workers|processes [--rounds 3]

``corpus``: preparing once, ten and a hundred times the same text, and the time from the start of
``fit`` on the store to its first step. ``length``: steps of about 4,096 tokens in sequences of 128
to 2,048. ``size``: BERT's sizes on 128 tokens. ``workers``: data workers. ``processes``: one
process with one and with two threads, two processes under DDP and under FSDP with one thread each.
All on the CPU in fp32, on the English that ships with Python, MLM and NSP.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from alternating_runs import Arm, Measured, alternate, watch
from speed_sizes import SIZES, needed_flops

from bertlab.cli.main import main as bertlab
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.errors import print_table

STEP_TOKENS = 4096
WARM_UP = 5


def main() -> None:
    """Measure what is asked for, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "what", choices=["corpus", "length", "size", "workers", "processes"], help="see above"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--sizes", nargs="+", default=["tiny", "mini", "small", "6x384"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 512, 1024, 2048])
    parser.add_argument("--copies", nargs="+", type=int, default=[1, 10, 100])
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="scaling-"))
    tokenizer = ["--tokenizer", str(folder / "tokenizer")]
    made = ["--corpus", "python-english", "--output", str(folder / "tokenizer")]
    if bertlab(["tokenizer", *made, "--vocab_size", "8000"]):
        raise SystemExit("no vocabulary")
    if given.what == "corpus":
        corpus_sizes(given, folder, tokenizer)
        return
    store = str(folder / "store")
    if bertlab(["prepare", "--corpus", "python-english", *tokenizer, "--output", store]):
        raise SystemExit("no store")
    steps = given.steps
    if given.what == "length":
        arms = {
            f"{length} tokens": fit_arm(store, steps, length=length) for length in given.lengths
        }
    elif given.what == "size":
        arms = {size: fit_arm(store, steps, size=size) for size in given.sizes}
    elif given.what == "workers":
        numbers = (0, 1, 2, 4)
        arms = {
            f"{n} workers": fit_arm(store, steps, "--data.num_workers", str(n)) for n in numbers
        }
    else:
        two = ["--trainer.devices", "2", "--trainer.strategy"]
        one_thread = {"OMP_NUM_THREADS": "1"}
        arms = {
            "1 process, 1 thread": fit_arm(store, steps, environment=one_thread),
            "1 process, 2 threads": fit_arm(store, steps, environment={"OMP_NUM_THREADS": "2"}),
            "2 processes, ddp": fit_arm(store, steps, *two, "ddp", environment=one_thread),
            "2 processes, fsdp": fit_arm(store, steps, *two, "fsdp", environment=one_thread),
        }
    found = alternate([Arm(name, *arm) for name, arm in arms.items()], given.rounds, WARM_UP)
    print_steps(given, found)


def fit_arm(
    store: str,
    steps: int,
    *more: str,
    size: str = "mini",
    length: int = 128,
    environment: dict[str, str] | None = None,
) -> tuple[Sequence[str], dict[str, str]]:
    """Return the command of a run, and its environment."""
    layers, width, heads = SIZES[size]
    settings = {
        "seed_everything": 1,
        "model.encoder.num_hidden_layers": layers,
        "model.encoder.hidden_size": width,
        "model.encoder.num_attention_heads": heads,
        "model.encoder.max_position_embeddings": max(512, length),
        "model.objectives": "[mlm, nsp]",
        "data.corpus": store,
        "data.max_seq_length": length,
        "data.batch_size": max(1, STEP_TOKENS // length),
        "data.validation_sequences": 8,
        "trainer.max_steps": steps,
        "trainer.accelerator": "cpu",
        "trainer.callbacks": '[{"class_path": "step_clock.StepClock"}]',
        "run_dir": "{run}",
    }
    named = [part for key, value in settings.items() for part in (f"--{key}", str(value))]
    return [sys.executable, "-m", "bertlab", "fit", *named, *more], environment or {}


def print_steps(given: argparse.Namespace, found: dict[str, list[Measured]]) -> None:
    """Print a line for each arm: time of a step, ratio to the first arm, memory, use of GEMMs."""
    first = statistics.median(run.steady for run in next(iter(found.values())))
    rows = []
    for place, (name, runs) in enumerate(found.items()):
        times = [run.steady for run in runs]
        middle = statistics.median(times)
        size = given.sizes[place] if given.what == "size" else "mini"
        length = given.lengths[place] if given.what == "length" else 128
        rows.append(
            (
                name,
                f"{1e3 * middle:,.0f} ({1e3 * min(times):,.0f} … {1e3 * max(times):,.0f})",
                f"{middle / first:.2f}",
                f"{step_flops(size, length) / 1e9:,.0f}",
                f"{statistics.median(run.peak_mb for run in runs):,.0f}",
            )
        )
    columns = ("", "ms a step", "of the first", "GFLOP, all tokens at full length", "peak MB")
    print_table(f"steps of about {STEP_TOKENS:,} tokens, {given.rounds} rounds", rows, columns)


def step_flops(size: str, length: int) -> float:
    """Return the operations of a step of full sequences, vocabulary 8,000."""
    width = SIZES[size][1]
    head = 0.15 * 2 * width * (width + 8000)
    return 3 * STEP_TOKENS * (needed_flops(size, length, 1.0) + head)


def corpus_sizes(given: argparse.Namespace, folder: Path, tokenizer: Sequence[str]) -> None:
    """Prepare copies of the text in turn, and start to train on each store."""
    documents = read_raw_documents(Corpus(["python-english"]))
    text = "".join(json.dumps({"text": document.text}) + "\n" for document in documents)
    arms = {}
    for copies in given.copies:
        path = folder / f"{copies}.jsonl"
        with path.open("w", encoding="utf-8") as file:
            for _ in range(copies):
                file.write(text)
        command = [sys.executable, "-m", "bertlab", "prepare", "--corpus", str(path), *tokenizer]
        arms[copies] = (path.stat().st_size / 1e6, [*command, "--output"])
    prepared: dict[int, list[tuple[float, float]]] = {copies: [] for copies in arms}
    for number in range(given.rounds):
        for copies, (_, command) in arms.items():
            prepared[copies].append(timed([*command, str(folder / f"store-{copies}-{number}")]))
    stores = {copies: str(folder / f"store-{copies}-0") for copies in arms}
    fits = [Arm(str(copies), *fit_arm(store, 2, size="tiny")) for copies, store in stores.items()]
    started = alternate(fits, given.rounds, warm_up=1)
    rows = []
    for copies, (megabytes, _) in arms.items():
        seconds = [wall for wall, _ in prepared[copies]]
        middle = statistics.median(seconds)
        first = [run.first_step for run in started[str(copies)]]
        rows.append(
            (
                f"{copies} ×, {megabytes:,.1f} MB",
                f"{middle:,.1f} ({min(seconds):,.1f} … {max(seconds):,.1f})",
                f"{megabytes / middle:.1f}",
                f"{statistics.median(peak for _, peak in prepared[copies]):,.0f}",
                f"{statistics.median(first):.1f} ({min(first):.1f} … {max(first):.1f})",
            )
        )
    columns = ("text", "prepare, s", "MB a second", "peak MB", "fit to its first step, s")
    print_table(f"copies of a text, {given.rounds} rounds", rows, columns)


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its seconds, and the largest memory of its main process in MB."""
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        peak_kb, status, _ = watch(process.pid)
    if status:
        raise SystemExit(f"failed: {' '.join(command)}")
    return time.monotonic() - began, peak_kb / 1024


if __name__ == "__main__":
    main()
