"""Padded batches give what packed ones give."""

import pytest
from torch import nn

from bertlab.encoders.bert import BertEncoder
from bertlab_interop.padded import padded_form
from tests.checkpoints.peers import SIZES, check_padded_form


@pytest.mark.parametrize(
    "changes", [{}, {"causal": True}, {"position_embedding": "sinusoidal", "type_vocab_size": 1}]
)
def test_states_and_pooled_output_are_equal(changes: dict[str, object]) -> None:
    check_padded_form(BertEncoder, changes)


def test_a_bilstm_and_other_encoders_have_no_padded_form() -> None:
    with pytest.raises(NotImplementedError, match="BiLSTM"):
        padded_form(BertEncoder(**SIZES, bilstm_layers=1))
    with pytest.raises(NotImplementedError, match="Linear has no form for padded batches"):
        padded_form(nn.Linear(1, 1))  # type: ignore[arg-type]
