"""Rows to predict: read ahead, put together by length, and each in one batch."""

from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bertlab.api.examples import Example, Features
from bertlab.api.task import Head
from bertlab.api.tokenizer import Tokenizer
from bertlab.data.inputs import PREDICT_ROWS, InputRows, input_texts
from bertlab.errors import DataError


def encode(row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
    """Make sequences of the lengths that a row names."""
    del tokenizer, max_seq_length
    return [
        Features([1] * length, [0] * length, fields={}, count=1) for length in row.values["lengths"]
    ]


def input_rows(lengths: list[list[int]], together: bool, read_ahead: int) -> InputRows:
    head: Any = SimpleNamespace(
        encode=encode, columns=(), notes=Counter(), keeps_examples_together=together
    )
    rows = iter([Example({"lengths": each}, f"line {n}") for n, each in enumerate(lengths)])
    tokenizer: Any = SimpleNamespace(vocab_size=1000)
    return InputRows(rows, cast("Head", head), "head", tokenizer, 99, read_ahead)


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(1, 9), max_size=3), max_size=3 * PREDICT_ROWS),
    st.booleans(),
    st.integers(1, 3),
)
def test_every_sequence_is_in_the_one_batch_of_its_row(
    lengths: list[list[int]], together: bool, read_ahead: int
) -> None:
    rows = input_rows(lengths, together, read_ahead)
    found: dict[int, list[int]] = {}
    for (batch,) in rows:
        numbers = batch.fields["row"].tolist()
        assert numbers == sorted(numbers)
        assert not found.keys() & set(numbers)
        for number, length in zip(numbers, batch.lengths.tolist(), strict=True):
            found.setdefault(number, []).append(length)
    assert rows.taken_in == len(lengths)
    assert found == {number: each for number, each in enumerate(lengths) if each}
    for number, each in enumerate(lengths):
        assert rows.has_sequences(number) == bool(each)
        assert rows.take(number).values["lengths"] == each
        assert not rows.has_sequences(number)


def test_rows_of_one_length_are_predicted_together() -> None:
    lengths = [[5], [50]] * PREDICT_ROWS
    batches = [batch for (batch,) in input_rows(lengths, together=False, read_ahead=2)]
    assert [batch.max_seqlen for batch in batches] == [50, 5]
    assert [len(batch.input_ids) for batch in batches] == [50 * PREDICT_ROWS, 5 * PREDICT_ROWS]


@pytest.mark.parametrize("read_ahead", [1, 3])
def test_no_more_is_read_than_was_said(read_ahead: int) -> None:
    rows = input_rows([[3]] * 200, together=False, read_ahead=read_ahead)
    next(iter(rows))
    assert rows.taken_in == read_ahead * PREDICT_ROWS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('text\na b\n""\n', "is empty, expected a text; correct the row or remove it"),
        (
            "txt,n\na b,c\n",
            "no column 'text'; did you mean 'txt'?; columns there: 'txt', 'n'; call",
        ),
        ("text,n\na,1\nb\n", "mend the row; write the file in another form"),
        ('text,n\n"a,1\n', "write the file in another form, and a file separated by tabs"),
        ("a,b;c\n" * 3, "comma and semicolon part the first lines into 2 cells each"),
    ],
)
def test_rows_of_an_objective_advise_no_setting_of_a_head(
    tmp_path: Path, content: str, message: str
) -> None:
    file = tmp_path / "new.csv"
    file.write_text(content, "utf-8")
    with pytest.raises(DataError) as error:
        list(input_texts(None, None, str(file)))
    assert message in str(error.value)
    assert "data." not in str(error.value)
