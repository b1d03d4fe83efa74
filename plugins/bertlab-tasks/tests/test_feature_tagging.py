"""The BiLSTM over fixed features, against torch's on one sentence at a time."""

import pytest
import torch

from bertlab.errors import ConfigError
from bertlab_tasks.feature_tagging import FeatureTagging, WeightedSum
from tests.checkpoints.peers import TOKENIZER
from tests.heads.samples import batch_of, built_on_encoder, rows_of

ROWS = rows_of(
    {"words": ["w1", "w2.w3.w4", "w5", "w6-w7"], "tags": ["B-PER", "I-PER", "O", "B-LOC"]},
    {"words": ["w8.w9"], "tags": ["O"]},
    {"words": [f"w{n}" for n in range(30)], "tags": ["O"] * 29 + ["B-LOC"]},
)
TABLE_7 = {
    "embeddings": ({"layers": [0]}, 32),
    "second-to-last": ({"layers": [-2]}, 32),
    "last": ({"layers": [-1]}, 32),
    "weighted-sum-last-four": ({"layers": [-4, -3, -2, -1], "combine": "weighted_sum"}, 32),
    "concat-last-four": ({}, 128),
    "weighted-sum-all": ({"layers": [1, 2, 3], "combine": "weighted_sum"}, 32),
    "sum-last-two": ({"layers": [-2, -1], "combine": "sum"}, 32),
}


def built(hidden_size=8, **arguments):
    head, encoder = built_on_encoder(FeatureTagging(hidden_size=hidden_size, **arguments), ROWS)
    return head.eval(), encoder.eval()


@pytest.mark.parametrize(("arguments", "width"), TABLE_7.values(), ids=TABLE_7)
def test_the_rows_of_table_7_train(arguments, width):
    head, encoder = built(**arguments)
    assert (head.lstm.input_size, head.lstm.num_layers, head.lstm.bidirectional) == (width, 2, True)
    batch = batch_of(head, ROWS)
    loss = head.loss(encoder(batch, all_layers=True), batch)
    loss.sum.backward()
    assert loss.count == batch.counts["head"] == 35
    assert all(parameter.grad is not None for parameter in head.parameters())


def test_head_says_what_it_needs_of_the_run():
    head, _ = built()
    assert not head.trains_encoder
    assert head.reads_all_layers
    assert head.huggingface is None
    assert head.monitor == ("f1", "max")


def test_default_is_the_papers_size():
    head = FeatureTagging()
    assert (head.layers, head.combine, head.hidden_size) == ((-4, -3, -2, -1), "concat", 768)


@pytest.mark.parametrize("order", [[0, 1, 2], [2, 0, 1], [1, 2, 0]])
def test_logits_equal_torchs_lstm_on_each_sentence_alone(order):
    head, encoder = built(layers=[-1, 1], combine="concat")
    rows = [ROWS[number] for number in order]
    batch = batch_of(head, rows)
    output = encoder(batch, all_layers=True)
    expected = []
    for row in rows:
        alone = batch_of(head, [row])
        layers = encoder(alone, all_layers=True).all_layers
        firsts, place = [], 1
        for word in row.values["words"]:
            firsts.append(place)
            place += len(TOKENIZER.encode(word))
        features = torch.cat([layers[-1][firsts], layers[1][firsts]], dim=-1)
        expected.append(head.classifier(head.lstm(features[:, None])[0][:, 0]))
    torch.testing.assert_close(
        head.logits(output, batch), torch.cat(expected), rtol=1e-5, atol=1e-5
    )


def test_lstm_reads_all_words_of_a_window_and_no_others():
    head, encoder = built(layers=[0])  # embeddings: only the LSTM sees other words
    changed = rows_of({"words": [f"w{n}" for n in range(29)] + ["w50"]})
    before, after = (batch_of(head, rows, 16) for rows in (ROWS[2:], changed))
    logits = [head.logits(encoder(batch, all_layers=True), batch) for batch in (before, after)]
    words = before.fields["word"][before.fields["is_predicted"]]
    differing = set(words[(logits[0] != logits[1]).any(-1)].tolist())
    last = slice(before.cu_seqlens[-2], before.cu_seqlens[-1])
    in_last = before.fields["word"][last][before.fields["is_predicted"][last]].tolist()
    assert differing == set(in_last) != {29}
    context = before.fields["word"][last][~before.fields["is_predicted"][last]]
    start = int(context[context >= 0].min())
    changed = rows_of(
        {"words": [*(f"w{n}" for n in range(start)), "w50", *ROWS[2].values["words"][start + 1 :]]}
    )
    after = batch_of(head, changed, 16)
    now = head.logits(encoder(after, all_layers=True), after)
    differing = set(words[(logits[0] != now).any(-1)].tolist())
    assert differing >= set(in_last)  # the changed word is only context there


def test_long_sentences_and_decoding_are_those_of_tagging():
    head, encoder = built()
    batch = batch_of(head, ROWS, 12)
    parts = head.decode(encoder(batch, all_layers=True), batch)
    numbers = batch.fields["row"].tolist()
    for number, row in enumerate(ROWS):
        own = [part for part, of in zip(parts, numbers, strict=True) if of == number]
        assert len(head.merge(row, own)["tags"]) == len(row.values["words"])
        assert sum(len(part["words"]) for part in own) == len(row.values["words"])


def test_dropout_is_applied_in_training_only():
    head, encoder = built()
    batch = batch_of(head, ROWS)
    output = encoder(batch, all_layers=True)
    assert torch.equal(head.logits(output, batch), head.logits(output, batch))
    head.train()
    assert not torch.equal(head.logits(output, batch), head.logits(output, batch))


@pytest.mark.parametrize("layers", [[4], [-5], [-1, 12]])
def test_a_layer_that_the_encoder_lacks_is_refused(layers):
    with pytest.raises(ConfigError, match=r"model\.head\.layers: found -?\d+, .* 3 layers"):
        built(layers=layers)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"hidden_size": 0}, "hidden_size: found 0"),
        ({"lstm_dropout": -0.1}, "lstm_dropout: found -0.1"),
    ],
)
def test_arguments_out_of_range_are_refused(arguments, message):
    with pytest.raises(ConfigError, match=message):
        FeatureTagging(**arguments)


def test_no_layer_is_refused():
    with pytest.raises(ConfigError, match="found no layer"):
        built(layers=[])


def test_weighted_sum_starts_as_the_mean_and_follows_its_weights():
    layers = [torch.full((2, 3), float(10**n)) for n in range(3)]
    mix = WeightedSum(3)
    assert torch.allclose(mix(layers), torch.full((2, 3), 37.0))
    with torch.no_grad():
        mix.weights.copy_(torch.tensor([0.0, 2.0, -1.0]))
        mix.scale.fill_(3.0)
    shares = torch.tensor([0.0, 2.0, -1.0]).exp()
    expected = 3 * (shares * torch.tensor([1.0, 10.0, 100.0])).sum() / shares.sum()
    assert torch.allclose(mix(layers), expected.expand(2, 3))
    mix(layers).sum().backward()
    assert mix.weights.grad.abs().min() > 0
    assert mix.scale.grad is not None
