"""The configs as a user runs them, on a smaller text, and what comes after them."""

import json
import os
import pydoc_data.topics
from pathlib import Path

import pytest

from bertlab import main

os.environ.setdefault("HF_HUB_OFFLINE", "1")
CONFIGS = Path(__file__).parent.parent / "configs"
FEW_STEPS = "--trainer.max_steps 4 --trainer.val_check_interval 2 --trainer.accelerator cpu"


def help_topics(count: int) -> list[str]:
    """Return topics of Python's help, a paragraph a line."""
    topics = [text for _, text in sorted(pydoc_data.topics.topics.items())][:count]
    lines = [[" ".join(part.split()) for part in text.split("\n\n")] for text in topics]
    return ["\n".join(filter(None, each)) for each in lines]


def fit(config: str, arguments: str) -> None:
    """Run a config of the package for a few steps."""
    command = ["fit", "--config", str(CONFIGS / config), *FEW_STEPS.split(), *arguments.split()]
    assert main(command) == 0


def test_it_trains_predicts_and_is_fine_tuned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n\n".join(help_topics(30)), "utf-8")
    text = f"--data.corpus {corpus} --data.cache_dir {tmp_path / 'cache'}"
    text += " --data.corpus_format sentences --data.validation_fraction 0.2"
    first, run = tmp_path / "first", tmp_path / "run"
    small = "--model.encoder.hidden_size 16 --data.vocab_size 300"
    fit("electra-from-scratch.yaml", f"--run_dir {first} {text} {small}")
    fit("electra.yaml", f"--run_dir {run} {text} --model.init_from {first}")
    results = json.loads((run / "results.json").read_text("utf-8"))
    for name in ("accuracy", "majority_accuracy", "precision", "recall", "f1"):
        assert 0 <= results[f"rtd/{name}"] <= 1

    capsys.readouterr()
    assert main(["predict", "--ckpt_path", str(run), "--data.text", "The class statement."]) == 0
    judged = json.loads(capsys.readouterr().out)["replaced"]
    assert "".join(entry["token"].removeprefix("##") for entry in judged) == "theclassstatement."

    rows = [
        {"text": f"the {word} statement " + "of " * number, "label": word}
        for number in range(10)
        for word in ("if", "for")
    ]
    train = tmp_path / "rows.jsonl"
    train.write_text("\n".join(map(json.dumps, rows)), "utf-8")
    tuned = tmp_path / "tuned"
    command = [
        *("fit", "--model.init_from", run, "--model.head", "single_sentence", "--run_dir", tuned),
        *("--data.source", train, "--data.batch_size", 8, "--trainer.max_steps", 2),
        *("--trainer.accelerator", "cpu", "--data.max_seq_length", 32),
    ]
    assert main([str(each) for each in command]) == 0
    assert "single_sentence/accuracy" in (tuned / "results.json").read_text("utf-8")
