"""Padded batches give what packed ones give."""

import pytest
import torch

from bertlab.api.encoder import Encoder
from bertlab.encoders.bert import BertEncoder
from tests.checkpoints.peers import SIZES, batch_of, padded_inputs, randomized, unpadded


def check_padded_form(kind: type[Encoder], changes: dict[str, object]) -> None:
    torch.manual_seed(0)
    encoder = randomized(kind(**(SIZES | changes)))
    batch = batch_of([7, 48, 1, 20])
    with torch.no_grad():
        expected = encoder(batch)
        states, pooled = encoder.padded_form()(**padded_inputs(batch))
    close = {"atol": 2e-5, "rtol": 1e-5}
    torch.testing.assert_close(unpadded(batch, states), expected.tokens, **close)
    torch.testing.assert_close(pooled, expected.pooled, **close)
    assert states.isfinite().all()  # in the padding, too


@pytest.mark.parametrize(
    "changes", [{}, {"causal": True}, {"position_embedding": "sinusoidal", "type_vocab_size": 1}]
)
def test_states_and_pooled_output_are_equal(changes: dict[str, object]) -> None:
    check_padded_form(BertEncoder, changes)


def test_a_bilstm_and_other_encoders_have_no_padded_form() -> None:
    with pytest.raises(NotImplementedError, match="BiLSTM"):
        BertEncoder(**SIZES, bilstm_layers=1).padded_form()

    class Other(BertEncoder):
        padded_form = Encoder.padded_form

    with pytest.raises(NotImplementedError, match="Other has no form for padded batches"):
        Other(**SIZES).padded_form()
