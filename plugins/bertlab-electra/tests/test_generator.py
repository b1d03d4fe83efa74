"""The generator: its sizes, its shared embedding, and its samples."""

import math

import pytest
import torch
from transformers import ElectraConfig
from transformers.models.electra.modeling_electra import ElectraGeneratorPredictions

from bertlab import BertEncoder, pack
from bertlab_electra.generator import Generator, attention_heads, sample

VOCAB, WIDTH = 50, 32
BATCH = pack([[2, 7, 8, 9, 3], [2, 10, 3]])
NONE_EXCLUDED = torch.zeros(VOCAB, dtype=torch.bool)


def encoder() -> BertEncoder:
    torch.manual_seed(0)
    return BertEncoder(VOCAB, "tiny", hidden_size=WIDTH, num_attention_heads=2).eval()


@pytest.mark.parametrize(
    ("width", "heads"), [(192, 3), (64, 1), (128, 2), (32, 1), (1, 1), (200, 2), (130, 2)]
)
def test_heads_are_about_64_wide_and_divide_the_width(width: int, heads: int) -> None:
    assert attention_heads(width) == heads


def test_it_is_a_fraction_of_the_width_and_as_deep_unless_told() -> None:
    assert Generator(encoder(), 0.25, None).body.hidden_size == 8
    assert len(Generator(encoder(), 0.25, None).body.layers) == 2
    assert len(Generator(encoder(), 0.25, 1).body.layers) == 1


@pytest.mark.parametrize("size", [0.25, 1.0])
def test_the_embedding_is_the_encoders_at_both_ends(size: float) -> None:
    """A change of the encoder's table changes what the generator reads and what it scores."""
    main = encoder()
    generator = Generator(main, size, None).eval()
    assert not any(
        tensor.shape[0] == VOCAB for tensor in generator.parameters() if tensor.dim() > 1
    )
    positions = torch.tensor([1, 6])
    before = generator(BATCH, positions)
    with torch.no_grad():
        main.token_embedding.weight[7] += 1.0
    after = generator(BATCH, positions)
    assert before.shape == (2, VOCAB)
    assert not torch.allclose(before[0], after[0])  # sequence 0 holds token 7
    only_one_score = (before[1] != after[1]).nonzero().flatten().tolist()
    assert only_one_score == [7]  # sequence 1 does not, but 7 is scored


def test_scores_are_those_of_hugging_faces_generator_head() -> None:
    main = encoder()
    generator = Generator(main, 0.5, None).eval()
    config = ElectraConfig(embedding_size=WIDTH, hidden_size=WIDTH // 2, layer_norm_eps=1e-12)
    peer = ElectraGeneratorPredictions(config)
    peer.dense.load_state_dict(generator.dense.state_dict())
    peer.LayerNorm.load_state_dict(generator.layer_norm.state_dict())
    with torch.no_grad():
        generator.bias.normal_()
        hidden = generator.body(BATCH).tokens
        expected = peer(hidden) @ main.token_embedding.weight.T + generator.bias
        found = generator(BATCH, torch.arange(8))
    torch.testing.assert_close(found, expected)


def test_samples_have_the_probabilities_of_the_softmax() -> None:
    torch.manual_seed(1)
    scores = torch.randn(1, 6) * 2
    draws = 200_000
    noise = (torch.arange(draws) + 0.5) / draws  # evenly spread, so shares are exact
    drawn = sample(scores.expand(draws, 6), noise, torch.zeros(6, dtype=torch.bool))
    shares = torch.bincount(drawn, minlength=6) / draws
    torch.testing.assert_close(shares, scores.softmax(-1)[0], atol=1e-4, rtol=0)


def test_what_is_excluded_is_never_drawn_and_the_others_share_its_probability() -> None:
    scores = torch.tensor([[5.0, 1.0, 5.0, 2.0, 5.0]])
    excluded = torch.tensor([True, False, True, False, True])
    draws = 100_000
    noise = (torch.arange(draws) + 0.5) / draws
    drawn = sample(scores.expand(draws, 5), noise, excluded)
    assert set(drawn.tolist()) == {1, 3}
    share = 1 / (1 + math.e)
    assert (drawn == 1).float().mean().item() == pytest.approx(share, abs=1e-3)


@pytest.mark.parametrize("noise", [0.0, 1 - 2**-24, 1.0])
def test_noise_at_the_edges_draws_an_id_of_the_vocabulary(noise: float) -> None:
    torch.manual_seed(2)
    drawn = sample(torch.randn(100, VOCAB), torch.full((100,), noise), NONE_EXCLUDED)
    assert 0 <= drawn.min() <= drawn.max() < VOCAB
    if noise == 0.0:
        assert (drawn == 0).all()


def test_a_sample_depends_on_its_own_row_only() -> None:
    torch.manual_seed(3)
    scores, noise = torch.randn(40, VOCAB), torch.rand(40)
    together = sample(scores, noise, NONE_EXCLUDED)
    alone = [sample(scores[n : n + 1], noise[n : n + 1], NONE_EXCLUDED) for n in range(40)]
    assert torch.equal(together, torch.cat(alone))


def test_nothing_is_drawn_of_nothing() -> None:
    assert sample(torch.zeros(0, VOCAB), torch.zeros(0), NONE_EXCLUDED).shape == (0,)
