"""Speed of pre-training: Hugging Face's ``Trainer``, stock and best, against ``bertlab fit``.

    python benchmarks/pretrain_speed.py --corpus PATH… --size mini --rounds 5
    python benchmarks/pretrain_speed.py --device cuda --size base --batch_size 256 --workers 8

MLM and NSP on the same sequences of the same prepared text, as many in a step. Each run is a fresh
process; what is compared is the time of a step after ``--warm_up`` steps (multiples of 10, at whose
ends a GPU is waited for). On a CPU all is fp32 unless ``--bf16`` is given. On a GPU stock is fp32,
best and bertlab are bf16, compiled, with a fused optimiser. Dropout is 0.1 everywhere.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import numpy as np
from alternating_runs import HERE, KEEP_MEMORY, Arm, alternate, print_comparison
from datasets import Dataset, load_from_disk
from speed_sizes import SIZES, needed_flops

from bertlab.cli.main import main as bertlab
from bertlab.data.pretraining import PretrainingData

ARMS = ("stock", "stock-bf16", "stock-allocator", "best", "bertlab")
FIT = """
seed_everything: 1
model:
  encoder: {{name: bert, num_hidden_layers: {layers}, hidden_size: {width},
            num_attention_heads: {heads}}}
  objectives: [mlm, nsp]
  optimizer: {{learning_rate: 1.0e-4, warmup_steps: 10}}
data: {{corpus: {store}, max_seq_length: {length}, batch_size: {batch}, validation_sequences: 8,
       num_workers: {workers}}}
trainer: {{max_steps: {steps}, accelerator: {device}, devices: 1, precision: {precision},
          callbacks: [{{class_path: step_clock.StepClock}}]}}
compile: {compile}
"""


def main() -> None:
    """Prepare the text, run all sides in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--corpus", nargs="+", default=["python-english"])
    parser.add_argument("--store", type=Path, help="output of bertlab prepare, instead of a corpus")
    parser.add_argument("--vocab_size", type=int, default=30_522)
    parser.add_argument("--size", default="mini", choices=list(SIZES))
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--warm_up", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, default=0, help="data workers, on all sides")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--bf16", action="store_true", help="best and bertlab; always on a GPU")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    given = parser.parse_args()
    on_gpu = given.device == "cuda"
    in_bf16 = on_gpu or given.bf16
    folder = Path(tempfile.mkdtemp(prefix="pretrain-speed-"))
    data = prepare(given, folder)
    lengths = load_from_disk(str(folder / "rows"))["length"]
    length, vocab_size = statistics.fmean(lengths), data.load_tokenizer().vocab_size
    fit = folder / "fit.yaml"
    fit.write_text(fit_config(given, folder / "store", in_bf16, on_gpu))
    peer = [sys.executable, *peer_command(given, folder)]
    ours = [sys.executable, "-m", "bertlab", "fit", "--config", str(fit), "--run_dir", "{run}"]
    peers_best = [*peer, "--best", *(["--bf16"] if in_bf16 else [])]
    all_arms = {
        "stock": Arm("stock", peer),
        "stock-bf16": Arm("stock in bf16", [*peer, "--bf16"]),
        "stock-allocator": Arm("stock, allocator as bertlab's", peer, KEEP_MEMORY),
        "best": Arm("best", peers_best, KEEP_MEMORY),
        "bertlab": Arm("bertlab", ours),
    }
    left_out = "stock-allocator" if on_gpu else "stock-bf16"
    arms = [all_arms[name] for name in ARMS if name in given.arms and name != left_out]
    on_what = ["--device", given.device, "--dtype", "bfloat16" if in_bf16 else "float32"]
    found = alternate(arms, given.rounds, given.warm_up, on_what)
    tokens = length * given.batch_size
    flops = tokens * flops_of_a_token(given.size, vocab_size, length)
    title = (
        f"pre-training {given.size}, MLM + NSP, {given.batch_size} sequences of {length:.0f} "
        f"tokens (at most {given.max_seq_length}), vocabulary {vocab_size:,}"
    )
    print_comparison(title, found, lambda run: run.steady, "step", flops)
    print_comparison(
        "from the start of the command to the end of the first step",
        found,
        lambda run: run.first_step,
        "start",
    )
    rate = tokens / statistics.median(run.steady for run in found["bertlab"])
    print(f"bertlab: {rate:,.0f} tokens a second, {flops / 1e9:,.0f} GFLOP a step")


def fit_config(given: argparse.Namespace, store: Path, in_bf16: bool, compiles: bool) -> str:
    """Return the config of bertlab's side."""
    layers, width, heads = SIZES[given.size]
    return FIT.format(
        layers=layers,
        width=width,
        heads=heads,
        store=store.resolve(),
        length=given.max_seq_length,
        batch=given.batch_size,
        steps=given.steps,
        workers=given.workers,
        device=given.device,
        precision="bf16-mixed" if in_bf16 else "32-true",
        compile=str(compiles).lower(),
    )


def peer_command(given: argparse.Namespace, folder: Path) -> list[str]:
    """Return the script and arguments of the stock peer on the rows in a folder."""
    command = [str(HERE / "speed_peer.py"), "pretrain", "--data", str(folder)]
    command += ["--size", given.size, "--steps", str(given.steps)]
    command += ["--batch_size", str(given.batch_size)]
    command += ["--max_seq_length", str(given.max_seq_length)]
    return [*command, "--device", given.device, "--workers", str(given.workers)]


def prepare(given: argparse.Namespace, folder: Path) -> PretrainingData:
    """Write vocabulary, store and the peers' rows, which are those of the first steps."""
    vocabulary, store = folder / "tokenizer", folder / "store"
    if given.store:
        store.symlink_to(given.store.resolve())
        vocabulary.symlink_to(store / "tokenizer")
    else:
        corpus = ["--corpus", f"[{','.join(given.corpus)}]"]
        named = ["--vocab_size", str(given.vocab_size), "--output", str(vocabulary)]
        if bertlab(["tokenizer", *corpus, *named]):
            raise SystemExit("no vocabulary")
        if bertlab(["prepare", *corpus, "--tokenizer", str(vocabulary), "--output", str(store)]):
            raise SystemExit("no store")
    data = PretrainingData(corpus=str(store), max_seq_length=given.max_seq_length, seed=1)
    tokenizer = data.load_tokenizer()
    data.connect(tokenizer, {})
    data.prepare("fit")
    assert data.train_sampler is not None
    indices = np.arange(given.batch_size * given.steps) % len(data.train_sampler)
    made = data.train_sampler.sample(np.zeros_like(indices), indices)
    borders = made.cu_seqlens[1:-1]
    columns = {
        "input_ids": np.split(made.input_ids, borders),
        "token_type_ids": np.split(made.token_type_ids, borders),
        "attention_mask": [np.ones(length, np.int64) for length in made.lengths],
        "next_sentence_label": made.fields["next_sentence_label"],
        "length": made.lengths,
    }
    Dataset.from_dict(columns).save_to_disk(str(folder / "rows"))
    return data


def flops_of_a_token(size: str, vocab_size: int, length: float) -> float:
    """Return what the algorithm needs for a token.

    No padding; last states of [CLS] and of the 15 % that are predicted, and logits of these.
    """
    width = SIZES[size][1]
    head = 0.15 * 2 * width * (width + vocab_size)
    return 3 * (needed_flops(size, length, 0.15 + 1 / length) + head)


if __name__ == "__main__":
    main()
