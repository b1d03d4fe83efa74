"""Adaptive masking: tokens that are predicted badly are masked more often."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertlab import text_sequences
from bertlab.api import ConfigError, TaskContext
from bertlab.api.optimizer import Progress
from bertlab.api.rng import CounterRNG
from bertlab.api.task import TaskLoss
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.model.build import build_encoder
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.testing import conformance
from bertlab.training.run import fit
from bertlab_modern.adaptive_masking import AdaptiveMaskedLM
from tests.checkpoints.peers import SIZES, TOKENIZER

test_contract = conformance("adaptive_mlm")
test_contract_of_losses = conformance(
    "adaptive_mlm",
    arguments={"measure": "soft"},
    skip=dict.fromkeys(
        ("works_in_a_run", "run_goes_on_without_its_config"), "as the share of misses in a run"
    ),
)

RNG = CounterRNG(3, "objective/adaptive_mlm")


def built(objective: Any) -> Any:
    sizes = {key: value for key, value in SIZES.items() if key != "vocab_size"}
    torch.manual_seed(0)
    encoder = build_encoder({"name": "bert", **sizes}, SIZES["vocab_size"])
    objective.build(TaskContext(encoder, TOKENIZER))
    return objective, encoder


def batch_of(objective: Any, count: int = 200, epoch: int = 0) -> Any:
    """Texts of the words w0 and w1, half and half, masked on the device."""
    texts = [[5 + (k % 2) for k in range(20)] for _ in range(count)]
    sequences = text_sequences(TOKENIZER, texts, range(count))
    sequences.epochs[:] = epoch
    predictions = objective.prepare(sequences, RNG, training=True)
    batch = objective.rewrite_input(sequences.to_batch())
    assert predictions == len(batch.token_labels("adaptive_mlm").positions)
    return batch


def test_at_first_all_tokens_are_masked_alike() -> None:
    objective, _ = built(AdaptiveMaskedLM())
    batch = batch_of(objective)
    found = batch.token_labels("adaptive_mlm")
    assert len(found.positions) == pytest.approx(0.15 * 20 * 200, rel=0.05)
    assert (found.labels == 5).float().mean() == pytest.approx(0.5, abs=0.06)
    read = batch.input_ids[found.positions]
    assert (read == TOKENIZER.mask_id).float().mean() == pytest.approx(0.8, abs=0.05)
    untouched = torch.ones_like(batch.input_ids, dtype=torch.bool)
    untouched[found.positions] = False
    assert not (batch.input_ids[untouched] == TOKENIZER.mask_id).any()


def test_weights_decide_which_tokens_are_masked() -> None:
    objective, _ = built(AdaptiveMaskedLM())
    objective.weights[5], objective.weights[6] = 3.0, 1.0
    labels = batch_of(objective).token_labels("adaptive_mlm").labels
    # 3 of 20 tokens, ten of each kind: a little less than three quarters, without repetition
    assert 0.68 < (labels == 5).float().mean() < 0.78


def test_weights_follow_the_share_of_misses() -> None:
    objective, _ = built(AdaptiveMaskedLM(update_every=2, memory=0.0))
    target = torch.tensor([5, 5, 5, 6, 6, 6])
    preds = torch.tensor([9, 9, 9, 6, 6, 6])
    objective._of_step.append((target, (preds != target).long() * 2**20))
    objective.after_step(1)
    assert objective.seen[5] == 3
    assert (objective.weights == 1).all()
    objective.after_step(2)
    weights = objective.weights
    # 3.5 / 4 and 0.5 / 4 by hand; 0.5 of what was never predicted
    assert weights[5] / weights[6] == pytest.approx(7, rel=1e-5)
    assert weights[7] / weights[6] == pytest.approx(4, rel=1e-5)
    assert weights.mean() == pytest.approx(1, rel=1e-5)
    assert objective.seen.sum() == 0


@pytest.mark.parametrize("measure", ["hard", "soft"])
def test_the_loss_counts_what_it_predicts(measure: Any) -> None:
    objective, encoder = built(AdaptiveMaskedLM(measure=measure, update_every=1))
    objective.train()
    batch = batch_of(objective)
    found: TaskLoss = objective.loss(encoder(batch), batch)
    objective.after_step(0)
    assert found.count == len(batch.token_labels("adaptive_mlm").positions)
    assert set((objective.weights != objective.weights[90]).nonzero().flatten().tolist()) <= {5, 6}
    objective.eval()
    objective.loss(encoder(batch), batch)
    assert objective._of_step == []


def test_held_out_masks_are_those_of_mlm() -> None:
    (ours, _), (theirs, _) = built(AdaptiveMaskedLM()), built(MaskedLM())
    texts = [[5 + (n * k) % 90 for k in range(20)] for n in range(30)]
    mine, other = (text_sequences(TOKENIZER, texts, range(30)) for _ in range(2))
    ours.prepare(mine, RNG, training=False)
    theirs.prepare(other, CounterRNG(3, "objective/mlm"), training=False)
    assert (mine.input_ids == other.input_ids).all()
    batch = mine.to_batch()
    assert ours.rewrite_input(batch) is batch


def test_the_rate_may_change() -> None:
    objective, _ = built(AdaptiveMaskedLM(rate={"from": 0.4, "to": 0.2}))
    counts = []
    for step in (0, 100):
        sequences = text_sequences(TOKENIZER, [[5] * 20] * 50, range(50))
        sequences.progress = Progress(step, 100)
        counts.append(objective.prepare(sequences, RNG, training=True))
    assert counts == [400, 200]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"measure": "loud"}, "adaptive_mlm.measure: found 'loud'"),
        ({"update_every": 0}, "adaptive_mlm.update_every: found 0"),
        ({"memory": 2.0}, "adaptive_mlm.memory: found 2"),
        ({"rate": 0.0}, "objectives.adaptive_mlm.rate: found 0"),
    ],
)
def test_arguments_are_checked(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AdaptiveMaskedLM(**arguments)


@pytest.mark.nightly
def test_a_run_that_is_resumed_ends_with_the_same_weights(
    tiny_config: Path, tmp_path: Path
) -> None:
    # mlm, which the config has, overwrites the input as well
    given: dict[str, Any] = {
        "model.objectives.mlm": None,
        "model.objectives": {"adaptive_mlm": {"update_every": 2}},
        "run_dir": str(tmp_path / "run"),
        "checkpoint.every_n_train_steps": 3,
        "checkpoint.save_top_k": -1,
        "checkpoint.filename": "step-{step}",
    }
    run = fit(tiny_config, given)
    middle, *_ = sorted((run.directory / "checkpoints").glob("step-*3.ckpt"))
    again = fit(None, {"ckpt_path": str(middle), "run_dir": str(tmp_path / "again")})
    whole, resumed = (
        read_run_checkpoint(each.directory / "checkpoints" / "last.ckpt").state
        for each in (run, again)
    )
    assert whole.keys() == resumed.keys()
    for name, tensor in whole.items():
        assert torch.equal(tensor, resumed[name]), name
    weights = whole["tasks.adaptive_mlm.weights"].numpy()
    assert len(np.unique(weights)) > 3


@pytest.mark.nightly
def test_held_out_tokens_of_runs_are_the_same(tiny_config: Path, tmp_path: Path) -> None:
    found = []
    for name in ("mlm", "adaptive_mlm", "mntp"):
        run = fit(
            tiny_config,
            {
                "model.objectives": [name],
                "run_dir": str(tmp_path / name),
                "trainer.max_steps": 1,
                "trainer.val_check_interval": 1,
            },
        )
        found.append(run.metrics[f"{name}/unigram_loss"])
    assert found[0] == found[1] == found[2]
