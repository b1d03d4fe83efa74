"""The span head against transformers, and forced to give the gold answer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers import BertForQuestionAnswering

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.examples import Example
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import BertlabError, ConfigError, DataError
from bertlab.tokenizer.files import WordPieceTokenizer
from bertlab_tasks.span import Span
from tests.heads.samples import batch_of, beside_hugging_face, words

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,-()'?"
LETTER_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
LETTER_TOKENIZER = WordPieceTokenizer.from_vocabulary(
    [*LETTER_TOKENS, *(f"##{letter}" for letter in LETTERS)]
)


def row(question: str, context: str, *answers: str) -> Example:
    """A labelled row whose answers are at their first occurrence."""
    starts = [context.index(answer) for answer in answers]
    truth = {"text": list(answers), "answer_start": starts}
    return Example({"question": question, "context": context, "answers": truth}, "dev.json:3")


def changed(labelled: Example, **changes: Any) -> Example:
    """The row with other columns."""
    return Example({**labelled.values, **changes}, labelled.where)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[BertForQuestionAnswering, BertEncoder, Span]:
    """Transformers' model and ours with the same weights."""
    head = Span(doc_stride=6)
    encoder, reference = beside_hugging_face(head, [], BertForQuestionAnswering, tmp_path)
    return reference, encoder, head


def test_logits_loss_and_gradients_equal_transformers(
    pair: tuple[BertForQuestionAnswering, BertEncoder, Span],
) -> None:
    reference, encoder, head = pair
    contexts = [words(33, 1), words(9, 2)]
    rows = [row(words(4, 3), text, " ".join(text.split()[7:9])) for text in contexts]
    batch = batch_of(head, rows, 24)
    assert len(batch) == 5
    output = encoder(batch)
    logits, loss = head.logits(output, batch), head.loss(output, batch)
    assert loss.count == 5
    loss.sum.backward()
    expected_loss = 0.0

    # one window at a time: transformers' softmax would run over padding as well
    for number, (start, end) in enumerate(
        zip(batch.cu_seqlens, batch.cu_seqlens[1:], strict=False)
    ):
        found = reference(
            input_ids=batch.input_ids[None, start:end],
            token_type_ids=batch.token_type_ids[None, start:end],
            start_positions=batch.fields["start_position"][None, number],
            end_positions=batch.fields["end_position"][None, number],
        )
        found.loss.backward()
        expected = torch.stack([found.start_logits[0], found.end_logits[0]], dim=1)
        torch.testing.assert_close(logits[number, : end - start], expected, atol=1e-5, rtol=1e-5)
        assert (logits[number, end - start :] == -torch.inf).all()
        expected_loss += found.loss.item()
    assert loss.sum.item() == pytest.approx(expected_loss, rel=1e-5)
    for name, gradient in reference.qa_outputs.named_parameters():
        ours = head.qa_outputs.get_parameter(name).grad
        torch.testing.assert_close(ours, gradient.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(
        encoder.token_embedding.weight.grad,
        reference.bert.embeddings.word_embeddings.weight.grad,
        atol=1e-5,
        rtol=1e-4,
    )


def test_half_precision_does_not_reach_the_logits(
    pair: tuple[BertForQuestionAnswering, BertEncoder, Span],
) -> None:
    _, encoder, head = pair
    batch = batch_of(head, [row("w1", words(9, 1), "w")], 24)
    output = encoder(batch)
    with torch.autocast("cpu", torch.bfloat16):
        inside = head.logits(output, batch)
    assert inside.dtype == torch.float32
    assert torch.equal(inside, head.logits(output, batch))


def test_rows_out_of_the_loss_leave_it_alone_but_are_answered(
    pair: tuple[BertForQuestionAnswering, BertEncoder, Span],
) -> None:
    _, encoder, head = pair
    kept = row("w1", words(9, 1), "w")
    lost = changed(row("w2", words(9, 2)), answers={"text": ["emu"], "answer_start": [0]})
    alone, both = batch_of(head, [kept], 24), batch_of(head, [kept, lost], 24)
    assert dict(head.notes) == {
        "gold answers that are not at their answer_start": 1,
        "questions left out of the loss: gold answer not found": 1,
    }
    assert both.counts == {"head": 1}
    expected, found = head.loss(encoder(alone), alone), head.loss(encoder(both), both)
    assert (found.count, expected.count) == (1, 1)
    torch.testing.assert_close(found.sum, expected.sum)
    only = batch_of(head, [lost], 24)
    nothing = head.loss(encoder(only), only)
    assert (nothing.count, nothing.sum.item()) == (0, 0.0)
    nothing.sum.backward()
    assert head.merge(lost, head.decode(encoder(only), only))["answer"]


class Forced(Span):
    """Gives the gold positions the highest logits, up to noise."""

    def logits(self, output: EncoderOutput, batch: PackedBatch) -> Tensor:
        logits = torch.full((len(batch), batch.max_seqlen, 2), -torch.inf)
        generator = torch.Generator().manual_seed(len(batch))
        noise = torch.rand(logits.shape, generator=generator)
        logits = torch.where(batch.attention_mask[..., None], noise, logits)
        windows = torch.arange(len(batch))
        logits[windows, batch.fields["start_position"], 0] += 20
        logits[windows, batch.fields["end_position"], 1] += 20
        return logits


def forced_predictions(head: Span, rows: list[Example], length: int) -> list[dict[str, Any]]:
    batch = batch_of(head, rows, length, LETTER_TOKENIZER)
    parts = head.decode(None, batch)  # type: ignore[arg-type]
    numbers = batch.fields["row"].tolist()
    return [
        head.merge(each, [part for part, owner in zip(parts, numbers, strict=True) if owner == n])
        for n, each in enumerate(rows)
    ]


MARKED = [
    "na\u00efve",
    "cafe\u0301",
    "\u00c5",
    "\u0130",
    "STRA\u00dfE",
    "\u0928\u093f",
    "\u2764\ufe0f",
]
OTHERS = [
    "\u65e5\u672c\u8a9e",
    "\ud55c\uad6d",
    "\U0001f600",
    "\U0001f468\u200d\U0001f469",
    "U.S.",
    "(a)",
]
WORDS = st.one_of(st.text("abc", min_size=1, max_size=4), st.sampled_from(MARKED + OTHERS))
SPACE = st.sampled_from([" ", "  ", "\n", "\t", "\u00a0", "\u3000"])


@st.composite
def contexts_and_gold(draw: st.DrawFn) -> tuple[str, int, int]:
    """A context, and the first and last character of some of its words in a row."""
    words = draw(st.lists(WORDS, min_size=1, max_size=14))
    context, borders = draw(st.sampled_from(["", " "])), []
    for word in words:
        borders.append((len(context), len(context) + len(word)))
        context += word + draw(SPACE)
    first = draw(st.integers(0, len(words) - 1))
    last = draw(st.integers(first, min(first + 2, len(words) - 1)))
    return context, borders[first][0], borders[last][1]


def gold_can_be_found(batch: PackedBatch) -> bool:
    """Whether the window that shows most around the first gold token holds the last one too."""
    places = batch.cu_seqlens[:-1] + batch.fields["start_position"]
    return bool(batch.fields["max_context"][places].any())


@given(contexts_and_gold(), st.integers(1, 12), st.booleans())
def test_gold_positions_give_back_the_gold_characters(
    case: tuple[str, int, int], stride: int, unanswerable: bool
) -> None:
    context, start, end = case
    answers = {"text": [context[start:end]], "answer_start": [start]}
    head = Forced(unanswerable=unanswerable, doc_stride=stride, answer_start="strict")
    rows = [changed(row("who?", context), answers=answers)]
    [found] = forced_predictions(head, rows, length=24)
    if gold_can_be_found(batch_of(head, rows, 24, LETTER_TOKENIZER)):
        assert (found["start"], found["end"]) == (start, end)
        assert found["answer"] == context[start:end]


def test_the_best_of_all_windows_wins() -> None:
    context = "ab cd ef gh ij kl mn op qr st uv wx yz 12 34 56"
    head = Forced(doc_stride=8)
    rows = [row("who?", context, gold) for gold in ("ab", "op qr", "56")]
    assert len(batch_of(head, rows, 24, LETTER_TOKENIZER)) == 9
    found = forced_predictions(head, rows, length=24)
    assert [each["answer"] for each in found] == ["ab", "op qr", "56"]
    assert head.score(rows, found) == {"exact_match": 1.0, "f1": 1.0}


def test_answers_keep_to_the_length_and_to_the_context() -> None:
    head = Forced(max_answer_length=3, n_best_size=100)
    rows = [row("ab cd?", "ef gh ij", "ef gh ij")]
    batch = batch_of(head, rows, 24, LETTER_TOKENIZER)
    head.eval()
    [part] = head.decode(None, batch)  # type: ignore[arg-type]
    spans = {(start, end) for start, end, _ in part["spans"]}
    tokens = [(0, 1), (1, 2), (3, 4), (4, 5), (6, 7), (7, 8)]
    assert spans == {
        (tokens[first][0], tokens[last][1])
        for first in range(6)
        for last in range(first, min(6, first + 3))
    }


def test_new_text_is_answered_without_truth(
    pair: tuple[BertForQuestionAnswering, BertEncoder, Span],
) -> None:
    _, encoder, head = pair
    new = Example({"question": "w1 w2", "context": words(40, 1)}, "stdin:1")
    batch = batch_of(head, [new], 24)
    assert set(batch.fields) == {"row", "sequence", "char_start", "char_end", "max_context"}
    with torch.no_grad():
        parts = head.decode(encoder(batch), batch)
    found = head.merge(new, parts)
    assert set(found) == {"answer", "start", "end", "score", "n_best"}
    assert found["answer"] == new.values["context"][found["start"] : found["end"]]
    head.unanswerable = True
    assert set(head.merge(new, parts)) == set(found) | {"null_odds"}


def test_the_null_threshold_is_tuned_and_used() -> None:
    head = Span(unanswerable=True)
    rows = [
        row("a", "ab cd", "ab"),
        row("b", "ab cd", "cd"),
        row("c", "ab cd"),
        row("d", "ab cd"),
    ]
    null_scores = [1.5, 2.0, 3.0, 4.0]
    predictions = [
        head.merge(
            each,
            [
                {"spans": [(0, 2, 1.0)], "null_score": null},
                {"spans": [(3, 5, 0.0)], "null_score": 9.0},
            ],
        )
        for each, null in zip(rows, null_scores, strict=True)
    ]
    assert [each["answer"] for each in predictions] == [""] * 4  # all odds are above 0
    before = head.score(rows, predictions)
    assert (before["f1"], before["best_f1"], before["best_f1_threshold"]) == (0.5, 0.75, 0.5)
    assert head.warning(before) is not None
    head.tune(rows, predictions)
    assert float(head.null_threshold) == 0.5
    assert "null_threshold" in head.state_dict()
    assert [each["answer"] for each in predictions] == ["ab", "", "", ""]
    assert (predictions[0]["start"], predictions[1]["start"]) == (0, None)
    after = head.score(rows, predictions)
    assert list(after) == head.score_names()
    assert after == before | {
        "exact_match": 0.75,
        "f1": 0.75,
        "has_answer_exact_match": 0.5,
        "has_answer_f1": 0.5,
    }
    assert head.warning(after) is None


def test_degenerate_answers_are_complained_about() -> None:
    head = Span()
    assert head.score_names() == ["exact_match", "f1"]
    assert "shares a word" in (head.warning({"exact_match": 0.0, "f1": 0.0}) or "")
    assert head.warning({"exact_match": 0.0, "f1": 0.1}) is None


def test_what_is_cut_or_lost_is_counted() -> None:
    head = Span(max_query_length=3)
    first, *_ = head.encode(
        row("a b c d e", "f g h i j", "f g h i j"), LETTER_TOKENIZER, max_seq_length=10
    )
    assert first.truncated == 2
    assert LETTER_TOKENIZER.decode(first.input_ids) == "[CLS] a b c [SEP] f g h i [SEP]"
    assert dict(head.notes) == {
        "questions cut to max_query_length": 1,
        "answers that no window holds whole (trained to [CLS])": 1,
    }
    plain = Span(unanswerable=True)
    plain.encode(row("a", "b c"), LETTER_TOKENIZER, 10)
    assert not plain.notes


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"context": " \n"}, "dev.json:3: context: found ' \\n', expected a text"),
        ({"question": None}, "dev.json:3: question: found None, expected a text"),
        ({"question": "\u200b"}, "dev.json:3: question: found '\\u200b', expected a text"),
        ({"answers": {"text": [], "answer_start": []}}, "model.head.unanswerable: true"),
        ({"answers": "ab"}, "dev.json:3: answers: found 'ab'"),
        ({"question": "a b c d e f g"}, "7 tokens, [CLS] and two [SEP] leave no room"),
    ],
)
def test_unusable_rows_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as error:
        Span().encode(changed(row("q", "ab cd", "ab"), **changes), LETTER_TOKENIZER, 10)
    assert message in str(error.value)
    assert "dev.json:3" in str(error.value)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"doc_stride": 0}, "model.head.doc_stride: found 0"),
        ({"max_query_length": 0}, "model.head.max_query_length: found 0"),
        ({"max_answer_length": -1}, "model.head.max_answer_length: found -1"),
        ({"n_best_size": 0}, "model.head.n_best_size: found 0"),
        ({"dropout": 1.5}, "model.head.dropout: found 1.5, expected between 0 and 1"),
        ({"answer_start": "guess"}, "model.head.answer_start: found 'guess'"),
    ],
)
def test_settings_are_checked(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as error:
        Span(**settings)
    assert message in str(error.value)
    assert isinstance(error.value, BertlabError)
