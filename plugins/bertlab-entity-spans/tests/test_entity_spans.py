"""EntitySpans: the conformance kit, and what is its own."""

import numpy as np
import pytest
import torch
from bertlab import (
    BertEncoder,
    ConfigError,
    DataError,
    Example,
    Features,
    Labels,
    PackedBatch,
    TaskContext,
    WordPieceTokenizer,
    pack,
)
from bertlab.testing import conformance

from bertlab_entity_spans.entity_spans import EntitySpans, entities_of, select, windows

test_conformance = conformance(EntitySpans)

SENTENCE = ["Bank", "of", "China", "pays", "John", "Smith"]
TAGS = ["I-ORG", "I-ORG", "I-ORG", "O", "I-PER", "I-PER"]
VOCABULARY = [*(word.lower() for word in SENTENCE), "in", "rome", "london", "##land", "eu", "ger"]


TYPES = Labels(("LOC", "ORG", "PER"), (1, 1, 1))


def row_of(words: list[str], tags: list[str] | None = None) -> Example:
    return Example({"words": words} | ({} if tags is None else {"tags": tags}), "eng.train:7")


def built(
    head: EntitySpans, labels: Labels = TYPES
) -> tuple[EntitySpans, WordPieceTokenizer, BertEncoder]:
    """Return the head for three types, a tokenizer, and a tiny encoder."""
    torch.manual_seed(1)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = WordPieceTokenizer.from_vocabulary([*special, *VOCABULARY])
    encoder = BertEncoder(tokenizer.vocab_size, "tiny", hidden_dropout_prob=0.0)
    head.build(TaskContext(encoder, tokenizer, labels=labels))
    return head, tokenizer, encoder


def batch_of(sequences: list[Features]) -> PackedBatch:
    """Return the batch that bertlab makes of encoded sequences."""
    batch = pack([features.input_ids for features in sequences])
    for name in sequences[0].fields:
        batch.fields[name] = torch.tensor([features.fields[name] for features in sequences])
    for name in sequences[0].ragged:
        arrays = [features.ragged[name] for features in sequences]
        batch.fields[name] = torch.from_numpy(np.concatenate(arrays))
        ends = np.cumsum([0, *map(len, arrays)])
        batch.fields[name + "_cu_seqlens"] = torch.from_numpy(ends)
    return batch


def predicted(head: EntitySpans, encoder: BertEncoder, sequences: list[Features], example: Example):
    with torch.no_grad():
        batch = batch_of(sequences)
        return head.merge(example, head.decode(encoder(batch), batch))["entities"]


@pytest.mark.parametrize(
    ("tags", "entities"),
    [
        (TAGS, [(0, 3, "ORG"), (4, 6, "PER")]),
        (["B-ORG", "I-ORG", "O", "B-PER"], [(0, 2, "ORG"), (3, 4, "PER")]),
        (["I-LOC", "B-LOC", "I-LOC"], [(0, 1, "LOC"), (1, 3, "LOC")]),
        (["I-LOC", "I-PER", "O", "I-PER"], [(0, 1, "LOC"), (1, 2, "PER"), (3, 4, "PER")]),
        (["O", "O"], []),
        (["I-LOC-GPE"], [(0, 1, "LOC-GPE")]),
    ],
)
def test_iob1_and_bio_mark_the_same_entities(tags, entities) -> None:
    assert entities_of(row_of(["word"] * len(tags), tags)) == entities


def test_declared_tags_name_the_types() -> None:
    found = entities_of(row_of(SENTENCE, TAGS))
    declared = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER", "B-ORG", "I-ORG")
    labels = Labels.of([kind for _, _, kind in found], declared)
    head, tokenizer, _ = built(EntitySpans(), labels)
    assert head.types == Labels(("LOC", "PER", "ORG"), (0, 1, 1))
    (features,) = head.encode(row_of(SENTENCE, TAGS), tokenizer, 32)
    assert sorted(features.ragged["classes"])[-2:] == [2, 3]  # PER and ORG
    assert "f1/LOC" in head.score_names()


@pytest.mark.parametrize("tag", ["S-PER", "B-", "PER", "", "o"])
def test_a_tag_of_another_scheme_is_an_error(tag: str) -> None:
    with pytest.raises(DataError, match=r"eng\.train:7: column tags: found '.*', expected O, B-"):
        entities_of(row_of(["word"], [tag]))


def test_more_tags_than_words_is_an_error() -> None:
    head, tokenizer, _ = built(EntitySpans())
    with pytest.raises(DataError, match=r"eng\.train:7: column tags: found 3 tags of 2 words"):
        head.encode(row_of(["in", "Rome"], ["O", "I-LOC", "O"]), tokenizer, 16)


@pytest.mark.parametrize(
    ("nested", "expected"),
    [
        # (start, end, score): the best, one within it, one around it, one that crosses it, one apart
        (False, [(2, 5), (8, 9)]),
        (True, [(1, 6), (2, 5), (3, 4), (8, 9)]),
    ],
)
def test_spans_are_taken_by_score_if_they_fit(nested: bool, expected) -> None:
    spans = [(3, 4, 0.6), (4, 7, 0.8), (8, 9, 0.5), (2, 5, 0.9), (1, 6, 0.7)]
    names = ("start", "end", "score")
    chosen = select([dict(zip(names, span, strict=True)) for span in spans], nested)
    assert [(span["start"], span["end"]) for span in chosen] == expected


@pytest.mark.parametrize("nested", [False, True])
def test_hand_made_scores_become_entities(nested: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    head, tokenizer, encoder = built(EntitySpans(nested=nested))
    row = row_of(SENTENCE)
    (features,) = head.encode(row, tokenizer, 16)
    spans = list(zip(features.ragged["starts"], features.ragged["widths"], strict=True))
    assert len(spans) == features.count == 21  # all there are of 6 words
    scores = torch.zeros(len(spans), 4)
    scores[:, 0] = 5.0
    scores[spans.index((0, 2)), 2] = 9.0  # Bank of China: ORG
    scores[spans.index((2, 0)), 1] = 7.0  # China: LOC, within it
    scores[spans.index((2, 1)), 3] = 8.0  # China pays: PER, crosses it
    scores[spans.index((4, 1)), 3] = 6.0  # John Smith: PER
    scores[spans.index((5, 0)), 3] = 4.9  # Smith: below none
    monkeypatch.setattr(head, "logits", lambda output, batch: scores)
    found = predicted(head, encoder, [features], row)
    assert [(e["words"], e["start"], e["end"], e["type"]) for e in found] == [
        (["Bank", "of", "China"], 0, 3, "ORG"),
        *([(["China"], 2, 3, "LOC")] if nested else []),
        (["John", "Smith"], 4, 6, "PER"),
    ]
    assert found[0]["score"] == pytest.approx(np.exp(9) / (np.exp(9) + np.exp(5) + 2))


def test_the_score_is_the_biaffine_form_of_first_and_last_word() -> None:
    head, tokenizer, encoder = built(EntitySpans(max_words=3, dropout=0.0))
    sequences = [
        *head.encode(row_of(["in", "London", "Ger", "Gerland", "Rome"]), tokenizer, 16),
        *head.encode(row_of(SENTENCE), tokenizer, 16),
    ]
    batch = batch_of(sequences)
    output = encoder.eval()(batch)
    scores = head.eval().logits(output, batch)
    form = head.biaffine.weight.view(4, 129, 128)
    bias = head.biaffine.bias.view(4, 129)
    place = 0
    for begin, features in zip(batch.cu_seqlens.tolist(), sequences, strict=False):
        pieces = features.ragged["first_pieces"]
        for start, width in zip(features.ragged["starts"], features.ragged["widths"], strict=True):
            first = head.first(output.tokens[begin + pieces[start]])
            last = head.last(output.tokens[begin + pieces[start + width]])
            last = torch.cat([last, torch.ones(1)])
            expected = torch.einsum("d,ced,e->c", first, form, last) + bias @ last
            torch.testing.assert_close(scores[place], expected)
            place += 1
    assert place == len(scores) == 12 + 15
    assert sequences[0].ragged["first_pieces"].tolist() == [1, 2, 3, 4, 6]  # ger ##land are two


@pytest.mark.parametrize("limit", [1, 2, 5, 8, 11, 16])
def test_each_span_that_fits_is_scored_once_in_some_window(limit: int) -> None:
    head, tokenizer, _ = built(EntitySpans(max_words=4))
    words = [
        ("rome", "gerland", "gerlandland")[n] for n in np.random.default_rng(1).integers(3, size=40)
    ]
    tags = ["B-LOC", "I-LOC", "O", "O"] * 10
    sizes = np.minimum([len(tokenizer.encode(word)) for word in words], limit)
    sequences = head.encode(row_of(words, tags), tokenizer, limit + 2)
    found = [
        (features.fields["offset"] + start, features.fields["offset"] + start + width, kind)
        for features in sequences
        for start, width, kind in zip(
            *(features.ragged[name] for name in ("starts", "widths", "classes")), strict=True
        )
    ]
    expected = [
        (start, end, 1 if start % 4 == 0 and end == start + 1 else 0)
        for start in range(40)
        for end in range(start, min(start + 4, 40))
        if sizes[start : end + 1].sum() <= limit
    ]
    assert sorted(found) == expected
    assert all(len(features.input_ids) <= limit + 2 for features in sequences)
    lost = sum(sizes[n : n + 2].sum() > limit for n in range(0, 40, 4))
    assert head.notes["entities that fit into no window"] == lost


def test_a_span_is_scored_where_most_is_seen_around_it() -> None:
    assert list(windows(np.ones(20, np.int64), 10, 3)) == [(0, 10), (5, 15), (10, 20)]
    head, tokenizer, _ = built(EntitySpans(max_words=3))
    sequences = head.encode(row_of(["rome"] * 20), tokenizer, 12)
    single = [features.ragged["widths"] == 0 for features in sequences]
    starts = [f.ragged["starts"][one] + f.fields["offset"] for f, one in zip(sequences, single)]
    assert [(part.min(), part.max()) for part in starts] == [(0, 7), (8, 12), (13, 19)]


def test_an_entity_of_too_many_words_is_counted_and_missed() -> None:
    head, tokenizer, _ = built(EntitySpans(max_words=2))
    row = row_of(SENTENCE, TAGS)
    (features,) = head.encode(row, tokenizer, 16)
    assert head.notes["entities of more than max_words words"] == 1
    assert np.flatnonzero(features.ragged["classes"]).tolist() == [9]  # John Smith
    john = {"start": 4, "end": 6, "type": "PER", "score": 1.0}
    scores = head.score([row], [{"entities": [john]}])
    assert (scores["precision"], scores["recall"]) == (1.0, 0.5)
    assert scores["f1"] == pytest.approx(2 / 3)
    assert (scores["f1/PER"], scores["f1/ORG"], scores["f1/LOC"]) == (1.0, 0.0, 0.0)


def test_exact_span_and_type_count() -> None:
    head, _, _ = built(EntitySpans())
    rows = [row_of(SENTENCE, TAGS), row_of(["in", "Rome"], ["O", "I-LOC"])]
    spans = [[(0, 3, "PER"), (4, 6, "PER")], [(0, 2, "LOC")]]
    predictions = [
        {"entities": [{"start": start, "end": end, "type": kind} for start, end, kind in every]}
        for every in spans
    ]
    scores = head.score(rows, predictions)
    assert scores["precision"] == scores["recall"] == pytest.approx(1 / 3)
    assert list(scores) == head.score_names()
    # a study: what is written, read by a head that is not built
    written = [
        {**made, "gold": {"tags": row.values["tags"]}}
        for row, made in zip(rows, predictions, strict=True)
    ]
    for name, value in scores.items():
        of_rows = EntitySpans().row_scores(f"dev/{name}", written)
        assert len(of_rows) == 2
        assert sum(of_rows) / 2 == pytest.approx(value)
    assert EntitySpans().row_scores("loss", written) is None


def test_it_learns_a_few_iob1_sentences_by_heart() -> None:
    head, tokenizer, encoder = built(EntitySpans(dropout=0.0))
    rows = [
        row_of(SENTENCE, TAGS),
        row_of(["in", "Rome", "London"], ["O", "I-LOC", "B-LOC"]),
        row_of(["EU", "pays", "China"], ["I-ORG", "O", "I-LOC"]),
        row_of(["of", "in", "pays"], ["O", "O", "O"]),
    ]
    batch = batch_of([features for row in rows for features in head.encode(row, tokenizer, 16)])
    optimizer = torch.optim.AdamW([*encoder.parameters(), *head.parameters()], lr=2e-3)
    for _ in range(60):
        optimizer.zero_grad()
        loss = head.loss(encoder(batch), batch)
        (loss.sum / loss.count).backward()
        optimizer.step()
    parts = head.eval().decode(encoder.eval()(batch), batch)
    predictions = [head.merge(row, [part]) for row, part in zip(rows, parts, strict=True)]
    assert head.score(rows, predictions)["f1"] == 1.0


def test_what_is_no_entity_weighs_less_if_asked() -> None:
    head, tokenizer, encoder = built(EntitySpans(dropout=0.0))
    light, _, _ = built(EntitySpans(dropout=0.0, none_weight=0.25))
    batch = batch_of(head.encode(row_of(["in", "of", "pays"], ["O"] * 3), tokenizer, 16))
    output = encoder.eval()(batch)
    full, part = head.loss(output, batch), light.loss(output, batch)
    torch.testing.assert_close(part.sum, full.sum / 4)
    assert part.count == full.count == 6


@pytest.mark.parametrize(
    "arguments", [{"max_words": 0}, {"span_size": 0}, {"none_weight": 0.0}, {"dropout": 1.0}]
)
def test_an_argument_out_of_range_names_its_key(arguments) -> None:
    (name,) = arguments
    with pytest.raises(ConfigError, match=f"model.head.{name}: found"):
        EntitySpans(**arguments)
