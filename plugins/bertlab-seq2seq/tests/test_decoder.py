"""The decoder against torch's own, and step by step against all at once."""

import torch
from torch import Tensor, nn

from bertlab_seq2seq.decoder import Attention, Decoder, DecoderLayer

WIDTH, HEADS, LAYERS = 16, 4, 2


def decoder() -> Decoder:
    torch.manual_seed(1)
    return Decoder(LAYERS, WIDTH, HEADS, 32, dropout=0.0, layer_norm_eps=1e-5).eval()


def encoded(*lengths: int) -> tuple[Tensor, Tensor]:
    """Hidden states of source texts, padded by numbers that must not be seen, and their mask."""
    is_token = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return torch.randn(*is_token.shape, WIDTH), is_token


def torchs_own(ours: Decoder) -> nn.TransformerDecoder:
    """Return torch's decoder with the same weights."""
    layer = nn.TransformerDecoderLayer(
        WIDTH, HEADS, 32, dropout=0.0, activation="relu", layer_norm_eps=1e-5, batch_first=True
    )
    theirs = nn.TransformerDecoder(layer, LAYERS).eval()
    for mine, peer in zip(ours.layers, theirs.layers, strict=True):
        assert isinstance(mine, DecoderLayer)
        for attention, other in (
            (mine.self_attention, peer.self_attn),
            (mine.source_attention, peer.multihead_attn),
        ):
            _copy_attention(attention, other)
        for name, other in (
            ("self_norm", peer.norm1),
            ("source_norm", peer.norm2),
            ("output_norm", peer.norm3),
            ("intermediate", peer.linear1),
            ("output", peer.linear2),
        ):
            other.load_state_dict(getattr(mine, name).state_dict())
    return theirs


@torch.no_grad()
def _copy_attention(ours: Attention, theirs: nn.MultiheadAttention) -> None:
    theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
    theirs.in_proj_bias.zero_()
    theirs.out_proj.weight.copy_(ours.output.weight)
    theirs.out_proj.bias.zero_()


@torch.no_grad()
def test_hidden_states_are_those_of_torchs_decoder() -> None:
    ours = decoder()
    source, is_token = encoded(5, 2, 3)
    targets = torch.randn(3, 4, WIDTH)
    expected = torchs_own(ours)(
        targets,
        source,
        tgt_mask=nn.Transformer.generate_square_subsequent_mask(4),
        memory_key_padding_mask=~is_token,
        tgt_is_causal=True,
    )
    torch.testing.assert_close(ours(targets, ours.start(source, is_token)), expected)


@torch.no_grad()
def test_a_token_at_a_time_gives_what_all_at_once_gives() -> None:
    ours = decoder()
    state = ours.start(*(given := encoded(5, 2)))
    targets = torch.randn(2, 6, WIDTH)
    steps = [ours(targets[:, place : place + 1], state) for place in range(6)]
    assert state.length == 6
    torch.testing.assert_close(torch.cat(steps, dim=1), ours(targets, ours.start(*given)))


@torch.no_grad()
def test_no_token_sees_those_behind_it_or_another_text() -> None:
    ours = decoder()
    source, is_token = encoded(5, 3)
    targets = torch.randn(2, 4, WIDTH)
    before = ours(targets, ours.start(source, is_token))
    targets[0, 2], source[1, 3:] = 9.0, 9.0  # a token of the first text, padding of the second
    differs = (ours(targets, ours.start(source, is_token)) != before).any(-1)
    assert differs.tolist() == [[False, False, True, True], [False] * 4]


@torch.no_grad()
def test_several_targets_of_a_text_go_on_from_the_rows_that_are_chosen() -> None:
    ours = decoder()
    given = encoded(5, 2)
    targets = torch.randn(4, 3, WIDTH)  # two of each text
    state = ours.start(*given).repeat(2)
    ours(targets[:, :1], state)
    ours(targets[:, 1:2], state)
    rows = torch.tensor([1, 0, 3, 3])
    state.reorder(rows)
    last = ours(targets[:, 2:], state)
    texts = torch.cat([targets[rows, :2], targets[:, 2:]], dim=1)
    for row, text in enumerate(texts):
        alone = ours.start(given[0][row // 2 : row // 2 + 1], given[1][row // 2 : row // 2 + 1])
        torch.testing.assert_close(last[row], ours(text[None], alone)[0, 2:])
