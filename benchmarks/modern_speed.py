"""Speed of the modern encoder against ``transformers.ModernBertForMaskedLM``, stock and best.

    python benchmarks/modern_speed.py --corpus PATH… --size mini --rounds 5
    python benchmarks/modern_speed.py --max_seq_length 512 --batch_size 8

Masked LM on the same sequences of the same prepared text, as many in a step, with weights of the
same shapes. Each run is a fresh process; what is compared is the time of a step after ``--warm_up``
steps. Best pads to the longest row of a batch, puts rows of about one length into a batch, and
computes logits of masked tokens only (``sparse_prediction``). All is fp32 unless ``--bf16`` is
given.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

import torch
from alternating_runs import HERE, KEEP_MEMORY, Arm, alternate, print_comparison
from datasets import load_from_disk
from pretrain_speed import prepare
from speed_sizes import SIZES

from bertlab_modern.modern import ModernEncoder
from bertlab_studies.plan.flops import encoder_flops

FIT = """
seed_everything: 1
model:
  encoder: {{name: modern, num_hidden_layers: {layers}, hidden_size: {width},
            num_attention_heads: {heads}}}
  objectives: [mlm]
  optimizer: {{learning_rate: 1.0e-4, warmup_steps: 10}}
data: {{corpus: {store}, max_seq_length: {length}, batch_size: {batch}, validation_sequences: 8,
       num_workers: {workers}}}
trainer: {{max_steps: {steps}, accelerator: cpu, devices: 1, precision: {precision},
          callbacks: [{{class_path: step_clock.StepClock}}]}}
"""
ARMS = ("stock", "stock-allocator", "best", "bertlab")


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
    parser.add_argument("--bf16", action="store_true", help="best and bertlab")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=ARMS)
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="modern-speed-"))
    data = prepare(given, folder)
    length = statistics.fmean(load_from_disk(str(folder / "rows"))["length"])
    vocab_size = data.load_tokenizer().vocab_size
    layers, width, heads = SIZES[given.size]
    fit = folder / "fit.yaml"
    fit.write_text(
        FIT.format(
            layers=layers,
            width=width,
            heads=heads,
            store=folder / "store",
            length=given.max_seq_length,
            batch=given.batch_size,
            steps=given.steps,
            workers=given.workers,
            precision="bf16-mixed" if given.bf16 else "32-true",
        )
    )
    peer = [sys.executable, str(HERE / "speed_peer.py"), "pretrain", "--modern"]
    peer += ["--data", str(folder), "--size", given.size, "--steps", str(given.steps)]
    peer += ["--batch_size", str(given.batch_size), "--max_seq_length", str(given.max_seq_length)]
    peer += ["--workers", str(given.workers)]
    ours = [sys.executable, "-m", "bertlab", "fit", "--config", str(fit), "--run_dir", "{run}"]
    all_arms = {
        "stock": Arm("stock", peer),
        "stock-allocator": Arm("stock, allocator as bertlab's", peer, KEEP_MEMORY),
        "best": Arm("best", [*peer, "--best", *(["--bf16"] if given.bf16 else [])], KEEP_MEMORY),
        "bertlab": Arm("bertlab", ours),
    }
    arms = [all_arms[name] for name in ARMS if name in given.arms]
    kind = ["--dtype", "bfloat16" if given.bf16 else "float32"]
    found = alternate(arms, given.rounds, given.warm_up, kind)
    tokens = length * given.batch_size
    flops = tokens * flops_of_a_token(given.size, vocab_size, length)
    title = (
        f"pre-training a modern {given.size}, MLM, {given.batch_size} sequences of {length:.0f} "
        f"tokens (at most {given.max_seq_length}), vocabulary {vocab_size:,}"
    )
    print_comparison(title, found, lambda run: run.steady, "step", flops)
    rate = tokens / statistics.median(run.steady for run in found["bertlab"])
    print(f"bertlab: {rate:,.0f} tokens a second, {flops / 1e9:,.0f} GFLOP a step")


def flops_of_a_token(size: str, vocab_size: int, length: float) -> float:
    """Return what the algorithm needs for a token: no padding, logits of 15 % of the tokens."""
    layers, width, heads = SIZES[size]
    with torch.device("meta"):
        encoder = ModernEncoder(
            1, num_hidden_layers=layers, hidden_size=width, num_attention_heads=heads
        )
    return 3 * (encoder_flops(encoder, length) + 0.15 * 2 * width * (width + vocab_size))


if __name__ == "__main__":
    main()
