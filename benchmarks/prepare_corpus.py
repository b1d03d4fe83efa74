"""Time and memory of preparing a corpus: ``bertlab prepare`` and Hugging Face ``datasets.map``.

Usage, for throughput and for memory::

    python benchmarks/prepare_corpus.py --corpus PATH… --tokenizer FOLDER --processes 2 --rounds 5
    python benchmarks/prepare_corpus.py --corpus PATH… --tokenizer FOLDER --memory-factor 8

``benchmarks/README.md`` says what is measured and how to read it.
"""

import argparse
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

SAMPLE_SECONDS = 0.05
TINY_CORPUS = "One sentence stands here.\nAnother one follows.\n\nA new document.\nIt ends.\n"
LONG_WORD = re.compile(r"\b[A-Za-z]{8,}\b")

console = Console()


@dataclass(frozen=True)
class Round:
    """One process, its workers included: wall and user CPU seconds, bytes of text, token ids."""

    wall: float
    user: float
    text: int
    tokens: int


def main() -> int:
    """Measure time, or memory with ``--memory-factor``; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--corpus", nargs="+", required=True, help="what bertlab prepare reads")
    parser.add_argument("--tokenizer", required=True, help="folder that transformers loads too")
    parser.add_argument("--processes", type=int, default=2, help="that tokenize")
    parser.add_argument("--rounds", type=int, default=5, help="pairs of peer and bertlab")
    parser.add_argument(
        "--peer-tokenizer",
        choices=("transformers", "tokenizers"),
        default="transformers",
        help="what the peer calls: BertTokenizerFast, or, faster, encode_batch_fast under it",
    )
    parser.add_argument(
        "--memory-factor", type=int, help="measure memory instead, on 1 and this many copies"
    )
    parser.add_argument("--peer-output", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.peer_output:
        run_peer(args.corpus, args.tokenizer, args.processes, args.peer_tokenizer, args.peer_output)
        return 0
    with tempfile.TemporaryDirectory(prefix="bertlab-benchmark-") as folder:
        if args.memory_factor:
            compare_memory(args, Path(folder))
        else:
            compare_time(args, Path(folder))
    return 0


def run_peer(corpus: list[str], tokenizer: str, processes: int, calls: str, output: Path) -> None:
    """Prepare a corpus with ``datasets``: a row is a sentence, its ids and its document's number.

    Args:
        corpus: as ``bertlab prepare`` takes it; read and split by the same functions.
        tokenizer: folder with ``vocab.txt``.
        processes: ``num_proc`` of ``map``; None for 1, which works in this process.
        calls: ``transformers`` or ``tokenizers``, see ``--peer-tokenizer``.
        output: folder for the Arrow files.
    """
    from datasets import Dataset  # noqa: PLC0415
    from transformers import BertTokenizerFast  # noqa: PLC0415

    from bertlab.data.corpus import Corpus, read_raw_documents  # noqa: PLC0415
    from bertlab.data.documents import RawDocument, split_sentences  # noqa: PLC0415

    wordpiece = BertTokenizerFast.from_pretrained(tokenizer)

    def read() -> Iterator[dict[str, Any]]:
        for document in read_raw_documents(Corpus(corpus)):
            yield {"text": document.text, "presplit": document.presplit}

    def encode(sentences: list[str]) -> list[list[int]]:
        if calls == "tokenizers":
            fast = wordpiece.backend_tokenizer
            return [row.ids for row in fast.encode_batch_fast(sentences, add_special_tokens=False)]
        rows: list[list[int]] = wordpiece(
            sentences,
            add_special_tokens=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )["input_ids"]
        return rows

    def prepare(batch: dict[str, list[Any]], numbers: list[int]) -> dict[str, list[Any]]:
        raw = zip(batch["text"], batch["presplit"], strict=True)
        split = [split_sentences(RawDocument(text, presplit, "")) for text, presplit in raw]
        return {
            "input_ids": encode([sentence for sentences in split for sentence in sentences]),
            "document": [n for n, s in zip(numbers, split, strict=True) for _ in s],
        }

    documents = Dataset.from_generator(read, cache_dir=str(output / "documents"))
    documents.map(
        prepare,
        batched=True,
        with_indices=True,
        num_proc=processes if processes > 1 else None,
        remove_columns=documents.column_names,
        cache_file_name=str(output / "tokens.arrow"),
    )


def compare_time(args: argparse.Namespace, folder: Path) -> None:
    """Alternate peer and bertlab and print a table of wall time, user CPU time and MB/s."""
    tiny = folder / "tiny.txt"
    tiny.write_text(TINY_CORPUS)
    console.print(
        f"Peer: datasets.Dataset.from_generator (bertlab's reader), then .map(batched=True, "
        f"batch_size=1000, num_proc={args.processes}) with bertlab's split_sentences (sentencex) "
        f"and {args.peer_tokenizer} {'BertTokenizerFast' if args.peer_tokenizer == 'transformers' else 'encode_batch_fast'}, no special tokens, no attention mask; fresh cache "
        f"folder, Arrow out; TOKENIZERS_PARALLELISM=false.\nbertlab: bertlab prepare --workers "
        f"{args.processes}. Reading, start of Python and imports count for both.\n"
        f"{os.cpu_count()} cores, load average before {os.getloadavg()[0]:.1f}.",
        highlight=False,
        soft_wrap=True,
    )
    start = time_pair(args, [str(tiny)], folder)  # also warms the disk cache of both programs up
    rounds = []
    for number in range(args.rounds):
        rounds.append(time_pair(args, args.corpus, folder))
        peer, ours = rounds[-1]
        console.print(f"round {number + 1}: peer {peer.wall:.2f} s, bertlab {ours.wall:.2f} s")
    ours = rounds[0][1]
    table = Table(title=f"{ours.text / 1e6:.1f} MB of text, {ours.tokens:,} tokens, same ids")
    for heading in ("", "wall s", "user CPU s", "MB/s", "start-up s"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, side in (("peer", 0), ("bertlab", 1)):
        runs = [pair[side] for pair in rounds]
        table.add_row(
            name,
            spread([run.wall for run in runs]),
            spread([run.user for run in runs]),
            spread([run.text / 1e6 / run.wall for run in runs]),
            f"{start[side].wall:.2f}",
        )
    table.add_row(
        "peer / bertlab, by pairs",
        spread([peer.wall / ours.wall for peer, ours in rounds]),
        spread([peer.user / ours.user for peer, ours in rounds]),
    )
    table.caption = "median (min…max); start-up: the same command on two tiny documents, once"
    console.print(table)


def time_pair(args: argparse.Namespace, corpus: list[str], folder: Path) -> tuple[Round, Round]:
    """Run the peer, then bertlab, each in a fresh process; stop if their ids differ."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        peer_output, store = Path(name, "peer"), Path(name, "store")
        peer_output.mkdir()
        peer_command = [sys.executable, __file__, "--corpus", *corpus, "--tokenizer"]
        peer_command += [args.tokenizer, "--processes", str(args.processes), "--peer-tokenizer"]
        peer_command += [args.peer_tokenizer, "--peer-output", str(peer_output)]
        peer_wall, peer_user = time_process(peer_command, peer_output)
        wall, user = time_process(
            prepare_command(corpus, args.tokenizer, args.processes, store), Path(name)
        )
        tokens = np.load(store / "tokens.npy", mmap_mode="r")
        if not np.array_equal(tokens, peer_tokens(peer_output)):
            raise SystemExit(f"peer and bertlab made other ids of {' '.join(corpus)}")
        text = json.loads((store / "report.json").read_text())["bytes_of_text"]
        return Round(peer_wall, peer_user, text, len(tokens)), Round(wall, user, text, len(tokens))


def time_process(command: list[str], folder: Path) -> tuple[float, float]:
    """Return wall and user CPU seconds of a process and all its workers."""
    before = time.perf_counter()
    process = start_process(command, folder)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - before
    process.returncode = os.waitstatus_to_exitcode(status)
    check(process, folder)
    return wall, usage.ru_utime


def start_process(command: list[str], folder: Path) -> "subprocess.Popen[bytes]":
    """Start a command whose output goes to ``folder/log`` and whose caches are fresh."""
    caches = {"HF_HOME": str(folder / "hf"), "TOKENIZERS_PARALLELISM": "false"}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | caches)


def check(process: "subprocess.Popen[bytes]", folder: Path) -> None:
    """Stop with the log of a process that failed."""
    if process.returncode:
        log = (folder / "log").read_text(errors="replace")
        raise SystemExit(f"{log[-2000:]}\nexit code {process.returncode}: {process.args!r}")


def prepare_command(corpus: list[str], tokenizer: str, processes: int, output: Path) -> list[str]:
    """Return the command line of ``bertlab prepare``."""
    sources = [f"--corpus+={source}" for source in corpus]
    options = ["--tokenizer", tokenizer, "--workers", str(processes), "--output", str(output)]
    return [sys.executable, "-m", "bertlab", "prepare", *sources, *options]


def peer_tokens(output: Path) -> Any:  # noqa: ANN401
    """Return the ids in the Arrow files of the peer, end to end."""
    import pyarrow as pa  # noqa: PLC0415

    parts = []
    for path in sorted(output.glob("tokens*.arrow")):
        column = pa.ipc.open_stream(path).read_all()["input_ids"]
        parts += [chunk.flatten().to_numpy() for chunk in column.chunks]
    return np.concatenate(parts)


def compare_memory(args: argparse.Namespace, folder: Path) -> None:
    """Prepare one copy and ``--memory-factor`` copies; print a table of peak resident memory."""
    for copy in range(args.memory_factor):
        write_copy(args.corpus, folder / "copies" / f"{copy:02d}", copy)
    console.print(
        f"bertlab prepare --workers {args.processes}; copy k spells every word of 8 letters or "
        "more with the k-th letter at its end, so that each copy brings new words.",
        highlight=False,
        soft_wrap=True,
    )
    table = Table(title="Peak resident memory (MB) of bertlab prepare")
    for heading in ("copies", "MB of text", "tokens", "main process", "main and workers"):
        table.add_column(heading, justify="right")
    peaks = []
    for copies, source in ((1, folder / "copies" / "00"), (args.memory_factor, folder / "copies")):
        store = folder / f"store-{copies}"
        command = prepare_command([str(source)], args.tokenizer, args.processes, store)
        process = start_process(command, folder)
        peaks.append(watch_memory(process))
        check(process, folder)
        report = json.loads((store / "report.json").read_text())
        sizes = f"{report['bytes_of_text'] / 1e6:.1f}", f"{report['tokens']:,}"
        table.add_row(str(copies), *sizes, *(f"{peak / 1e6:.0f}" for peak in peaks[-1]))
    ratios = [f"{last / first:.2f}" for first, last in zip(*peaks, strict=True)]
    table.add_row("ratio", "", "", *ratios)
    console.print(table)


def write_copy(corpus: list[str], folder: Path, copy: int) -> None:
    """Write the text files of a corpus, unpacked; long words end in another letter per copy."""
    folder.mkdir(parents=True)
    ending = "" if copy == 0 else np.base_repr(copy, 26)
    ending = "".join(ascii_lowercase[int(digit, 36)] for digit in ending)
    files = [file for source in corpus for file in sorted([*Path(source).rglob("*"), Path(source)])]
    for number, file in enumerate(file for file in files if file.is_file()):
        opener = gzip.open if file.suffix == ".gz" else open
        with (
            opener(file, "rt", encoding="utf-8") as text,
            (folder / f"{number:05d}.txt").open("w", encoding="utf-8") as out,
        ):
            out.writelines(LONG_WORD.sub(rf"\g<0>{ending}", line) for line in text)


def watch_memory(process: "subprocess.Popen[bytes]") -> tuple[int, int]:
    """Wait for a process; return its own peak and the peak of the sum with its workers, in bytes.

    The first is the kernel's own (``VmHWM``). ``ru_maxrss`` is that too, but of the largest
    process of the tree. The second is sampled; pages that processes share count once for each.
    """
    main = psutil.Process(process.pid)
    own = everyone = 0
    while process.poll() is None:
        try:
            tree = [main, *main.children(recursive=True)]
            everyone = max(everyone, sum(member.memory_info().rss for member in tree))
            status = Path(f"/proc/{process.pid}/status").read_text()
        except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
            continue
        if peak := re.search(r"VmHWM:\s+(\d+) kB", status):
            own = max(own, int(peak[1]) * 1024)
        time.sleep(SAMPLE_SECONDS)
    return own, everyone


def spread(values: list[float]) -> str:
    """Return ``median (min…max)``."""
    return f"{median(values):.2f} ({min(values):.2f}…{max(values):.2f})"


if __name__ == "__main__":
    sys.exit(main())
