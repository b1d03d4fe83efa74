"""Combinations of layers, by hand."""

import pytest
import torch

from bertlab.errors import ConfigError
from bertlab_tasks.feature_tagging import WeightedSum, combine_layers

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


def test_weighted_sum_starts_as_the_mean_and_follows_its_weights():
    mix = WeightedSum(3)
    assert torch.allclose(mix(LAYERS[:3]), torch.full((2, 3), 37.0))
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, 2.0, -1.0]))
        mix.scale.fill_(3.0)
    shares = torch.tensor([0.0, 2.0, -1.0]).exp()
    expected = 3 * (shares * torch.tensor([1.0, 10.0, 100.0])).sum() / shares.sum()
    assert torch.allclose(mix(LAYERS[:3]), expected.expand(2, 3))
    mix(LAYERS[:3]).sum().backward()
    assert mix.weights.grad.abs().min() > 0
    assert mix.scale.grad is not None
