"""The configs as a user runs them, on fewer dates: from scratch, pre-trained, prediction."""

import json
import os
import pydoc_data.topics
from pathlib import Path

import pytest
import torch

from bertlab import main
from bertlab_seq2seq.written_dates import WrittenDates

os.environ.setdefault("HF_HUB_OFFLINE", "1")
CONFIGS = Path(__file__).parent.parent / "configs"
SMALL = [
    "--trainer.max_epochs",
    "1",
    "--trainer.val_check_interval",
    "1.0",
    "--trainer.accelerator",
    "cpu",
    "--data.batch_size",
    "8",
    "--model.head.num_hidden_layers",
    "1",
    "--model.head.beam_size",
    "2",
]
SMALL_ENCODER = ["--model.encoder.hidden_size", "16", "--model.encoder.num_attention_heads", "2"]


def run(*arguments: object) -> None:
    assert main([str(each) for each in arguments]) == 0


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus, a vocabulary of it, and a few dates in files."""
    place = tmp_path_factory.mktemp("seq2seq")
    topics = [text for _, text in sorted(pydoc_data.topics.topics.items())][:30]
    lines = [[" ".join(part.split()) for part in text.split("\n\n")] for text in topics]
    text = "\n\n".join("\n".join(filter(None, each)) for each in lines)
    (place / "corpus.txt").write_text(text, "utf-8")
    for split, count in (("train", 40), ("validation", 10)):
        rows = list(WrittenDates("written-dates", "").examples(split))[:count]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (place / f"{split}.jsonl").write_text(text, "utf-8")
    corpus = ("--corpus", place / "corpus.txt", "--vocab_size", 300)
    run("tokenizer", *corpus, "--output", place / "vocabulary")
    return place


def dates(folder: Path) -> tuple[object, ...]:
    train, validation = folder / "train.jsonl", folder / "validation.jsonl"
    return "--data.train", train, "--data.validation", validation


def test_a_run_from_scratch_is_scored_and_predicts(folder: Path) -> None:
    tuned, output = folder / "run", folder / "predictions.jsonl"
    run(
        *("fit", "--config", CONFIGS / "written-dates.yaml", "--run_dir", tuned, *SMALL),
        *("--data.tokenizer", folder / "vocabulary", *dates(folder), *SMALL_ENCODER),
    )
    results = json.loads((tuned / "results.json").read_text("utf-8"))
    names = {"loss", "accuracy", "perplexity", "exact_match", "majority_exact_match"}
    assert {
        f"seq2seq/{name}" for name in names | {"char_error_rate", "copy_char_error_rate"}
    } <= set(results)
    assert results["seq2seq/majority_exact_match"] == pytest.approx(0.1)

    new = folder / "new.txt"
    new.write_text("3 May 1996\nthe 4th of July 2001\n", "utf-8")
    run("predict", "--ckpt_path", tuned, "--data.input", new, "--output", output)
    lines = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert [line["source"] for line in lines] == ["3 May 1996", "the 4th of July 2001"]
    assert all(isinstance(line["text"], str) for line in lines)


def test_a_pretrained_encoder_is_taken_over_and_goes_on_learning(folder: Path) -> None:
    config = folder / "pretrain.yaml"
    config.write_text(
        "model:\n  encoder: {name: bert, preset: tiny, max_position_embeddings: 32}\n"
        "  objectives: [mlm]\n"
        "data: {corpus_format: sentences, max_seq_length: 32, validation_fraction: 0.2,\n"
        "       validation_sequences: 10, batch_size: 8}\n"
        "trainer: {max_steps: 2, val_check_interval: 2}\n",
        "utf-8",
    )
    run(
        *("fit", "--config", config, "--run_dir", folder / "pretrained", *SMALL_ENCODER),
        *("--data.corpus", folder / "corpus.txt", "--data.tokenizer", folder / "vocabulary"),
        *("--data.cache_dir", folder / "cache", "--trainer.accelerator", "cpu"),
    )
    tuned = folder / "tuned"
    run(
        *("fit", "--config", CONFIGS / "written-dates-pretrained.yaml", "--run_dir", tuned, *SMALL),
        *("--model.init_from", folder / "pretrained", *dates(folder)),
        *("--model.optimizer.learning_rate", 1e-9, "--model.optimizer.weight_decay", 0),
    )
    before, after = (
        _state(place)["encoder.layers.0.attention.qkv.weight"]
        for place in (folder / "pretrained", tuned)
    )
    torch.testing.assert_close(after, before, rtol=0, atol=1e-6)
    assert not torch.equal(after, before)


def _state(run_folder: Path) -> dict[str, torch.Tensor]:
    file = run_folder / "checkpoints" / "last.ckpt"
    state: dict[str, torch.Tensor] = torch.load(file, weights_only=True)["state_dict"]
    return state
