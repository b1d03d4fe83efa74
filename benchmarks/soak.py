"""Train, or predict on a stream, for hours; watch memory, file handles, threads and processes.

    python benchmarks/soak.py fit --minutes 120
    python benchmarks/soak.py fit-only --minutes 30
    python benchmarks/soak.py predict --minutes 120

``fit`` pre-trains BERT-tiny with a data worker, logs every step, and evaluates and saves every 100;
``fit-only`` does nothing but train, so that memory returns to the system only when it has grown.
``predict`` reads an endless stream of texts from its standard input; after the end of the time the
stream ends, and as many predictions have to have come out, in order. Every ``--every`` seconds the
memory of the process and its children is taken from the kernel (PSS: pages that processes share
are divided among them). Printed: the medians of the first and the last tenth of the time after
``--warm_up`` minutes, and the slope of a line through all of it.

Each sample is a line of ``samples.csv`` in the folder that is printed. Exit code 0 if the command
came to its end as it should; what is flat is for the reader to say.
"""

import argparse
import csv
import json
import os
import pydoc_data.topics
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

FIT = """
seed_everything: 7
model: {encoder: {name: bert, preset: tiny}, objectives: [mlm, nsp],
        optimizer: {warmup_steps: 0.01}}
data: {corpus: python-english, vocab_size: 4000, max_seq_length: 128, batch_size: 32,
       num_workers: 1, validation_sequences: 100}
trainer: {max_steps: -1, max_epochs: -1, val_check_interval: 100, log_every_n_steps: 1,
          accelerator: cpu}
"""
TUNE = """
seed_everything: 7
model: {head: single_sentence, encoder: {name: bert, preset: tiny}}
data: {source: "python-english:packages", tokenizer: TOKENIZER, max_seq_length: 128, batch_size: 32}
trainer: {max_steps: 50, accelerator: cpu}
"""
Process = subprocess.Popen[bytes]
Started = tuple[Process, Callable[[], str]]  # and what says, after its end, what it did
NAMES = ("pss_mb", "file_handles", "threads", "processes")


def main() -> int:
    """Start the command, watch it, print what was seen."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["fit", "fit-only", "predict"])
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--warm_up", type=float, default=5, help="minutes that are not judged")
    parser.add_argument("--every", type=float, default=10, help="seconds between two samples")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix=f"soak-{given.command}-"))
    os.environ["BERTLAB_CACHE"] = str(folder / "cache")
    if given.command == "predict":
        process, finish = soak_predict(folder, given.minutes)
    else:
        process, finish = soak_fit(folder, given.minutes, alone=given.command == "fit-only")
    rows = watch(process, folder / "samples.csv", given.every)
    told = finish()
    print(
        f"{given.command}: {rows[-1][0] / 60:.0f} minutes, exit code {process.returncode}; {told}"
    )
    judged = [row for row in rows if row[0] >= 60 * given.warm_up]
    for column, name in enumerate(NAMES, start=1):
        print(f"  {name}: {summary([(row[0], row[column]) for row in judged])}")
    print(f"  {len(judged)} samples after {given.warm_up:g} minutes; {folder / 'samples.csv'}")
    return 0 if process.returncode == 0 else 1


def soak_fit(folder: Path, minutes: float, alone: bool) -> Started:
    """Start a pre-training of so many minutes; ``alone``: without data worker and evaluations."""
    (folder / "fit.yaml").write_text(FIT)
    hours, rest = divmod(round(minutes * 60), 3600)
    clock = f"00:{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"
    command = ["fit", "--config", str(folder / "fit.yaml"), "--run_dir", str(folder / "run")]
    duration = ["--trainer.max_time", clock, "--model.optimizer.schedule", "constant"]
    only = ["--data.num_workers", "0", "--trainer.val_check_interval", "1000000"] if alone else []
    process = start(folder, [*command, *duration, *only])

    def finish() -> str:
        (log,) = (folder / "run").glob("csv/*/metrics.csv")
        steps = [int(row["step"]) for row in csv.DictReader(log.read_text().splitlines())]
        return f"{max(steps) + 1:,} steps"

    return process, finish


def soak_predict(folder: Path, minutes: float) -> Started:
    """Start a prediction on a stream that ends after so many minutes."""
    vocabulary, tuned = str(folder / "vocabulary"), str(folder / "tuned")
    (folder / "fit.yaml").write_text(TUNE.replace("TOKENIZER", vocabulary))
    for command in (
        ("tokenizer", "--corpus", "python-english", "--vocab_size", "4000", "--output", vocabulary),
        ("fit", "--config", str(folder / "fit.yaml"), "--run_dir", tuned),
    ):
        assert start(folder, command).wait() == 0, f"see {folder / 'log'}"
    predict = ("predict", "--ckpt_path", tuned, "--data.input", "-")
    process = start(folder, predict, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    stream = Stream(help_texts())
    threads = [
        threading.Thread(target=stream.feed, args=[process.stdin, 60 * minutes]),
        threading.Thread(target=stream.read, args=[process.stdout]),
    ]
    for thread in threads:
        thread.start()

    def finish() -> str:
        for thread in threads:
            thread.join()
        return (
            f"{stream.fed:,} texts in, {stream.read_back:,} predictions out, {stream.astray} astray"
        )

    return process, finish


@dataclass
class Stream:
    """Texts that are given over and over, and the predictions that come back with them.

    Attributes:
        texts: in turn.
        fed: texts given.
        read_back: predictions read.
        astray: of them not at the place of their text.
    """

    texts: list[str]
    fed: int = 0
    read_back: int = 0
    astray: int = 0

    def feed(self, stream: IO[bytes], seconds: float) -> None:
        """Write JSON lines for some seconds, as fast as they are taken."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            stream.write(json.dumps({"text": self._text(self.fed)}).encode() + b"\n")
            self.fed += 1
        stream.close()

    def read(self, stream: IO[bytes]) -> None:
        """Read predictions to the end, and see that each stands where its text stood."""
        for line in stream:
            self.astray += json.loads(line)["text"] != self._text(self.read_back)
            self.read_back += 1

    def _text(self, number: int) -> str:
        return self.texts[number % len(self.texts)]


def help_texts() -> list[str]:
    """Return the paragraphs of Python's help, of a few words to some hundred."""
    topics = pydoc_data.topics.topics.values()
    paragraphs = [part for topic in topics for part in topic.split("\n\n") if part.strip()]
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


def start(
    folder: Path, arguments: Sequence[str], stdin: int | None = None, stdout: int | None = None
) -> Process:
    """Start bertlab; what is not taken from it goes to ``log``."""
    log = (folder / "log").open("ab")
    command = [sys.executable, "-m", "bertlab", *arguments]
    return subprocess.Popen(command, stdin=stdin, stdout=stdout or log, stderr=log)


def watch(process: Process, path: Path, every: float) -> list[tuple[float, ...]]:
    """Take samples until a process ends; return and write them."""
    rows, began = [], time.monotonic()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", *NAMES])
        while process.poll() is None:
            sample = take(psutil.Process(process.pid))
            if sample is not None:
                rows.append((round(time.monotonic() - began, 1), *sample))
                writer.writerow(rows[-1])
                file.flush()
            time.sleep(every)
    return rows


def take(process: psutil.Process) -> tuple[float, ...] | None:
    """Return memory in MB, file handles, threads and processes; None if one went meanwhile."""
    try:
        family = [process, *process.children(recursive=True)]
        memory = sum(each.memory_full_info().pss for each in family) / 1e6
        handles = sum(each.num_fds() for each in family)
        return memory, handles, sum(each.num_threads() for each in family), len(family)
    except psutil.NoSuchProcess:
        return None


def summary(points: list[tuple[float, float]]) -> str:
    """Return medians at the beginning and the end, and what a line through all gains an hour."""
    tenth = max(1, len(points) // 10)
    first, last = (
        statistics.median(value for _, value in part) for part in (points[:tenth], points[-tenth:])
    )
    slope = 3600 * statistics.linear_regression(*zip(*points, strict=True)).slope
    largest = max(value for _, value in points)
    return (
        f"{first:,.1f} at first, {last:,.1f} at last, largest {largest:,.1f}; {slope:+,.2f} an hour"
    )


if __name__ == "__main__":
    sys.exit(main())
