"""OwnStates: the conformance kit, and how its copy moves."""

import pytest
import torch

from bertlab import BertEncoder, ConfigError, TaskContext, WordPieceTokenizer
from bertlab.testing import conformance
from bertlab_distillation.own_states import OwnStates

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]

test_conformance = conformance(OwnStates, companions={"mlm": {}})


def test_the_copy_is_the_encoder_after_a_step_and_follows_it_then() -> None:
    encoder = BertEncoder(len(VOCABULARY), preset="tiny")
    objective = OwnStates(decay=0.75)
    objective.build(TaskContext(encoder, WordPieceTokenizer.from_vocabulary(VOCABULARY)))
    mine, theirs = objective.teacher.token_embedding.weight, encoder.token_embedding.weight
    with torch.no_grad():
        theirs.fill_(4.0)
        objective.after_step(1)
        assert mine.eq(4).all()
        theirs.fill_(8.0)
        objective.after_step(2)
    assert mine.eq(5).all()  # three quarters of 4 and one of 8
    assert not mine.requires_grad
    with pytest.raises(ConfigError, match="decay: found 1, expected 0 to below 1"):
        OwnStates(decay=1)
