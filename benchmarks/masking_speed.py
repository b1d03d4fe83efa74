"""Time of making a batch: Hugging Face's collator against bertlab's sampling, pairing and masking.

    python benchmarks/masking_speed.py --corpus PATH… --rounds 200

Both make batches of the same sequences in this process, in turn. The peer is
``DataCollatorForLanguageModeling`` on rows that were paired and tokenized before; "with reading" it
takes them from their Arrow table first, as a data loader does. bertlab reads the token store, pairs
segments, packs and masks.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset, load_from_disk
from pretrain_speed import prepare
from transformers import AutoTokenizer, DataCollatorForLanguageModeling

from bertlab.api.task import TaskContext
from bertlab.data.loader import SequenceStream
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import print_table
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.objectives.masked_lm import MaskedLM


def main() -> None:
    """Prepare the text, make batches in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", nargs="+", default=["python-english"])
    parser.add_argument("--store", type=Path, help="output of bertlab prepare, instead of a corpus")
    parser.add_argument("--vocab_size", type=int, default=30_522)
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=200, help="batches of each side")
    given = parser.parse_args()
    given.steps = min(given.rounds, 200)
    folder = Path(tempfile.mkdtemp(prefix="masking-speed-"))
    data = prepare(given, folder)
    assert data.train_sampler is not None
    tasks = {"mlm": MaskedLM(), "nsp": NextSentencePrediction()}
    tokenizer = data.load_tokenizer()
    encoder = BertEncoder(tokenizer.vocab_size, "tiny")
    for task in tasks.values():
        task.build(TaskContext(encoder, tokenizer))
    stream = SequenceStream(data.train_sampler, tasks, seed=1, training=True)

    peer_tokenizer = AutoTokenizer.from_pretrained(folder / "tokenizer")
    collator = DataCollatorForLanguageModeling(peer_tokenizer, mlm_probability=0.15)
    rows = load_from_disk(str(folder / "rows")).remove_columns("length")
    padded = rows.map(lambda row: peer_tokenizer.pad(row, "max_length", given.max_seq_length))
    size = given.batch_size

    def rows_of(table: Dataset, number: int) -> list[dict[str, Any]]:
        start = number % given.steps * size
        return [table[place] for place in range(start, start + size)]

    full, short = ([rows_of(table, n) for n in range(given.steps)] for table in (padded, rows))

    sides: dict[str, Callable[[int], Any]] = {
        "collator, rows of the full length": lambda n: collator(full[n % given.steps]),
        "the same, with reading": lambda n: collator(rows_of(padded, n)),
        "collator, pads to the longest": lambda n: collator(short[n % given.steps]),
        "bertlab": lambda n: stream.batch(np.arange(n * size, (n + 1) * size)),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(given.rounds + 5):
        for name, make in sides.items():
            began = time.perf_counter()
            make(number)
            times[name] += [time.perf_counter() - began] if number >= 5 else []
    ours = statistics.median(times["bertlab"])
    table = []
    for name, taken in times.items():
        low, middle, high = np.quantile(taken, [0.05, 0.5, 0.95])
        spread = f"{1e3 * middle:.2f} ({1e3 * low:.2f} … {1e3 * high:.2f})"
        table.append((name, spread, f"{middle / ours:.1f}"))
    title = f"a batch of {size} sequences of at most {given.max_seq_length} tokens"
    print_table(title, table, ("", "ms, median (5 % … 95 %)", "bertlab is faster by"))
    print(f"{torch.get_num_threads()} threads, {given.rounds} batches of each in turn")


if __name__ == "__main__":
    main()
