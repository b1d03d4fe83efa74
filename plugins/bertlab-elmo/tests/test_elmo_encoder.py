"""ElmoEncoder: the conformance kit, and what is its own."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertlab import ConfigError, EncoderOutput, pack, parameter_depths
from bertlab.testing import conformance
from bertlab_elmo.encoder import ElmoEncoder, reversal_of

SMALL = {"num_hidden_layers": 2, "hidden_size": 16, "max_position_embeddings": 64}
WITHOUT_PROJECTION = SMALL | {"cell_size": None}
WITH_PROJECTION = SMALL | {"cell_size": 12}
BOTH = pytest.mark.parametrize("sizes", [WITHOUT_PROJECTION, WITH_PROJECTION])

test_conformance = conformance(ElmoEncoder, arguments=WITHOUT_PROJECTION)
test_conformance_with_projection = conformance(ElmoEncoder, arguments=WITH_PROJECTION)

SEQUENCES = [[2, 5, 6, 7, 8, 3], [2, 9, 3], [2, 10, 11, 12, 3]]


def encoder(sizes: dict[str, Any]) -> ElmoEncoder:
    torch.manual_seed(1)
    return ElmoEncoder(vocab_size=20, initializer_range=1.0, **sizes).eval()


@torch.no_grad()
def encode(elmo: ElmoEncoder, sequences: list[list[int]]) -> EncoderOutput:
    output: EncoderOutput = elmo(pack(sequences), all_layers=True)
    return output


@BOTH
@pytest.mark.parametrize("layer", [1, 2])
def test_neither_direction_knows_what_the_other_has_read(sizes: dict[str, Any], layer: int) -> None:
    elmo = encoder(sizes)
    before = encode(elmo, [[2, 5, 6, 7, 3]]).all_layers
    after = encode(elmo, [[2, 5, 9, 7, 3]]).all_layers  # the token in the middle
    assert before is not None
    assert after is not None
    forward, backward = (before[layer] != after[layer]).unflatten(1, (2, 8)).any(-1).T.tolist()
    assert forward == [False, False, True, True, True]
    assert backward == [True, True, True, False, False]


@BOTH
def test_states_are_those_of_separate_lstms_over_each_sequence_alone(sizes: dict[str, Any]) -> None:
    """Independent of packing: one sequence at a time, the backward one flipped by hand."""
    elmo = encoder(sizes)
    found = encode(elmo, SEQUENCES).all_layers
    assert found is not None
    expected = [_layers_of(elmo, torch.tensor(each)) for each in SEQUENCES]
    for layer, states in enumerate(found):
        torch.testing.assert_close(states, torch.cat([each[layer] for each in expected]))


@torch.no_grad()
def _layers_of(elmo: ElmoEncoder, ids: Tensor) -> list[Tensor]:
    embedded = elmo.token_projection(elmo.token_embedding(ids))
    stacks = []
    for name, order in (("forward_lstm", 1), ("backward_lstm", -1)):
        states = [embedded if order == 1 else embedded.flip(0)]
        for number, layer in enumerate(elmo.layers):
            read, _ = getattr(layer, name)(states[-1])
            states.append(read + states[-1] if number else read)
        stacks.append([each if order == 1 else each.flip(0) for each in states])
    return [torch.cat(pair, dim=-1) for pair in zip(*stacks, strict=True)]


def test_one_layer_is_torchs_bidirectional_lstm() -> None:
    elmo = encoder({"num_hidden_layers": 1, "hidden_size": 16, "cell_size": None})
    reference = nn.LSTM(8, 8, bidirectional=True)
    layer = elmo.layers[0]
    ours = {"": layer.forward_lstm.state_dict(), "_reverse": layer.backward_lstm.state_dict()}
    reference.load_state_dict(
        {f"{name}{end}": value for end, state in ours.items() for name, value in state.items()}
    )
    ids = SEQUENCES[0]
    with torch.no_grad():
        embedded = elmo.token_projection(elmo.token_embedding(torch.tensor(ids)))
        torch.testing.assert_close(encode(elmo, [ids]).tokens, reference(embedded)[0])


def test_layer_0_is_the_projected_embedding_twice() -> None:
    elmo = encoder(WITHOUT_PROJECTION)
    layers = encode(elmo, SEQUENCES).all_layers
    assert layers is not None
    assert len(layers) == 3
    first, second = layers[0].chunk(2, dim=-1)
    torch.testing.assert_close(first, second)


def test_the_summary_is_what_either_direction_gives_at_its_end() -> None:
    elmo = encoder(WITHOUT_PROJECTION)
    output = encode(elmo, SEQUENCES)
    last, first = [5, 8, 13], [0, 6, 9]
    expected = torch.cat([output.tokens[last, :8], output.tokens[first, 8:]], dim=-1)
    torch.testing.assert_close(output.cls, expected)


def test_the_summary_of_layers_side_by_side_is_that_of_each() -> None:
    output = encode(encoder(WITHOUT_PROJECTION), SEQUENCES)
    layers = output.all_layers
    assert layers is not None
    found = output.summary(torch.cat(layers, dim=-1), output.batch)
    each = [output.summary(layer, output.batch) for layer in layers]
    torch.testing.assert_close(found, torch.cat(each, dim=-1))


def test_every_sequence_is_reversed_in_its_place() -> None:
    batch = pack(SEQUENCES)
    reversal = reversal_of(batch)
    expected = [token for each in SEQUENCES for token in reversed(each)]
    assert batch.input_ids[reversal].tolist() == expected
    assert reversal[reversal].tolist() == list(range(14))


def test_layers_can_be_frozen_and_learn_at_rates_of_their_own() -> None:
    depths = parameter_depths(elmo := encoder(WITHOUT_PROJECTION), "layer_decay")
    named = {name: depths[parameter] for name, parameter in elmo.named_parameters()}
    assert named["token_embedding.weight"] == named["token_projection.weight"] == 3
    assert named["layers.0.forward_lstm.weight_ih_l0"] == 2
    assert named["layers.1.backward_lstm.weight_hh_l0"] == 1
    assert named["pooler.weight"] == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"hidden_size": 15}, "model.encoder.hidden_size: found 15, expected an even number"),
        ({"cell_size": 8}, "model.encoder.cell_size: found 8, expected more than 8"),
        ({"num_hidden_layers": 0}, "model.encoder.num_hidden_layers: found 0, expected 1 or more"),
        ({"hidden_dropout_prob": 1.5}, "found 1.5, expected between 0 and 1"),
    ],
)
def test_wrong_sizes_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        encoder(WITHOUT_PROJECTION | wrong)
