"""An LSTM over packed sequences against torch's own, sequence by sequence."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from bertlab.api.batch import pack
from bertlab.encoders.layers import final_states, packed_lstm

LENGTHS = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def lstm_of(layers: int, bidirectional: bool = True) -> nn.LSTM:
    torch.manual_seed(0)
    return nn.LSTM(5, 3, num_layers=layers, bidirectional=bidirectional)


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(LENGTHS, st.integers(1, 2), st.booleans())
def test_outputs_and_gradients_are_those_of_each_sequence_alone(
    lengths: list[int], layers: int, bidirectional: bool
) -> None:
    lstm = lstm_of(layers, bidirectional)
    values = torch.randn(sum(lengths), 5, requires_grad=True)
    expected = torch.cat([lstm(each)[0] for each in values.split(lengths)])
    found = packed_lstm(lstm, values, torch.tensor(lengths))
    torch.testing.assert_close(found, expected)
    inputs = (values, *lstm.parameters())
    weights = torch.randn(found.shape)
    gradients = torch.autograd.grad((expected * weights).sum(), inputs)
    for mine, theirs in zip(
        torch.autograd.grad((found * weights).sum(), inputs), gradients, strict=True
    ):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@settings(max_examples=20, deadline=None)
@given(LENGTHS, st.integers(1, 2))
def test_final_states_are_torchs(lengths: list[int], layers: int) -> None:
    lstm = lstm_of(layers)
    values = torch.randn(sum(lengths), 5)
    batch = pack([[7] * length for length in lengths])
    found = final_states(packed_lstm(lstm, values, batch.lengths), batch)
    expected = torch.stack([lstm(each)[1][0][-2:].flatten() for each in values.split(lengths)])
    torch.testing.assert_close(found, expected)


def test_it_computes_in_its_own_dtype() -> None:
    values = torch.randn(6, 5)
    lengths = torch.tensor([4, 2])
    exact = packed_lstm(lstm_of(1), values, lengths)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(packed_lstm(lstm_of(1), values, lengths), exact)
    half = packed_lstm(lstm_of(1).to(torch.bfloat16), values, lengths)
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.float(), exact, atol=0.02)
