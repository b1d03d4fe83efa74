"""A fine-tuned model on CPUs: PyTorch in fp32, ONNX in fp32, and ONNX in int8, in turn.

    python benchmarks/int8_speed.py RUN dev.jsonl --rounds 5

RUN has a head ``single_sentence``; the rows have ``text`` and ``label``. Each side tokenizes and
predicts all rows on one thread in this process, in batches of 32 of similar length; loading is not
counted. Time is CPU time, which other work on the machine changes less. The sides take turns in
each round, and ratios are of the rounds.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import onnxruntime
import torch
import transformers

import bertlab

BATCH = 32


def main() -> None:
    """Print a table of size, rows a second and accuracy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run")
    parser.add_argument("rows", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = [json.loads(line) for line in given.rows.read_text("utf-8").splitlines()]
    texts, labels = [row["text"] for row in rows], [row["label"] for row in rows]
    folder = Path(tempfile.mkdtemp(prefix="int8-speed-"))
    model = bertlab.load(given.run)
    weights = sum(each.numel() for each in model.encoder.parameters()) * 4
    sides: dict[str, tuple[int, Callable[[], list[str]]]] = {
        "PyTorch fp32, `predict`": (weights, lambda: torch_side(model, texts)),
    }
    for name, settings in (("ONNX fp32", {}), ("ONNX int8", {"quantize": "int8"})):
        out = folder / name.replace(" ", "-")
        bertlab.export_model(given.run, out, form="onnx", settings=settings)
        sides[name] = ((out / "model.onnx").stat().st_size, onnx_side(out, texts))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    found: dict[str, list[str]] = {}
    for _ in range(given.rounds + 1):
        for name, (_, predict) in sides.items():
            begin = time.process_time()
            found[name] = predict()
            seconds[name].append(time.process_time() - begin)
    first = next(iter(sides))
    print("| side | MB | rows a CPU second | times PyTorch (least … most) | accuracy |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, (size, _) in sides.items():
        own = seconds[name][1:]  # the first round warms up
        ratios = [a / b for a, b in zip(seconds[first][1:], own, strict=True)]
        right = sum(a == b for a, b in zip(found[name], labels, strict=True))
        print(
            f"| {name} | {size / 1e6:.1f} | {len(rows) / statistics.median(own):.0f} | "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f}) | "
            f"{100 * right / len(rows):.2f} % |",
            flush=True,
        )


def torch_side(model: bertlab.PretrainedModel, texts: list[str]) -> list[str]:
    """Return the labels that bertlab's own model predicts."""
    return [each["label"] for each in model.predict(texts)]


def onnx_side(folder: Path, texts: list[str]) -> Callable[[], list[str]]:
    """Return what predicts the labels by onnxruntime."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        folder / "model.onnx", options, providers=["CPUExecutionProvider"]
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    names = json.loads((folder / "config.json").read_text("utf-8"))["id2label"]

    def predict() -> list[str]:
        ids = tokenizer(texts, truncation=True, max_length=64)["input_ids"]
        order = sorted(range(len(texts)), key=lambda n: len(ids[n]))
        labels = [""] * len(texts)
        for at in range(0, len(order), BATCH):
            part = order[at : at + BATCH]
            inputs = tokenizer.pad({"input_ids": [ids[n] for n in part]}, return_tensors="np")
            inputs["token_type_ids"] = inputs["input_ids"] * 0
            (logits,) = session.run(None, dict(inputs))
            for n, best in zip(part, logits.argmax(-1), strict=True):
                labels[n] = names[str(best)]
        return labels

    return predict


if __name__ == "__main__":
    main()
