"""Time and memory of preparing a corpus: ``bertlab prepare`` and Hugging Face ``datasets.map``.

Usage, for time and for memory; ``benchmarks/figures/prepare_corpus.md`` says what is measured::

    python benchmarks/prepare_corpus.py --corpus PATH… --tokenizer FOLDER --processes 2 --rounds 5
    python benchmarks/prepare_corpus.py --corpus PATH… --tokenizer FOLDER --memory-factor 8
"""

import argparse
import contextlib
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from string import ascii_lowercase
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
from rich.console import Console
from rich.table import Table

from bertlab.api.examples import RawDocument
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.data.corpus.documents import split_sentences

SAMPLE_SECONDS = 0.05
TINY_CORPUS = "One sentence stands here.\nAnother one follows it there.\n\n" * 2
LONG_WORD = re.compile(r"\b[A-Za-z]{8,}\b")
PEER_CALLS = {"transformers": "BertTokenizerFast", "tokenizers": "encode_batch_fast"}
SETTINGS = """\
Peer: datasets.Dataset.from_generator (bertlab's reader), .map(batched=True, batch_size=100, \
num_proc={processes}) with bertlab's split_sentences (sentencex) and {calls} of {peer_tokenizer}, \
ids only, no special tokens; documents dealt out evenly to the processes; Arrow out, fresh cache \
folder; TOKENIZERS_PARALLELISM=false.
bertlab: bertlab prepare --workers {processes}. Start of Python, imports and reading count for both.
{cores} cores, load average before {load:.1f}."""

console = Console(width=100)


@dataclass(frozen=True)
class Run:
    """A program and its workers: wall and user CPU seconds; peaks of memory in bytes if watched."""

    wall: float
    user: float
    main_peak: int
    sum_peak: int


def main() -> int:
    """Measure time, or memory with ``--memory-factor``; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpus", nargs="+", required=True, help="what bertlab prepare reads")
    parser.add_argument("--tokenizer", required=True, help="folder that transformers loads too")
    parser.add_argument("--processes", type=int, default=2, help="that tokenize")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of peer and bertlab")
    parser.add_argument("--peer-tokenizer", choices=PEER_CALLS, default="transformers")
    parser.add_argument("--memory-factor", type=int, help="measure memory, on so many copies")
    parser.add_argument("--peer-output", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer_output:
        run_peer(args.corpus, args.tokenizer, args.processes, args.peer_tokenizer, args.peer_output)
        return 0
    with tempfile.TemporaryDirectory(prefix="bertlab-benchmark-") as folder:
        (compare_memory if args.memory_factor else compare_time)(args, Path(folder))
    return 0


def run_peer(corpus: list[str], tokenizer: str, processes: int, library: str, output: Path) -> None:
    """Prepare text with ``datasets``: a row is a sentence's ids and its document's number."""
    from datasets import Dataset  # noqa: PLC0415
    from transformers import BertTokenizerFast  # type: ignore[attr-defined]  # noqa: PLC0415

    wordpiece = BertTokenizerFast.from_pretrained(tokenizer)
    ids_only = {"return_attention_mask": False, "return_token_type_ids": False}
    ids_only |= {"add_special_tokens": False, "verbose": False}

    def read() -> Iterator[dict[str, Any]]:
        documents = list(read_raw_documents(Corpus(corpus)))
        for number in range(processes):  # map gives each process one stretch of rows
            for document in documents[number::processes]:
                yield {"text": document.text, "presplit": document.presplit}

    def prepare(batch: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        raw = zip(batch["text"], batch["presplit"], strict=True)
        split = [split_sentences(RawDocument(text, presplit, "")) for text, presplit in raw]
        sentences = [sentence for sentences in split for sentence in sentences]
        if library == "tokenizers":
            fast = wordpiece.backend_tokenizer.encode_batch_fast
            ids = [row.ids for row in fast(sentences, add_special_tokens=False)]
        else:
            ids = wordpiece(sentences, **ids_only).input_ids
        rows = [number for number, own in zip(numbers, split, strict=True) for _ in own]
        return {"input_ids": ids, "document": rows}

    documents = Dataset.from_generator(read, cache_dir=str(output / "documents"))
    documents.map(
        prepare,
        batched=True,
        batch_size=100,  # 100 and the default of 1000 took the same time
        with_indices=True,
        num_proc=processes if processes > 1 else None,
        remove_columns=documents.column_names,
        cache_file_name=str(output / "tokens.arrow"),
    )


def compare_time(args: argparse.Namespace, folder: Path) -> None:
    """Alternate peer and bertlab and print a table of wall time, user CPU time and MB/s."""
    (tiny := folder / "tiny.txt").write_text(TINY_CORPUS)
    about = {"calls": PEER_CALLS[args.peer_tokenizer], "cores": os.cpu_count()}
    settings = SETTINGS.format(**vars(args), **about, load=os.getloadavg()[0])
    console.print(settings, highlight=False, soft_wrap=True)
    _, *start = time_pair(args, [str(tiny)], folder)  # also warms the disk cache
    rounds = []
    for number in range(args.rounds):
        report, peer, ours = time_pair(args, args.corpus, folder)
        rounds.append((peer, ours))
        console.print(f"round {number + 1}: peer {peer.wall:.2f} s, bertlab {ours.wall:.2f} s")
    text = report["bytes_of_text"] / 1e6
    table = Table(title=f"{text:.1f} MB of text, {report['tokens']:,} tokens, the same for both")
    for heading in ("", "wall s", "user CPU s", "MB/s", "start-up s"):
        table.add_column(heading)
    names = ("peer", "bertlab")
    for name, runs, first in zip(names, zip(*rounds, strict=True), start, strict=True):
        walls = [run.wall for run in runs]
        rates = spread([text / wall for wall in walls])
        user = spread([run.user for run in runs])
        table.add_row(name, spread(walls), user, rates, f"{first.wall:.2f}")
    walls = [peer.wall / ours.wall for peer, ours in rounds]
    users = [peer.user / ours.user for peer, ours in rounds]
    table.add_row("peer ÷ bertlab", spread(walls), spread(users))
    table.caption = "median (min…max), ratios pair by pair; start-up: on two tiny documents, once"
    console.print(table)


def time_pair(args: argparse.Namespace, corpus: list[str], folder: Path) -> tuple[Any, Run, Run]:
    """Run the peer, then bertlab; return bertlab's data report and both, stop if ids differ."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        output, store = Path(name), Path(name, "store")
        options = ["--processes", str(args.processes), "--peer-tokenizer", args.peer_tokenizer]
        options += ["--tokenizer", args.tokenizer, "--peer-output", name]
        peer = run([sys.executable, __file__, *options, "--corpus", *corpus], output)
        ours = run(prepare_command(corpus, args, store), output)
        counts = np.load(store / "token_counts.npy")
        if not np.array_equal(counts, peer_counts(output, len(counts))):
            raise SystemExit(f"peer and bertlab made other ids of {' '.join(corpus)}")
        return json.loads((store / "report.json").read_text()), peer, ours


def run(command: list[str], folder: Path, watched: bool = False) -> Run:
    """Run a program to its end with fresh caches, output in ``folder/log``; stop if it fails."""
    caches = {"HF_HOME": str(folder / "hf"), "TOKENIZERS_PARALLELISM": "false"}
    before = time.perf_counter()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | caches)
    peaks = watch_memory(process.pid) if watched else (0, 0)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - before
    if process.returncode:
        message = (folder / "log").read_text(errors="replace")[-2000:]
        raise SystemExit(f"{message}\nexit code {process.returncode}: {' '.join(command)}")
    return Run(wall, usage.ru_utime, *peaks)


def watch_memory(pid: int) -> tuple[int, int]:
    """Return the peak of a process and of the sum with its workers, in bytes, when it has ended.

    The first is the kernel's own, ``VmHWM`` (``ru_maxrss`` would be that of the largest process of
    the tree). The second is sampled; pages that processes share count once for each.
    """
    own = everyone = 0
    # A process that has ended shows no memory.
    while peak := re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text()):
        own = max(own, int(peak[1]) * 1024)
        with contextlib.suppress(psutil.NoSuchProcess):
            tree = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
            everyone = max(everyone, sum(process.memory_info().rss for process in tree))
        time.sleep(SAMPLE_SECONDS)
    return own, everyone


def prepare_command(corpus: list[str], args: argparse.Namespace, output: Path) -> list[str]:
    """Return the command line of ``bertlab prepare``."""
    sources = [f"--corpus+={source}" for source in corpus]
    options = ["--tokenizer", args.tokenizer, "--workers", str(args.processes)]
    return [sys.executable, "-m", "bertlab", "prepare", *sources, *options, f"--output={output}"]


def peer_counts(output: Path, vocab_size: int) -> "np.ndarray[Any, np.dtype[np.int64]]":
    """Return how often each id is in the Arrow files of the peer."""
    import pyarrow as pa  # noqa: PLC0415

    tables = [pa.ipc.open_stream(path).read_all() for path in output.glob("tokens*.arrow")]
    ids = [chunk.flatten() for table in tables for chunk in table["input_ids"].chunks]
    return np.bincount(np.concatenate(ids), minlength=vocab_size)


def compare_memory(args: argparse.Namespace, folder: Path) -> None:
    """Prepare one copy and ``--memory-factor`` copies; print a table of peak resident memory."""
    for copy in range(args.memory_factor):
        write_copy(args.corpus, folder / "copies" / f"{copy:02d}", copy)
    table = Table(title=f"Peak memory (MB) of bertlab prepare --workers {args.processes}")
    table.caption = "in all copies but the first, words of 8 letters or more end in another letter"
    for heading in ("copies", "MB of text", "tokens", "main process", "main and workers"):
        table.add_column(heading, justify="right")
    runs = []
    for copies, source in ((1, folder / "copies" / "00"), (args.memory_factor, folder / "copies")):
        store = folder / f"store-{copies}"
        done = run(prepare_command([str(source)], args, store), folder, watched=True)
        runs.append((done.main_peak, done.sum_peak))
        report = json.loads((store / "report.json").read_text())
        sizes = f"{report['bytes_of_text'] / 1e6:.1f}", f"{report['tokens']:,}"
        table.add_row(str(copies), *sizes, *(f"{peak / 1e6:.0f}" for peak in runs[-1]))
    ratios = [f"{last / first:.2f}" for first, last in zip(*runs, strict=True)]
    table.add_row("ratio", "", "", *ratios)
    console.print(table)


def write_copy(corpus: list[str], folder: Path, copy: int) -> None:
    """Write the text files of a corpus, unpacked; from copy 1 on long words get another end."""
    folder.mkdir(parents=True)
    ending = ascii_lowercase[-copy % 26] * (copy // 26 + 1) if copy else ""
    found = [path for source in corpus for path in [Path(source), *sorted(Path(source).rglob("*"))]]
    for number, file in enumerate(path for path in found if path.is_file()):
        packed = gzip.open if file.suffix == ".gz" else open
        with (
            packed(file, "rt", encoding="utf-8") as lines,
            (folder / f"{number:05d}.txt").open("w", encoding="utf-8") as out,
        ):
            out.writelines(LONG_WORD.sub(rf"\g<0>{ending}", line) for line in lines)


def spread(values: list[float]) -> str:
    """Return ``median (min…max)``."""
    return f"{median(values):.2f} ({min(values):.2f}…{max(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
