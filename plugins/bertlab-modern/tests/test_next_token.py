"""Masked next-token prediction: what is predicted from where, and by whom it is read."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertlab import language_model, text_sequences
from bertlab.api import ConfigError, TaskContext
from bertlab.api.rng import CounterRNG
from bertlab.checkpoints.pretrained_model import load
from bertlab.model.build import build_encoder, check_tasks
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.testing import conformance
from bertlab.training.run import fit
from bertlab_modern.next_token import MaskedNextToken
from tests.checkpoints.peers import SIZES, TOKENIZER

test_contract = conformance("mntp", arguments={"causal_share": 0.3})
test_contract_of_masks_alone = conformance(
    "mntp",
    arguments={"causal_share": 0.0},
    skip=dict.fromkeys(
        ("works_in_a_run", "run_goes_on_without_its_config"), "as with causal texts in a run"
    ),
)

RNG = CounterRNG(3, "objective/mntp")


def built(objective: Any) -> Any:
    sizes = {key: value for key, value in SIZES.items() if key != "vocab_size"}
    torch.manual_seed(0)
    encoder = build_encoder({"name": "bert", **sizes}, SIZES["vocab_size"]).eval()
    objective.build(TaskContext(encoder, TOKENIZER))
    return objective.eval(), encoder


def texts(count: int = 40, length: int = 20) -> Any:
    # text_sequences() gives them no place in a corpus that would be special
    ids = [[5 + (7 * n + k) % 92 for k in range(length)] for n in range(count)]
    return text_sequences(TOKENIZER, ids, range(count))


def test_masks_are_those_of_mlm_and_read_from_the_left() -> None:
    (ours, _), (theirs, _) = built(MaskedNextToken(causal_share=0.0)), built(MaskedLM())
    mine, other = texts(), texts()
    for training in (True, False):
        assert ours.prepare(mine, RNG, training) == theirs.prepare(
            other, CounterRNG(3, "objective/mlm"), training
        )
        assert (mine.input_ids == other.input_ids).all()
        a, b = mine.token_labels("mntp"), other.token_labels("mlm")
        assert (a.positions == b.positions - 1).all()
        assert (a.labels == b.labels).all()
        assert "causal" not in mine.fields
        mine, other = texts(), texts()


def test_causal_sequences_are_read_as_they_are() -> None:
    ours, _ = built(MaskedNextToken(causal_share=0.4))
    before, after = texts(), texts()
    count = ours.prepare(after, RNG, training=True)
    causal = after.fields["causal"]
    assert 0.2 < causal.mean() < 0.6
    row = after.sequence_of_token
    assert (after.input_ids[causal[row]] == before.input_ids[causal[row]]).all()
    written = after.token_labels("mntp")
    assert count == len(written.positions)
    assert (np.diff(written.positions) > 0).all()
    for number in range(len(causal)):
        here = written.positions[row[written.positions] == number]
        # all 20 words of a causal sequence, from [CLS] on; 3 of another
        assert len(here) == 20 if causal[number] else len(here) in (2, 3, 4)
    assert (before.input_ids[written.positions + 1] == written.labels).all()
    # what a batch holds plays no part
    assert "causal" not in _prepared(ours, training=False).fields


def _prepared(objective: Any, training: bool) -> Any:
    sequences = texts()
    objective.prepare(sequences, RNG, training)
    return sequences


def test_states_of_causal_sequences_see_nothing_to_the_right() -> None:
    ours, encoder = built(MaskedNextToken(causal_share=0.4))
    sequences = _prepared(ours, training=True)
    causal = sequences.fields["causal"]
    batch = sequences.to_batch()
    with torch.no_grad():
        before = encoder(batch).tokens
        changed = batch.input_ids.clone()
        last = batch.cu_seqlens[1:].long() - 2  # the last word of each
        changed[last] = 5 + (changed[last] + 1) % 92
        batch.input_ids = changed
        after = encoder(batch).tokens
    moved = (before - after).abs().amax(-1)
    for number, (start, end) in enumerate(zip(batch.cu_seqlens[:-1], last, strict=True)):
        assert (moved[start:end].max() > 0) == (not causal[number])


def test_it_is_a_language_model_read_from_the_left() -> None:
    ours, encoder = built(MaskedNextToken())
    assert language_model("x", encoder, TOKENIZER, {"mntp": ours})[1] == -1


def test_a_language_model_need_not_be_of_a_class_of_bertlab() -> None:
    ours, encoder = built(MaskedNextToken())

    class Own(torch.nn.Module):
        prepare, loss, log_probabilities = ours.prepare, ours.loss, ours.log_probabilities

    found, offset = language_model("x", encoder, TOKENIZER, {"mntp": Own()})
    assert (found.name, offset) == ("mntp", -1)


def test_arguments_and_encoders_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"model.objectives.mntp.causal_share: found 1.5"):
        MaskedNextToken(causal_share=1.5)
    with pytest.raises(ConfigError, match=r"model.objectives.mntp.rate: found 2"):
        MaskedNextToken(rate=2.0)
    encoder = build_encoder({"name": "bert", "preset": "tiny", "bilstm_layers": 1}, 97)
    with pytest.raises(ConfigError, match="mntp needs an encoder whose reads_directions is True"):
        check_tasks({"mntp": MaskedNextToken()}, encoder)
    check_tasks({"mntp": MaskedNextToken(causal_share=0.0)}, encoder)


@pytest.mark.slow
def test_a_run_trains_predicts_and_resumes(tiny_config: Path, tmp_path: Path) -> None:
    # mlm, which the config has, overwrites the input as well
    given: dict[str, Any] = {
        "model.objectives.mlm": None,
        "model.objectives": {"mntp": {"causal_share": 0.3}},
        "run_dir": str(tmp_path / "run"),
        "checkpoint.every_n_train_steps": 3,
        "checkpoint.save_top_k": -1,
        "checkpoint.filename": "step-{step}",
    }
    run = fit(tiny_config, given)
    (row,) = load(run.directory).predict("Return the [MASK] of the list.")
    assert len(row["fillers"][0]) == 5
    middle, *_ = sorted((run.directory / "checkpoints").glob("step-*3.ckpt"))
    again = fit(None, {"ckpt_path": str(middle), "run_dir": str(tmp_path / "again")})
    for mine, other in zip(
        load(run.directory).encoder.parameters(),
        load(again.directory).encoder.parameters(),
        strict=True,
    ):
        assert torch.equal(mine, other)
