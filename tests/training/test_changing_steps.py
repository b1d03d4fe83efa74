"""Runs whose batch size and sequence length change: exact on resume, and counted right."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertlab.api.task import TaskContext
from bertlab.data.loader import SequenceStream, StepDataset
from bertlab.data.pretraining import PretrainingData
from bertlab.data.run_length import StepSizes, steps_for, steps_for_words
from bertlab.encoders.bert import BertEncoder
from bertlab.model.build import build_tasks
from bertlab.objectives.changing import Change, read_whole
from bertlab_studies.plan.budget import pretraining_cost
from tests.conftest import Command

LENGTH: Change = {"from": 12, "to": 32, "until": 0.6}
SIZE: Change = {"from": 4, "to": 12}
ARGUMENTS = [
    *("--data.max_seq_length", "{from: 12, to: 32, until: 0.6}"),
    *("--data.batch_size", "{from: 4, to: 12}"),
    *("--model.objectives.mlm.rate", "{from: 0.4, to: 0.15}"),
]


ENDLESS = [
    *("--trainer.max_steps", "-1", "--trainer.max_time", "00:00:00:09"),
    *("--model.optimizer.schedule", "constant"),
]


@pytest.fixture(scope="module")
def data(corpus_file: Path, cache_dir: Path) -> PretrainingData:
    """The data of the tiny config, with what changes."""
    made = PretrainingData(
        corpus=str(corpus_file),
        corpus_format="sentences",
        vocab_size=300,
        validation_fraction=0.2,
        cache_dir=str(cache_dir),
        seed=3,
        max_seq_length=LENGTH,
        batch_size=SIZE,
    )
    tokenizer, tasks = made.load_tokenizer(), build_tasks({"objectives": {"mlm": {}, "nsp": {}}})
    for task in tasks.values():
        task.build(TaskContext(BertEncoder(tokenizer.vocab_size, "tiny"), tokenizer))
    made.connect(tokenizer, tasks)
    made.prepare("fit")
    return made


def dataset(data: PretrainingData, steps: int, **devices: int) -> StepDataset:
    assert data.train_sampler is not None
    sizes = StepSizes(data.sequences_per_step(), steps)
    stream = SequenceStream(
        data.train_sampler, data.objectives, 3, True, sizes, data.step_settings.changing_length
    )
    return StepDataset(stream, sizes, **devices)


@pytest.mark.nightly
def test_a_run_goes_on_bit_by_bit(tiny_config: Path, tmp_path: Path, bertlab: Command) -> None:
    given = [*ARGUMENTS, "--model.optimizer", "muon"]
    whole, again = tmp_path / "whole", tmp_path / "again"
    code, out, error = bertlab("fit", "--config", tiny_config, *given, "--run_dir", whole)
    assert code == 0, error
    assert "4 to 12 sequences a step" in out
    third = whole / "checkpoints" / "step-3.ckpt"
    code, _, error = bertlab(
        "fit", "--ckpt_path", third, "--run_dir", again, "--data.num_workers", 1
    )
    assert code == 0, error
    one, other = (
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True) for run in (whole, again)
    )
    for name, weight in one["state_dict"].items():
        assert torch.equal(weight, other["state_dict"][name]), name
    assert json.loads((whole / "results.json").read_text()) == json.loads(
        (again / "results.json").read_text()
    )
    code, _, error = bertlab("fit", "--ckpt_path", third, "--data.batch_size", 8)
    assert code == 2
    assert "data.batch_size" in error
    # a model that was trained in parts predicts on whole sequences
    text = " ".join(["the"] * 20)
    code, _, error = bertlab("predict", "--ckpt_path", whole, "--data.text", text)
    assert code == 0, error


def test_steps_are_the_same_on_any_number_of_devices(data: PretrainingData) -> None:
    for step in (0, 5, 9):
        (whole,) = dataset(data, 10)[step]
        ranks = [dataset(data, 10, accumulate=2, rank=rank, world_size=2) for rank in (0, 1)]
        parts = [batch for each in ranks for batch in each[step]]
        assert len(parts) == 4
        assert torch.equal(torch.cat([part.input_ids for part in parts]), whole.input_ids)
        labels = torch.cat([part.fields["mlm_labels"] for part in parts])
        assert torch.equal(labels, whole.fields["mlm_labels"])


def test_each_step_has_its_size_and_length(data: PretrainingData) -> None:
    made = dataset(data, 10)
    longest = [made[step][0].max_seqlen for step in range(10)]
    assert (np.array(longest) <= [12, 15, 19, 22, 25, 29, 32, 32, 32, 32]).all()
    assert longest[0] == 12
    assert longest[-1] == 32
    sizes = [len(made.positions(step)) for step in range(10)]
    assert sizes == [4, 5, 6, 6, 7, 8, 9, 10, 10, 11]


def test_an_epoch_reads_each_chunk_once(data: PretrainingData) -> None:
    assert data.train_sampler is not None
    steps = data.steps_for_epochs(1)
    made = dataset(data, steps)
    places = np.concatenate([made.positions(step) for step in range(steps)])
    assert np.array_equal(places, np.arange(len(places)))
    short = len(places) - len(data.train_sampler)
    assert 0 <= short < 12  # the last step goes on into the next epoch


@pytest.mark.slow
def test_tokens_and_words_are_counted_over_the_run(data: PretrainingData) -> None:
    asked = 20_000
    steps = steps_for("max_tokens", asked, lambda steps: data.mean_lengths(steps)[1])
    made = dataset(data, steps)
    read = [len(batch.input_ids) for step in range(steps) for batch in made[step]]
    assert sum(read) == pytest.approx(asked, rel=0.02)
    a_step = data.mean_lengths(steps)[1]
    assert sum(read) == pytest.approx(steps * a_step, rel=0.02)
    words = steps * data.words_per_step("k", steps)
    assert steps_for_words(words, None, data) == pytest.approx(steps, abs=1)


@pytest.mark.slow
def test_a_run_that_epochs_end(tiny_config: Path, tmp_path: Path, bertlab: Command) -> None:
    run = tmp_path / "run"
    ends = ["--trainer.max_steps", "-1", "--trainer.max_epochs", "1"]
    size = ["--data.batch_size", "{from: 100, to: 300}", "--trainer.val_check_interval", "1.0"]
    code, _, error = bertlab("fit", "--config", tiny_config, *ends, *size, "--run_dir", run)
    assert code == 0, error
    manifest = json.loads((run / "manifest.json").read_text())
    sequences = manifest["data"]["SamplingReport"]["sequences_per_epoch"]
    checkpoint = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    size = read_whole({"from": 100, "to": 300}, "data.batch_size")
    steps = StepSizes(size, checkpoint["global_step"])
    assert 0 <= steps.total() - sequences < 300


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--data.batch_size", "{from: 4, to: 8}", *ENDLESS],
            "data.batch_size: it changes up to the run's end, expected the number of steps",
        ),
        (
            ["--data.max_seq_length", "{from: 16, to: 128}"],
            "data.max_seq_length: found 128, expected at most "
            "model.encoder.max_position_embeddings, which is 64",
        ),
        (
            ["--data.batch_size", "{from: 2, to: 8}", "--trainer.accumulate_grad_batches", "3"],
            "data.batch_size: 2 sequences cannot be divided over 1 devices × 3",
        ),
        (
            ["--data.max_seq_length", "{from: 4, to: 32}"],
            "data.max_seq_length: found 4, expected 8 or more",
        ),
        (
            ["--data.max_seq_length", "{from: 16, to: 32}", "--data.input_format=sentence_pairs"],
            "choose segment_pairs, full_sentences or doc_sentences",
        ),
        (["--data.batch_size", "{from: 4, to: many}"], "data.batch_size"),
    ],
)
def test_changes_that_make_no_run(
    arguments: list[str], words: str, tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run = tmp_path / "run"
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments, "--run_dir", run)
    assert code == 2
    assert words in error
    assert error.count("\n") == 1
    assert not run.exists()


def test_the_cost_of_a_run_that_is_not_begun() -> None:
    def cost(**data: Any) -> float:
        encoder = {"name": "bert", "preset": "tiny"}
        objectives = {"mlm": {"rate": {"from": 0.4, "to": 0.2}}}
        config = {
            "model": {"encoder": encoder, "objectives": objectives},
            "trainer": {"max_steps": 100},
            "data": {"max_seq_length": 128, "batch_size": None, "batch_tokens": None, **data},
        }
        found = pretraining_cost(config)
        assert found is not None
        return found.tokens

    assert cost(batch_size={"from": 0, "to": 64}) == pytest.approx(100 * 32 * 128, rel=0.02)
    assert cost(batch_tokens={"from": 1000, "to": 3000}) == pytest.approx(200_000, rel=0.02)
    assert cost(max_seq_length={"from": 16, "to": 128}) == 100 * 256 * 128
