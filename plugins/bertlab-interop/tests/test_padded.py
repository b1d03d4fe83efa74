"""Padded batches give what packed ones give."""

import pytest
import torch

from bertlab.api.encoder import Encoder
from bertlab.encoders.bert import BertEncoder
from bertlab_interop.padded import PaddedEncoder, lacks_padded_form
from bertlab_modern.modern import ModernEncoder
from tests.checkpoints.peers import SIZES, batch_of, padded_inputs, randomized, unpadded

ENCODERS = [
    (BertEncoder, {}),
    (BertEncoder, {"causal": True}),
    (BertEncoder, {"position_embedding": "sinusoidal", "type_vocab_size": 1}),
    (ModernEncoder, {"local_window": 8}),
    (ModernEncoder, {"local_window": 8, "causal": True, "type_vocab_size": 2}),
    (ModernEncoder, {"norm": "rms", "norm_position": "post", "bias": True, "global_every": 1}),
    (ModernEncoder, {"position_embedding": "learned", "feed_forward": "plain"}),
    (ModernEncoder, {"feed_forward": "swiglu", "local_rope_theta": 300.0, "local_window": 2}),
]


@pytest.mark.parametrize(("kind", "changes"), ENCODERS, ids=[str(n) for n in range(len(ENCODERS))])
def test_states_and_pooled_output_are_equal(
    kind: type[Encoder], changes: dict[str, object]
) -> None:
    torch.manual_seed(0)
    encoder = randomized(kind(**(SIZES | changes)))
    batch = batch_of([7, 48, 1, 20])
    with torch.no_grad():
        expected = encoder(batch)
        states, pooled = PaddedEncoder(encoder)(**padded_inputs(batch))
    close = {"atol": 2e-5, "rtol": 1e-5}
    torch.testing.assert_close(unpadded(batch, states), expected.tokens, **close)
    torch.testing.assert_close(pooled, expected.pooled, **close)
    assert states.isfinite().all()  # in the padding, too


def test_a_bilstm_has_no_padded_form() -> None:
    encoder = BertEncoder(**SIZES, bilstm_layers=1)
    assert "BiLSTM" in str(lacks_padded_form(encoder))
    with pytest.raises(ValueError, match="BiLSTM"):
        PaddedEncoder(encoder)
