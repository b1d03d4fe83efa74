"""Combinations of layers, by hand."""

import pytest
import torch

from bertlab.errors import ConfigError
from bertlab_tasks.layers import combine_layers

LAYERS = [torch.full((2, 3), float(10**n)) for n in range(4)]


def test_concat_keeps_the_order_of_the_indices():
    expected = torch.tensor([1000.0] * 3 + [1.0] * 3 + [10.0] * 3).expand(2, -1)
    assert torch.equal(combine_layers(LAYERS, [-1, 0, 1], "concat"), expected)


@pytest.mark.parametrize(("how", "expected"), [("sum", 1101.0), ("mean", 367.0)])
def test_sum_and_mean(how, expected):
    assert torch.equal(combine_layers(LAYERS, [0, 2, 3], how), torch.full((2, 3), expected))


@pytest.mark.parametrize("how", ["concat", "sum", "mean"])
def test_one_layer_is_itself(how):
    assert torch.equal(combine_layers(LAYERS, [-2], how), LAYERS[2])


@pytest.mark.parametrize("index", [4, -5])
def test_a_layer_out_of_range_is_named(index):
    with pytest.raises(ConfigError, match=rf"embed\.layers: found {index}, .* 3 layers; expected"):
        combine_layers(LAYERS, [0, index], "sum", key="embed.layers")


def test_no_layer_is_refused():
    with pytest.raises(ConfigError, match="found no layer"):
        combine_layers(LAYERS, [], "concat")
