"""Seq2Seq: the conformance kit, and what is its own."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from bertlab import (
    BertEncoder,
    ConfigError,
    DataError,
    EncoderOutput,
    Example,
    PackedBatch,
    TaskContext,
    WordPieceTokenizer,
    encode_examples,
)
from bertlab.testing import conformance
from bertlab_seq2seq.head import Seq2Seq

SMALL: dict[str, Any] = {"num_hidden_layers": 2, "num_attention_heads": 2, "max_target_length": 8}

test_conformance = conformance(Seq2Seq, arguments=SMALL)
test_conformance_with_a_beam = conformance(Seq2Seq, arguments=SMALL | {"beam_size": 3})

TOKENIZER = WordPieceTokenizer.from_vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
)
ROWS = [("a b c", "c b a"), ("d e", "e d"), ("f g h a", "a h g f"), ("b", "b"), ("c e g", "g e c")]


def row(source: str, target: str | None = None) -> Example:
    values = {"source": source} | ({} if target is None else {"target": target})
    return Example(values, "rows:1")


def built(**arguments: Any) -> tuple[BertEncoder, Seq2Seq]:
    torch.manual_seed(0)
    encoder = BertEncoder(
        TOKENIZER.vocab_size,
        num_hidden_layers=1,
        hidden_size=32,
        num_attention_heads=2,
        max_position_embeddings=16,
        initializer_range=0.2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    head = Seq2Seq(**(SMALL | {"label_smoothing": 0.0} | arguments))
    head.build(TaskContext(encoder, TOKENIZER))
    return encoder.eval(), head.eval()


def batch_of(head: Seq2Seq, rows: list[tuple[str, str]]) -> PackedBatch:
    encoded = encode_examples(head, [row(*each) for each in rows], TOKENIZER, 16)
    return encoded.batch(np.arange(len(rows)), "seq2seq")[0]


def test_a_row_is_its_source_and_its_target_with_an_end() -> None:
    (features,) = built()[1].encode(row("a b", "b a"), TOKENIZER, 16)
    assert TOKENIZER.decode(features.input_ids) == "[CLS] a b [SEP]"
    assert TOKENIZER.decode(features.ragged["target_ids"]) == "b a [SEP]"
    assert features.count == 3
    assert features.truncated == 0


def test_what_does_not_fit_is_cut_and_counted() -> None:
    _, head = built(max_target_length=3)
    (features,) = head.encode(row("a b c d", "d c b a"), TOKENIZER, 5)
    assert TOKENIZER.decode(features.input_ids) == "[CLS] a b c [SEP]"
    assert features.truncated == 1
    assert TOKENIZER.decode(features.ragged["target_ids"]) == "d c [SEP]"
    head.encode(row("a", "a b"), TOKENIZER, 5)  # fits with its end
    head.encode(row("a", "ü"), TOKENIZER, 5)
    assert head.notes == {
        "target cut to 3 tokens": 1,
        "target has a word that the vocabulary lacks": 1,
    }


def test_rows_without_text_are_refused_and_new_text_needs_no_target() -> None:
    _, head = built()
    for source, target in (("", "a"), ("a", " ")):
        with pytest.raises(DataError, match=r"rows:1: (source|target): found"):
            head.encode(row(source, target), TOKENIZER, 16)
    (features,) = head.encode(row("a"), TOKENIZER, 16)
    assert not features.ragged


def test_the_loss_is_that_of_each_token_after_the_true_ones() -> None:
    """Each text alone, and each of its tokens after a prefix that is read anew."""
    encoder, head = built()
    batch = batch_of(head, ROWS)
    with torch.no_grad():
        loss = head.loss(encoder(batch), batch)
        expected, best = 0.0, []
        for each in ROWS:
            output = encoder(batch_of(head, [each]))
            target = [*TOKENIZER.encode(each[1]), TOKENIZER.sep_id]
            for place, token in enumerate(target):
                prefix = torch.tensor([[TOKENIZER.cls_id, *target[:place]]])
                scores = head.logits(prefix, head.begin(output))[0, -1].log_softmax(-1)
                expected -= scores[token].item()
                best.append(int(scores.argmax()))
    assert loss.count == sum(len(target.split()) + 1 for _, target in ROWS)
    assert loss.sum.item() == pytest.approx(expected, rel=1e-5)
    assert loss.preds.tolist() == best
    assert loss.target.tolist() == batch.fields["target_ids"].tolist()


def test_labels_are_smoothed_in_training_only() -> None:
    encoder, head = built(label_smoothing=0.3)
    batch = batch_of(head, ROWS)
    output = encoder(batch)
    plain = head.loss(output, batch).sum
    smoothed = head.train().loss(output, batch).sum
    lengths = batch.fields["target_ids_cu_seqlens"].diff()
    uniform = torch.zeros(())
    for number, (_, target) in enumerate(ROWS):
        ids = [TOKENIZER.cls_id, *TOKENIZER.encode(target)]
        one = EncoderOutput(
            output.tokens[batch.cu_seqlens[number] : batch.cu_seqlens[number + 1]],
            batch_of(head, [ROWS[number]]),
            pooler=torch.nn.Identity(),
        )
        scores = head.logits(torch.tensor([ids]), head.begin(one))[0].log_softmax(-1)
        assert len(scores) == lengths[number]
        uniform = uniform - scores.mean(-1).sum()
    torch.testing.assert_close(smoothed, 0.7 * plain + 0.3 * uniform)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1]])
@torch.no_grad()
def test_greedy_decoding_is_the_best_next_token_again_and_again(
    rows: list[tuple[str, str]],
) -> None:
    encoder, head = built()
    batch = batch_of(head, rows)
    found = [each["text"] for each in head.decode(encoder(batch), batch)]
    expected = []
    for each in rows:
        ids = [TOKENIZER.cls_id]
        while len(ids) <= 8 and ids[-1] != TOKENIZER.sep_id:
            state = head.begin(encoder(batch_of(head, [each])))
            scores = head.logits(torch.tensor([ids]), state)[0, -1]
            scores[TOKENIZER.special_ids[TOKENIZER.special_ids != TOKENIZER.sep_id]] = -math.inf
            ids.append(int(scores.argmax()))
        expected.append(TOKENIZER.decode(token for token in ids[1:] if token != TOKENIZER.sep_id))
    assert found == expected


@pytest.mark.parametrize("beam_size", [1, 4])
def test_it_learns_to_reverse_and_writes_what_it_learned(beam_size: int) -> None:
    encoder, head = built(beam_size=beam_size)
    batch = batch_of(head, ROWS)
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=3e-3)
    for _ in range(80):
        optimizer.zero_grad()
        loss = head.loss(encoder(batch), batch)
        (loss.sum / loss.count).backward()
        optimizer.step()
    with torch.no_grad():
        written = [each["text"] for each in head.decode(encoder(batch), batch)]
    assert written == [target for _, target in ROWS]


def test_the_encoders_embedding_is_read_written_and_not_owned() -> None:
    encoder, head = built()
    assert not any("embedding" in name for name, _ in head.named_parameters())
    batch = batch_of(head, ROWS)
    output = encoder(batch)
    output.tokens = output.tokens.detach()
    head.loss(output, batch).sum.backward()
    assert encoder.token_embedding.weight.grad is not None
    assert (encoder.token_embedding.weight.grad != 0).any(-1).all()


def test_scores_are_of_whole_texts_as_the_tokenizer_has_them() -> None:
    _, head = built()
    rows = [row("A b", "B  A"), row("a", "b a"), row("c", "c"), row("d", "e f g h")]
    scores = head.score(rows, [{"text": text} for text in ("b a", "b", "c", "e f g h")])
    assert list(scores) == head.score_names()
    characters = 3 + 3 + 1 + 7
    assert scores == pytest.approx(
        {
            "exact_match": 0.75,
            "majority_exact_match": 0.5,
            "char_error_rate": 2 / characters,  # " a" lacks
            "copy_char_error_rate": (2 + 2 + 0 + 7) / characters,
        }
    )


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"num_hidden_layers": 0}, "num_hidden_layers: found 0, expected 1 or more"),
        ({"beam_size": 0}, "beam_size: found 0, expected 1 or more"),
        ({"max_target_length": 1}, "max_target_length: found 1, expected 2 or more"),
        ({"label_smoothing": 1.0}, "label_smoothing: found 1.0, expected 0 to below 1"),
        ({"dropout": -0.1}, "dropout: found -0.1, expected between 0 and 1"),
        ({"num_attention_heads": 5}, "5 heads do not divide the encoder's hidden_size 32"),
    ],
)
def test_wrong_arguments_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        built(**wrong)
