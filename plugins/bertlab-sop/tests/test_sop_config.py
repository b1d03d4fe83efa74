"""The config as a user runs it, on a smaller text."""

import json
import os
import pydoc_data.topics
from pathlib import Path

import pytest

from bertlab import main

os.environ.setdefault("HF_HUB_OFFLINE", "1")
CONFIG = Path(__file__).parent.parent / "configs" / "sop.yaml"
SMALL = (
    "--data.corpus_format sentences --data.vocab_size 300 --data.validation_fraction 0.2 "
    "--trainer.max_steps 4 --trainer.val_check_interval 2 --trainer.accelerator cpu "
    "--model.encoder.hidden_size 16"
)


def help_topics(count: int) -> list[str]:
    """Return topics of Python's help, a paragraph a line."""
    topics = [text for _, text in sorted(pydoc_data.topics.topics.items())][:count]
    lines = [[" ".join(part.split()) for part in text.split("\n\n")] for text in topics]
    return ["\n".join(filter(None, each)) for each in lines]


def test_the_config_trains_evaluates_and_predicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, run = tmp_path / "corpus.txt", tmp_path / "run"
    corpus.write_text("\n\n".join(help_topics(30)), "utf-8")
    places = ["--data.corpus", corpus, "--data.cache_dir", tmp_path / "cache", "--run_dir", run]
    command = ["fit", "--config", CONFIG, *SMALL.split(), *places]
    assert main([str(each) for each in command]) == 0
    results = json.loads((run / "results.json").read_text("utf-8"))
    for name in ("sop/accuracy", "sop/majority_accuracy", "sop/rule_accuracy", "mlm/loss"):
        assert name in results

    capsys.readouterr()
    texts = ["--data.text", "Sentence a.", "--data.text_pair", "Sentence b."]
    assert main(["predict", "--ckpt_path", str(run), *texts]) == 0
    assert 0 < json.loads(capsys.readouterr().out)["in_order_probability"] < 1
