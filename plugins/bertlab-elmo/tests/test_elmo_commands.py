"""The configs as a user runs them, on smaller texts: pre-training, features, fine-tuning."""

import json
import os
import pydoc_data.topics
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from bertlab import main

os.environ.setdefault("HF_HUB_OFFLINE", "1")
CONFIGS = Path(__file__).parent.parent / "configs"
ON_CPU = ["--trainer.accelerator", "cpu"]
TAGGED = """\
the O
class B-THING
is O
the O
type B-THING

a O
type B-THING
of O
the O
value B-THING

"""


def run(*arguments: object) -> None:
    assert main([str(each) for each in arguments]) == 0


@pytest.fixture(scope="session")
def elmo_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of configs/elmo.yaml of a few steps on some of Python's help topics."""
    folder = tmp_path_factory.mktemp("elmo")
    topics = [text for _, text in sorted(pydoc_data.topics.topics.items())][:30]
    lines = [[" ".join(part.split()) for part in text.split("\n\n")] for text in topics]
    corpus = folder / "corpus.txt"
    corpus.write_text("\n\n".join("\n".join(filter(None, each)) for each in lines), "utf-8")
    run(
        *("fit", "--config", CONFIGS / "elmo.yaml", "--run_dir", folder / "run", *ON_CPU),
        *("--data.corpus", corpus, "--data.corpus_format", "sentences"),
        *("--data.cache_dir", folder / "cache", "--data.vocab_size", 300),
        *("--data.validation_fraction", 0.2, "--data.validation_sequences", 20),
        *("--trainer.max_steps", 4, "--trainer.val_check_interval", 2),
        *("--model.encoder.hidden_size", 16),
    )
    return folder / "run"


def test_pretraining_reports_perplexity_beside_that_of_unigrams(elmo_run: Path) -> None:
    results = json.loads((elmo_run / "results.json").read_text("utf-8"))
    names = {"loss", "accuracy", "perplexity", "unigram_loss", "unigram_accuracy"}
    assert {f"bilm/{name}" for name in names | {"unigram_perplexity"}} <= set(results)
    assert 1 < results["bilm/perplexity"] < 400


def test_prediction_goes_on_at_both_ends(elmo_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.jsonl"
    text = ("--data.text", "The value of the")
    run("predict", "--ckpt_path", elmo_run, *text, "--output", output, *ON_CPU)
    (line,) = [json.loads(line) for line in output.read_text("utf-8").splitlines()]
    assert len(line["next"]) == len(line["previous"]) == 5


def test_features_of_all_layers_are_written(elmo_run: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("The value of the class\nA name\n", "utf-8")
    vectors = {}
    for pool in ("none", "cls"):
        output = tmp_path / f"{pool}.safetensors"
        layers = ("--layers", "[0,1,2]", "--combine", "concat", "--pool", pool)
        run("embed", "--model", elmo_run, *layers, text, output)
        vectors[pool] = load_file(output)
    tokens, summaries = vectors["none"]["embeddings"], vectors["cls"]["embeddings"]
    begins, ends = vectors["none"]["offsets"][:-1], vectors["none"]["offsets"][1:] - 1
    assert tokens.shape[1] == summaries.shape[1] == 3 * 16
    for layer in range(3):
        forward = slice(16 * layer, 16 * layer + 8)
        backward = slice(16 * layer + 8, 16 * layer + 16)
        torch.testing.assert_close(summaries[:, forward], tokens[ends, forward])
        torch.testing.assert_close(summaries[:, backward], tokens[begins, backward])


def test_a_tagger_learns_to_mix_the_layers_of_a_fixed_elmo(elmo_run: Path, tmp_path: Path) -> None:
    for name in ("eng.train", "eng.testa", "eng.testb"):
        (tmp_path / name).write_text(TAGGED * 20, "utf-8")
    tagged = tmp_path / "run"
    run(
        *("fit", "--config", CONFIGS / "elmo-features.yaml", "--model.init_from", elmo_run),
        *("--data.source", tmp_path, "--run_dir", tagged, "--trainer.max_epochs", 8, *ON_CPU),
        *("--data.batch_size", 4, "--model.head.hidden_size", 16, "--model.head.lstm_dropout", 0),
        *("--model.optimizer.learning_rate", 0.01),
    )
    results = json.loads((tagged / "results.json").read_text("utf-8"))
    assert results["feature_tagging/f1"] == 1.0
    state, before = (_state(folder) for folder in (tagged, elmo_run))
    for name, tensor in before.items():
        if name.startswith("encoder."):
            assert torch.equal(state[name], tensor)
    assert state["tasks.feature_tagging.weighted_sum.weights"].unique().numel() == 3


def _state(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = (folder / "checkpoints").glob("last*.ckpt")
    state: dict[str, torch.Tensor] = torch.load(file, weights_only=True)["state_dict"]
    return state


def test_fine_tuning_on_a_folder_of_texts(elmo_run: Path, tmp_path: Path) -> None:
    rows = ["text\tlabel", *["a good name\tyes", "a bad value\tno"] * 40]
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("\n".join(rows) + "\n", "utf-8")
    tuned = tmp_path / "run"
    run(
        *("fit", "--config", CONFIGS / "elmo-packages.yaml", "--model.init_from", elmo_run),
        *("--data.source", tmp_path, "--run_dir", tuned, "--trainer.max_epochs", 6, *ON_CPU),
        *("--data.batch_size", 8, "--model.optimizer.learning_rate", 0.01),
    )
    results = json.loads((tuned / "results.json").read_text("utf-8"))
    assert results["single_sentence/accuracy"] == 1.0
