"""Five short runs compute the losses and weights, bit for bit, that are kept here by type of CPU.

A commit that moves a bit shows it. Where it is meant::

    pytest tests/training/test_golden_runs.py --write_golden

and a line in the changelog.
"""

import csv
import hashlib
import json
import platform
import random
import re
from pathlib import Path

import pytest
import torch

from bertlab.cli.main import main

GOLDEN = Path(__file__).with_name("golden")
SHORT = ("--trainer.max_steps=8", "--trainer.val_check_interval=4", "--trainer.log_every_n_steps=1")
ENCODER = """
seed_everything: 3
model:
  encoder: {name: bert, preset: tiny, hidden_size: 32, num_attention_heads: 2,
            max_position_embeddings: 64}
  objectives: [mlm, nsp]
  optimizer: {learning_rate: 3.0e-3}
data: {corpus: corpus.txt, corpus_format: sentences, vocab_size: 300, max_seq_length: 32,
       batch_size: 8, validation_fraction: 0.2, validation_sequences: 20}
trainer: {accelerator: cpu}
"""
MODERN = """
model:
  encoder: {name: modern, preset: tiny, hidden_size: 32, num_attention_heads: 2,
            type_vocab_size: 2}
  optimizer: {name: muon}
"""


def cpu_type() -> str:
    """Return what decides which kernels compute: ``authenticamd-26-2-avx512``."""
    capability = torch.backends.cpu.get_cpu_capability().lower()
    try:
        facts = Path("/proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine().lower()}-{capability}"
    found = [
        re.search(rf"^{name}\s*: (.*)$", facts, re.MULTILINE)
        for name in ("vendor_id", "cpu family", "model")
    ]
    named = [each[1].lower() for each in found if each] or [platform.machine().lower()]
    return "-".join([*named, capability])


def write_texts() -> None:
    """Write a corpus and labelled rows of made-up words, the same on every machine."""
    draw = random.Random(7)
    words = ["".join(draw.choices("aeioubdgklmnprst", k=draw.randint(2, 8))) for _ in range(400)]
    weights = [1 / (rank + 1) for rank in range(400)]

    def sentence() -> str:
        return " ".join(draw.choices(words, weights, k=draw.randint(4, 16))) + "."

    documents = ["\n".join(sentence() for _ in range(draw.randint(3, 12))) for _ in range(60)]
    Path("corpus.txt").write_text("\n\n".join(documents) + "\n")
    rows = [f"{sentence()},{'yes' if number % 3 else 'no'}" for number in range(48)]
    Path("rows.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    Path("bert.yaml").write_text(ENCODER)
    Path("modern.yaml").write_text(MODERN)


def outcome(run: Path) -> dict[str, object]:
    """Return the losses of a run by step, as exact numbers, and a digest of its last weights."""
    with (run / "csv" / "version_0" / "metrics.csv").open() as log:
        rows = list(csv.DictReader(log))
    state = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    digest = hashlib.sha256()
    for name in sorted(state):
        digest.update(name.encode() + state[name].contiguous().view(torch.uint8).numpy().tobytes())
    return {
        **{
            name: [float(row[name]) for row in rows if row.get(name)]
            for name in ("train/loss", "val/loss")
        },
        "weights": digest.hexdigest(),
    }


def test_golden_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    pytest.importorskip("bertlab_modern")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BERTLAB_CACHE", str(tmp_path / "cache"))
    write_texts()
    bert = ("--config=bert.yaml",)
    tuned = ("--model.init_from=fp32", "--model.head=single_sentence", "--data.source=rows.csv")
    runs: dict[str, tuple[str, ...]] = {
        "fp32": bert,
        "bf16": (*bert, "--trainer.precision=bf16-mixed"),
        "accumulation": (*bert, "--trainer.accumulate_grad_batches=2"),
        "modern": (*bert, "--config=modern.yaml"),
        "fine-tuning": (
            *tuned,
            "--data.batch_size=8",
            "--data.max_seq_length=32",
            "--seed_everything=5",
        ),
    }
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # sums of several threads are of another order
    try:
        for name, arguments in runs.items():
            assert main(["fit", *arguments, *SHORT, f"--run_dir={name}"]) == 0, name
    finally:
        torch.set_num_threads(threads)
    found = {name: outcome(Path(name)) for name in runs}
    file = GOLDEN / f"{cpu_type()}.json"
    kept = json.loads(file.read_text()) if file.exists() else {}
    versions = {"torch": torch.__version__}
    if request.config.getoption("--write_golden"):
        file.write_text(json.dumps({"versions": versions, "runs": found}, indent=1) + "\n")
    elif kept.get("versions") != versions:
        pytest.skip(f"no losses of {cpu_type()} and {versions} are kept: see --write_golden")
    else:
        assert found == kept["runs"]
