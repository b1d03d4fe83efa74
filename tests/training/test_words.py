"""Words seen: runs whose length is a number of words."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from bertlab.data.corpus.store import TokenStore
from bertlab.data.pretraining import PretrainingData
from bertlab.data.run_length import steps_for_words
from bertlab.errors import ConfigError
from bertlab.model.build import build_tasks
from bertlab.objectives.changing import Change
from tests.conftest import Command


def data(
    corpus: Path,
    cache: Path,
    input_format: str = "segment_pairs",
    batch_size: int | Change = 8,
) -> tuple[PretrainingData, TokenStore]:
    """Return the data of the tiny config, and its store."""
    found = PretrainingData(
        corpus=str(corpus),
        corpus_format="sentences",
        vocab_size=300,
        max_seq_length=32,
        batch_size=batch_size,
        validation_fraction=0.2,
        input_format=input_format,
        cache_dir=str(cache),
        seed=3,
    )
    found.connect(found.load_tokenizer(), build_tasks({"objectives": {"mlm": {}}}))
    found.prepare("fit")
    assert found.store is not None
    return found, found.store


@pytest.mark.parametrize("input_format", ["segment_pairs", "full_sentences"])
def test_words_in_a_step_are_counted_in_the_text(
    input_format: str, corpus_file: Path, cache_dir: Path
) -> None:
    own, store = data(corpus_file, cache_dir, input_format)
    words = len(corpus_file.read_text("utf-8").split())
    assert store.metadata.words == words == own.corpus_words("k")
    # all sequences of an epoch, without [CLS] and [SEP]
    assert own.train_sampler is not None
    indices = np.arange(len(own.train_sampler))
    sequences = own.train_sampler.sample(np.zeros_like(indices), indices)
    special = np.isin(sequences.input_ids, [store.tokenizer.cls_id, store.tokenizer.sep_id])
    tokens_per_word = len(store.tokens) / words
    expected = 8 * np.count_nonzero(~special) / len(indices) / tokens_per_word
    assert own.words_per_step("k") == pytest.approx(expected)
    # an epoch reads about each word of the training part once: not two thirds, not one and a half
    training = words * (
        1 - sum(np.diff(store.document_token_offsets)[own.held_out_documents]) / len(store.tokens)
    )
    assert own.words_per_step("k") * own.steps_per_epoch() == pytest.approx(training, rel=0.15)


@pytest.mark.slow
def test_words_are_as_many_steps_as_read_them(
    tiny_config: Path, corpus_file: Path, cache_dir: Path, tmp_path: Path, bertlab: Command
) -> None:
    a_step = data(corpus_file, cache_dir)[0].words_per_step("k")
    run = tmp_path / "run"
    given = ("--config", tiny_config, "--trainer.max_steps", "-1", "--max_words", 4.4 * a_step)
    code, _, error = bertlab("fit", *given, "--run_dir", run)
    assert code == 0, error
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["words_per_step"] == a_step
    assert manifest["training_words"] == 4 * a_step
    checkpoint = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert checkpoint["global_step"] == 4


def test_no_more_epochs_than_allowed(corpus_file: Path, cache_dir: Path) -> None:
    own, store = data(corpus_file, cache_dir)
    words = store.metadata.words
    assert words is not None
    for allowed in (10 * words, 10.09 * words):  # a hundredth is not looked at
        found = steps_for_words(allowed, 10, own)
        assert found == round(allowed / own.words_per_step("k"))
    assert steps_for_words(11 * words, None, own) > steps_for_words(10 * words, 10, own)
    assert steps_for_words(11 * words, -1, own) == steps_for_words(11 * words, None, own)
    with pytest.raises(ConfigError, match=f"expected at most {10 * words:,}: trainer.max_epochs"):
        steps_for_words(10.2 * words, 10, own)


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--max_words", "1000"], "max_words: found trainer.max_steps beside it"),
        (["--max_words", "1000", "--max_tokens", "9"], "max_words: found max_tokens beside it"),
        (["--max_words", "5", "--trainer.max_steps", "-1"], "expected at least a step's"),
        (["--max_words", ".nan", "--trainer.max_steps", "-1"], "max_words: found nan"),
        (
            ["--max_words", "1e9", "--trainer.max_steps", "-1", "--trainer.max_epochs", "10"],
            "trainer.max_epochs is 10",
        ),
    ],
)
def test_words_that_make_no_run(
    arguments: list[str], words: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments, "--run_dir", run)
    assert code == 2
    assert words in error
    assert not run.exists()
