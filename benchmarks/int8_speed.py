"""Fine-tuned models on CPUs: PyTorch in fp32, ONNX in fp32 and in int8, and peers, in turn.

    python benchmarks/int8_speed.py RUN=dev.jsonl RUN_2=dev_2.jsonl --rounds 5 --peer_python PYTHON

Each RUN has a head ``single_sentence`` or ``sentence_pair``; its rows have ``text``, perhaps
``text_pair``, and ``label``. Each side tokenizes and predicts all rows on one thread, in batches of
32 of similar length; loading is not counted. Time is CPU time, which other work on the machine
changes less. The sides take turns in each round, and ratios are of the rounds.

Peers are ``transformers`` with the exported weights and, with a Python that has ``optimum-onnx``,
its int8 for AVX-512 VNNI, in a process of its own.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
import transformers

BATCH = 32
Rows = list[dict[str, str]]
Logits = Callable[[dict[str, np.ndarray]], np.ndarray]
Side = Callable[[], tuple[float, list[str]]]  # CPU seconds and labels


def main() -> None:
    """Print a table of size, rows a second and accuracy for each run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", metavar="RUN=ROWS")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer_python", help="with optimum-onnx")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for each in given.runs:
        run, _, rows = each.partition("=")
        compare(run, Path(rows), given.rounds, given.peer_python)


def compare(run: str, file: Path, rounds: int, peer_python: str | None) -> None:
    """Print the table of one run."""
    import bertlab  # noqa: PLC0415  the peer's Python may not have it

    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    folder = Path(tempfile.mkdtemp(prefix="int8-speed-"))
    model = bertlab.load(run)
    bertlab.export_model(run, folder / "hf")
    bertlab.export_model(run, folder / "fp32", form="onnx")
    bertlab.export_model(run, folder / "int8", form="onnx", settings={"quantize": "int8"})
    peer: Any = transformers.AutoModelForSequenceClassification.from_pretrained(folder / "hf")
    fp32 = sum(each.numel() for each in model.encoder.parameters()) * 4
    fused = session(folder / "int8" / "model.onnx", slow=True)
    sides: dict[str, tuple[int, Side]] = {
        "PyTorch fp32, `predict`": (fp32, bertlab_side(model, rows)),
        "transformers fp32": (fp32, padded_side(folder / "hf", rows, torch_logits(peer))),
    }
    for name in ("fp32", "int8"):
        path = folder / name / "model.onnx"
        sides[f"ONNX {name}, as `predict`"] = (
            path.stat().st_size, padded_side(path.parent, rows, session(path)),
        )  # fmt: skip
    sides["the same int8, onnxruntime's defaults"] = (
        (folder / "int8" / "model.onnx").stat().st_size,
        padded_side(folder / "int8", rows, fused),
    )
    if peer_python is not None:
        process = subprocess.Popen(
            [peer_python, __file__, "optimum", str(folder / "hf"), str(file)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        size = int(process.stdout.readline())  # type: ignore[union-attr]
        sides["optimum int8 (avx512_vnni)"] = (size, remote_side(process))
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    found: dict[str, list[str]] = {}
    for _ in range(rounds + 1):  # the first warms up
        for name, (_, predict) in sides.items():
            took, found[name] = predict()
            seconds[name].append(took)
    first = next(iter(sides))
    print(f"\n{run}, {len(rows):,} rows\n")
    print("| side | MB | rows a CPU second | times PyTorch (least … most) | accuracy |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name, (size, _) in sides.items():
        own = seconds[name][1:]
        ratios = [a / b for a, b in zip(seconds[first][1:], own, strict=True)]
        right = sum(a == row["label"] for a, row in zip(found[name], rows, strict=True))
        print(
            f"| {name} | {size / 1e6:.1f} | {len(rows) / statistics.median(own):.0f} | "
            f"{statistics.median(ratios):.2f} ({min(ratios):.2f} … {max(ratios):.2f}) | "
            f"{100 * right / len(rows):.2f} % |",
            flush=True,
        )


def bertlab_side(model: Any, rows: Rows) -> Side:  # noqa: ANN401
    """Return what predicts with bertlab's own model."""
    inputs = inputs_of(rows)

    def predict() -> tuple[float, list[str]]:
        begin = time.process_time()
        found = model.predict(inputs)
        return time.process_time() - begin, [each["label"] for each in found]

    return predict


def inputs_of(rows: Rows) -> Sequence[Any]:
    """Return texts, or pairs of them."""
    if "text_pair" in rows[0]:
        return [(row["text"], row["text_pair"]) for row in rows]
    return [row["text"] for row in rows]


def padded_side(folder: Path, rows: Rows, logits: Logits) -> Side:
    """Return what predicts padded batches with the files of an export."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    names = json.loads((folder / "config.json").read_text("utf-8"))["id2label"]
    texts = inputs_of(rows)

    def predict() -> tuple[float, list[str]]:
        begin = time.process_time()
        whole = tokenizer(texts, truncation=True, max_length=128)
        order = sorted(range(len(texts)), key=lambda n: len(whole["input_ids"][n]))
        labels = [""] * len(texts)
        for at in range(0, len(order), BATCH):
            part = order[at : at + BATCH]
            chosen = {key: [values[n] for n in part] for key, values in whole.items()}
            inputs = dict(tokenizer.pad(chosen, return_tensors="np"))
            for n, best in zip(part, logits(inputs).argmax(-1), strict=True):
                labels[n] = names[str(best)]
        return time.process_time() - begin, labels

    return predict


def session(path: Path, slow: bool = False) -> Logits:
    """Return what computes logits by onnxruntime, as ``predict --backend onnx`` does."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    off = [] if slow else ["SkipLayerNormFusion"]
    made = onnxruntime.InferenceSession(
        path, options, providers=["CPUExecutionProvider"], disabled_optimizers=off
    )
    names = [each.name for each in made.get_inputs()]
    return lambda inputs: made.run(None, {name: inputs[name] for name in names})[0]


def torch_logits(model: Any) -> Logits:  # noqa: ANN401
    """Return what computes logits by ``transformers``."""

    def compute(inputs: dict[str, np.ndarray]) -> np.ndarray:
        with torch.inference_mode():
            found = model(**{name: torch.from_numpy(each) for name, each in inputs.items()})
        logits: np.ndarray = found.logits.numpy()
        return logits

    return compute


def remote_side(process: "subprocess.Popen[str]") -> Side:
    """Return what lets another process predict."""

    def predict() -> tuple[float, list[str]]:
        assert process.stdin
        assert process.stdout
        print("go", file=process.stdin, flush=True)
        seconds, labels = json.loads(process.stdout.readline())
        return seconds, labels

    return predict


def serve_optimum(folder: Path, file: Path) -> None:
    """Predict with optimum's int8 whenever a line is read; print seconds and labels."""
    from optimum.onnxruntime import (  # noqa: PLC0415
        ORTModelForSequenceClassification,
        ORTQuantizer,
    )
    from optimum.onnxruntime.configuration import AutoQuantizationConfig  # noqa: PLC0415

    torch.set_num_threads(1)
    out = Path(tempfile.mkdtemp(prefix="int8-optimum-"))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    with_onnx = {"export": True, "session_options": options}
    ORTModelForSequenceClassification.from_pretrained(folder, **with_onnx).save_pretrained(out)
    config = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=False)
    ORTQuantizer.from_pretrained(out).quantize(save_dir=out / "q", quantization_config=config)
    path = out / "q" / "model_quantized.onnx"
    model = ORTModelForSequenceClassification.from_pretrained(out / "q", session_options=options)
    transformers.AutoTokenizer.from_pretrained(folder).save_pretrained(out / "q")
    rows = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    predict = padded_side(out / "q", rows, lambda inputs: model(**inputs).logits)
    print(path.stat().st_size, flush=True)
    for _ in sys.stdin:
        print(json.dumps(predict()), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "optimum":
        serve_optimum(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
