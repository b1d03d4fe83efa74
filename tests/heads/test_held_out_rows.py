"""Rows of one text are on one side of a held-out split, whatever else they hold."""

import pytest

from bertlab.api.examples import LabelledExamples
from bertlab.api.task import Head
from bertlab.data.examples.splits import hold_out
from bertlab.heads.sentences import SentencePair
from bertlab_tasks.span import Span
from tests.heads.samples import rows_of


@pytest.mark.parametrize(("head", "column"), [(SentencePair, "text_a"), (Span, "context")])
def test_rows_that_share_a_text_stay_on_one_side(head: type[Head], column: str) -> None:
    assert head.splits_by == column
    values = [{each.name: f"{each.name} {n}" for each in head.columns} for n in range(60)]
    shared = [row | {column: f"text {n // 3}"} for n, row in enumerate(values)]
    train = LabelledExamples(rows_of(*shared))
    sides = hold_out(train, 0.2, head.columns, head.splits_by)
    assert [len(side.rows) for side in sides] == [48, 12]
    kept, held = ({row.values[column] for row in side.rows} for side in sides)
    assert not kept & held
