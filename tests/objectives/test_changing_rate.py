"""A masking rate that changes from step to step, whoever makes the batch."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from bertlab.api.batch import PackedSequences
from bertlab.api.optimizer import Progress
from bertlab.api.task import TaskContext
from bertlab.data.loader import SequenceStream, StepDataset
from bertlab.data.pretraining import PretrainingData
from bertlab.data.run_length import StepSizes, check_changes
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import BertlabError, ConfigError
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.tokenizer.files import WordPieceTokenizer
from tests.conftest import Command

LENGTH, PER_STEP, STEPS = 100, 8, 10
FIXED = PretrainingData()
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENIZER = WordPieceTokenizer.from_vocabulary([*SPECIAL, *(f"w{n}" for n in range(50))])


class Sampler:
    """Sequences of a hundred words."""

    def __len__(self) -> int:
        return 24

    def sample(
        self, epochs: np.ndarray, indices: np.ndarray, max_length: int | None = None
    ) -> PackedSequences:
        del max_length
        size = len(indices)
        ids = np.tile(np.arange(LENGTH) % 50 + 5, size)
        return PackedSequences(
            input_ids=ids,
            token_type_ids=np.zeros_like(ids),
            position_ids=np.tile(np.arange(LENGTH), size),
            cu_seqlens=np.arange(size + 1) * LENGTH,
            corpus_offsets=np.arange(size * LENGTH),
            epochs=epochs,
            indices=indices,
        )


def objective(rate: Any) -> MaskedLM:
    made = MaskedLM(rate=rate, mask_share=1.0, random_share=0.0, keep_share=0.0)
    made.build(TaskContext(BertEncoder(TOKENIZER.vocab_size, "tiny"), TOKENIZER))
    return made


def dataset(rate: Any, training: bool = True, **arguments: int) -> StepDataset:
    steps = StepSizes(PER_STEP, STEPS)
    run = steps if training else None
    stream = SequenceStream(Sampler(), {"mlm": objective(rate)}, 3, training, run)  # type: ignore[arg-type]
    return StepDataset(stream, steps, **arguments)


def share(batches: list[Any]) -> float:
    masked = sum(int((batch.input_ids == TOKENIZER.mask_id).sum()) for batch in batches)
    return masked / sum(len(batch.input_ids) for batch in batches)


def test_each_step_has_its_rate() -> None:
    found = dataset({"from": 0.5, "to": 0.1, "schedule": "linear"})
    for step in range(STEPS):
        assert share(found[step]) == pytest.approx(0.5 - 0.04 * step, abs=0.003)


def test_the_end_of_a_schedule_with_arguments() -> None:
    found = dataset({"from": 0.4, "to": 0.2, "schedule": {"name": "wsd", "decay_share": 0.4}})
    shares = [share(found[step]) for step in (0, 6, 8)]
    assert shares == pytest.approx([0.4, 0.4, 0.3], abs=0.003)


def test_devices_and_accumulation_share_a_step() -> None:
    rate = {"from": 0.5, "to": 0.1}
    (whole,) = dataset(rate)[7]
    ranks = [dataset(rate, accumulate=2, rank=rank, world_size=2) for rank in range(2)]
    parts = [batch for each in ranks for batch in each[7]]
    assert len(parts) == 4
    assert torch.equal(torch.cat([part.input_ids for part in parts]), whole.input_ids)


def test_a_constant_rate_masks_what_it_did() -> None:
    ours, fixed = dataset({"from": 0.3, "to": 0.3}), dataset(0.3)
    assert all(torch.equal(ours[n][0].input_ids, fixed[n][0].input_ids) for n in range(3))


def test_evaluation_masks_as_ever() -> None:
    (ours,), (fixed,) = dataset({"from": 0.5, "to": 0.3}, False)[0], dataset(0.15, False)[0]
    assert torch.equal(ours.input_ids, fixed.input_ids)


def test_where_there_is_no_run_the_rate_is_the_first() -> None:
    made = objective({"from": 0.5, "to": 0.1})
    assert made.recipe.rate == 0.5
    assert made._recipe_at(None).rate == 0.5
    assert made._recipe_at(Progress(10, 10)).rate == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("rate", "words"),
    [
        ({"from": 0.4, "to": 0}, "mlm.rate: found 0,"),
        ({"from": 1.4, "to": 0.2}, "mlm.rate: found 1.4"),
        ({"from": 0.4}, "mlm.rate: found no to"),
        ({"from": 0.4, "to": 0.2, "schedule": "lienar"}, "did you mean 'linear'"),
        ({"from": 0.4, "to": 0.2, "until": "half"}, "mlm.rate.until: found half, expected above 0"),
        ({"from": 0.4, "to": 0.2, "schedule": "cosin"}, "^model.objectives.mlm.rate.schedule: no"),
    ],
)
def test_rates_that_are_none(rate: Any, words: str) -> None:
    with pytest.raises(BertlabError, match=words):
        MaskedLM(rate=rate)


def test_a_rate_without_an_end_is_refused() -> None:
    changing = {"mlm": objective({"from": 0.4, "to": 0.2})}
    with pytest.raises(ConfigError, match=r"mlm\.rate: it changes up to .* trainer\.max_steps"):
        check_changes(changing, FIXED, endless=True)
    check_changes(changing, FIXED, endless=False)
    check_changes({"mlm": objective(0.2)}, FIXED, endless=True)
    held = objective({"from": 0.4, "to": 0.2, "schedule": "inverse_sqrt"})
    check_changes({"mlm": held}, FIXED, endless=True)
    assert held._recipe_at(Progress(4, math.inf)).rate == pytest.approx(0.3)


@pytest.mark.nightly
def test_a_run_goes_on_bit_by_bit_with_muon_and_a_changing_rate(
    tiny_config: Any, tmp_path: Any, bertlab: Command
) -> None:
    changing = ["--model.objectives.mlm.rate", "{from: 0.5, to: 0.1, schedule: cosine}"]
    changing += ["--model.optimizer", "muon", "--model.optimizer.schedule", "wsd"]
    whole, third = tmp_path / "whole", tmp_path / "whole" / "checkpoints" / "step-3.ckpt"
    code, _, error = bertlab("fit", "--config", tiny_config, *changing, "--run_dir", whole)
    assert code == 0, error
    resumed = ["--ckpt_path", third, "--run_dir", tmp_path / "again", "--data.num_workers", 1]
    code, _, error = bertlab("fit", *resumed)
    assert code == 0, error
    one, other = (
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
        for run in (whole, tmp_path / "again")
    )
    for name, weight in one["state_dict"].items():
        assert torch.equal(weight, other["state_dict"][name]), name
    states, others = (each["optimizer_states"][0]["state"] for each in (one, other))
    for number, state in states.items():
        assert all(torch.equal(state[key], others[number][key]) for key in state)
    code, _, error = bertlab("fit", "--ckpt_path", third, "--model.objectives.mlm.rate", 0.2)
    assert code != 0
    assert "model.objectives.mlm.rate" in error
