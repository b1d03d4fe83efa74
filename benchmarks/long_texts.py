"""Texts beyond a model's length: what windows are worth, and the same windows through transformers.

    python benchmarks/long_texts.py MODEL ../shared/data/novels-en --steps 200

Passages of 300 words of novels are labelled with their author. The head ``long_text`` reads them in
windows of 64 tokens of a model, by each pooling; then its predictions are compared with those of
the exported model, whose windows are cut and pooled by hand.
"""

import argparse
import gzip
import json
import time
from pathlib import Path

import torch
import transformers

import bertlab

WORDS, AUTHORS, LENGTH, STRIDE = 300, 12, 64, 62


def main() -> None:
    """Print a table of the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model")
    parser.add_argument("novels", type=Path)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--output", type=Path, default=Path("long-texts"))
    given = parser.parse_args()
    given.output.mkdir(exist_ok=True)
    rows = given.output / "passages.jsonl"
    texts = write_passages(given.novels, rows)
    print("| pooling | accuracy | texts a second | transformers by hand | largest difference |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for pooling in ("first", "mean", "max"):
        folder = given.output / pooling
        run = train(given.model, rows, folder, pooling, given.steps)
        exported = given.output / f"{pooling}-hf"
        if not exported.exists():
            run.export(exported)
        begin = time.perf_counter()
        ours = run.predict(texts)
        middle = time.perf_counter()
        theirs = by_hand(exported, texts, pooling)
        end = time.perf_counter()
        difference = max(
            abs(mine["scores"][name] - share)
            for mine, other in zip(ours, theirs, strict=True)
            for name, share in other.items()
        )
        accuracy = 100 * run.metrics["long_text/accuracy"]
        speeds = len(texts) / (middle - begin), len(texts) / (end - middle)
        figures = f"{accuracy:.1f} % | {speeds[0]:.1f} | {speeds[1]:.1f} | {difference:.1e}"
        print(f"| {pooling} | {figures} |", flush=True)


def write_passages(novels: Path, rows: Path) -> list[str]:
    """Write passages with their authors; return some of the texts."""
    by_author: dict[str, list[str]] = {}
    for file in sorted(novels.glob("*.txt.gz")):
        words = gzip.decompress(file.read_bytes()).decode().split()
        passages = [" ".join(words[at : at + WORDS]) for at in range(0, len(words), WORDS)]
        by_author.setdefault(file.name.partition("_")[0], []).extend(passages[:-1])
    chosen = sorted(by_author, key=lambda name: -len(by_author[name]))[:AUTHORS]
    found = [(text, name) for name in chosen for text in by_author[name][:200]]
    lines = (json.dumps({"text": text, "label": name}) + "\n" for text, name in found)
    rows.write_text("".join(lines))
    return [text for text, _ in found[::24]]


def train(model: str, rows: Path, folder: Path, pooling: str, steps: int) -> bertlab.Run:
    """Return a run of the head, made if need be."""
    if not (folder / "results.json").exists():
        head = {"name": "long_text", "window_pooling": pooling, "window_stride": STRIDE}
        bertlab.fit(
            {"data": {"validation_fraction": 0.2, "max_seq_length": LENGTH, "batch_size": 16}},
            {
                "model.init_from": model,
                "model.head": head,
                "model.optimizer": {"learning_rate": 1e-3, "warmup_steps": 0.1},
                "data.source": str(rows),
                "trainer.max_steps": steps,
                "seed_everything": 1,
                "run_dir": str(folder),
            },
        )
    return bertlab.Run(folder)


@torch.no_grad()
def by_hand(folder: Path, texts: list[str], pooling: str) -> list[dict[str, float]]:
    """Return the probabilities of each text by transformers, one text at a time."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    found = []
    for text in texts:
        windows = tokenizer(
            text,
            max_length=LENGTH,
            truncation=True,
            stride=LENGTH - 2 - STRIDE,
            return_overflowing_tokens=pooling != "first",
            padding=True,
            return_tensors="pt",
        )
        windows.pop("overflow_to_sample_mapping", None)
        logits = model(**windows).logits
        pooled = {"mean": logits.mean(0), "max": logits.amax(0), "first": logits[0]}[pooling]
        shares = pooled.softmax(-1).tolist()
        found.append({model.config.id2label[n]: share for n, share in enumerate(shares)})
    return found


if __name__ == "__main__":
    main()
