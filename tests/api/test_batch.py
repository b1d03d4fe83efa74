"""The padded layout of packed values, row by row."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from bertlab.api.batch import PackedSequences, pack
from bertlab.errors import PluginError

lengths = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@pytest.mark.slow
@given(lengths, st.sampled_from([(), (3,), (2, 2)]))
def test_padding_equals_torchs(lengths: list[int], shape: tuple[int, ...]) -> None:
    batch = pack([[7] * length for length in lengths])
    values = torch.randn(sum(lengths), *shape)
    expected = pad_sequence(list(values.split(lengths)), batch_first=True, padding_value=-1.5)
    assert torch.equal(batch.pad(values, -1.5), expected)
    zeros = pad_sequence(list(values.split(lengths)), batch_first=True)
    assert torch.equal(batch.pad(values), zeros)
    assert torch.equal(zeros[batch.attention_mask], values)


@pytest.mark.parametrize(
    ("values", "fill"),
    [
        (torch.tensor([4, 5, 6]), -1),
        (torch.tensor([True, True, True]), False),
        (torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16), -torch.inf),
    ],
)
def test_padding_keeps_the_dtype(values: Tensor, fill: float) -> None:
    padded = pack([[7], [7, 7]]).pad(values, fill)
    assert padded.dtype == values.dtype
    assert padded.tolist() == [[values[0].item(), fill], values[1:].tolist()]


def test_the_gradient_reaches_each_token() -> None:
    values = torch.randn(3, 2, requires_grad=True)
    weights = torch.randn(2, 2, 2)
    (pack([[7], [7, 7]]).pad(values, 5.0) * weights).sum().backward()
    assert values.grad is not None
    assert torch.equal(values.grad, torch.stack([weights[0, 0], weights[1, 0], weights[1, 1]]))


def test_token_labels_of_an_objective_are_read_by_its_name() -> None:
    one = np.array([0])
    sequences = PackedSequences(
        np.array([5, 6, 7]), np.zeros(3, int), np.arange(3), np.array([0, 3]), one, one, one
    )
    sequences.write_token_labels("mlm", np.array([1]), np.array([8]))
    assert sequences.token_labels("mlm").positions.tolist() == [1]
    read = sequences.to_batch().token_labels("mlm")
    assert (read.positions.tolist(), read.labels.tolist()) == ([1], [8])
    for holder in (sequences, sequences.to_batch()):
        with pytest.raises(PluginError, match=r"no objective 'sbo' has written .* mlm_positions"):
            holder.token_labels("sbo")


@pytest.mark.parametrize("types", [[[0], [0, 1]], [[0, 0]], [[0, 0], [1], []], [[0, 0, 1], []]])
def test_segments_of_other_lengths_than_the_ids_are_refused(types: list[list[int]]) -> None:
    assert pack([[5, 6], [7]], [[0, 0], [1]]).token_type_ids.tolist() == [0, 0, 1]
    with pytest.raises(ValueError, match=r"token_type_ids of the lengths of input_ids, \[2, 1\]"):
        pack([[5, 6], [7]], types)
