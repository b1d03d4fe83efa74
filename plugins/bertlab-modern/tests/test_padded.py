"""The modern encoder gives on padded batches what it gives on packed ones."""

import pytest

from bertlab_modern.modern import ModernEncoder
from tests.checkpoints.peers import check_padded_form


@pytest.mark.parametrize(
    "changes",
    [
        {"local_window": 8},
        {"local_window": 8, "causal": True, "type_vocab_size": 2},
        {"norm": "rms", "norm_position": "post", "bias": True, "global_every": 1},
        {"position_embedding": "learned", "feed_forward": "plain"},
        {"feed_forward": "swiglu", "local_rope_theta": 300.0, "local_window": 2},
    ],
    ids=str,
)
def test_states_and_pooled_output_are_equal(changes: dict[str, object]) -> None:
    check_padded_form(ModernEncoder, changes)
