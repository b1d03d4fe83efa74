"""Encoded rows: fields of every shape arrive where their sequence is."""

import re
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertlab.api.examples import Column, Example, Features
from bertlab.data.examples.encoded import ExampleStream, collate, encode_examples
from bertlab.data.loader import StepDataset
from bertlab.data.run_length import StepSizes
from bertlab.errors import PluginError
from bertlab.testing import batch_of

LENGTHS, TARGETS = [4, 3, 6, 3], [2, 0, 5, 1]


def features() -> list[Features]:
    return [
        Features(
            input_ids=[10 * number + place for place in range(length)],
            token_type_ids=[0] * length,
            fields={"label": number, "score": number / 2, "tags": np.full(length, number)},
            ragged={"target_ids": 100 * number + np.arange(target)},
        )
        for number, (length, target) in enumerate(zip(LENGTHS, TARGETS, strict=True))
    ]


@pytest.mark.parametrize("units", [[0, 1, 2, 3], [2], [3, 0, 2], [1]])
def test_fields_follow_their_sequence(units: list[int]) -> None:
    rows = [Example({}, f"row {number}") for number in range(4)]
    encoded = collate(features(), rows, np.arange(4), together=False)
    batch, counts = encoded.batch(np.array(units), "head")
    assert batch.fields["label"].tolist() == units
    assert batch.fields["score"].tolist() == [number / 2 for number in units]
    assert batch.fields["tags"].tolist() == [n for n in units for _ in range(LENGTHS[n])]
    begins = batch.fields["target_ids_cu_seqlens"].tolist()
    assert len(begins) == len(units) + 1
    for place, number in enumerate(units):
        found = batch.fields["target_ids"][begins[place] : begins[place + 1]].tolist()
        assert found == [100 * number + each for each in range(TARGETS[number])]
    assert counts == {"head": len(units)}


def test_truth_that_some_lack_is_left_out() -> None:
    made = features()
    del made[1].ragged["target_ids"], made[2].fields["label"]
    encoded = collate(made, [Example({}, "r")] * 4, np.arange(4), together=False)
    batch, _ = encoded.batch(np.arange(4), "head")
    assert {"label", "target_ids", "target_ids_cu_seqlens"}.isdisjoint(batch.fields)
    assert "tags" in batch.fields


def test_batch_of_is_what_a_run_makes_of_features() -> None:
    batch = batch_of(features())
    expected, _ = collate(features(), [Example({}, "r")] * 4, np.arange(4), together=False).batch(
        np.arange(4), "head"
    )
    assert batch.input_ids.tolist() == expected.input_ids.tolist()
    assert batch.fields.keys() == expected.fields.keys()


@pytest.mark.parametrize(("rows", "steps"), [(1001, 32), (3200, 100), (103, 4)])
def test_steps_grouped_by_length_have_sequences_of_one_length(rows: int, steps: int) -> None:
    lengths = np.random.default_rng(0).integers(3, 100, rows)
    made = [Features(input_ids=[1] * length, token_type_ids=[0] * length) for length in lengths]
    encoded = collate(made, [Example({}, "row")] * rows, np.arange(rows), together=False)

    def padded(grouped: int | None) -> tuple[float, list[list[int]]]:
        stream = ExampleStream(encoded, "head", seed=1, training=True, grouped_steps=grouped)
        dataset = StepDataset(stream, StepSizes(1), steps_per_epoch=steps)
        epochs = [[dataset[epoch * steps + i] for i in range(steps)] for epoch in (0, 1)]
        found = [[np.diff(batch.cu_seqlens) for (batch,) in epoch] for epoch in epochs]
        for epoch in found:  # visits each row once
            assert sorted(np.concatenate(epoch)) == sorted(lengths)
        padding = sum(len(each) * max(each) - sum(each) for each in found[0])
        return padding / lengths.sum(), [[int(max(each)) for each in epoch] for epoch in found]

    share, longest = padded(steps)
    assert share < padded(None)[0] / 3
    assert longest[0] != longest[1]  # in an order of each epoch's own


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (Features([1, 2, 3], [0] * 4), "have 4 token_type_ids for 3 input_ids"),
        (Features([1, 2], [0] * 2, {"tags": np.zeros(3)}), "have 3 tags for 2 input_ids"),
        (Features([1, 9], [0] * 2), "have 2 input_ids, from 1 to 9; expected 1 to 4 ids below 9"),
        (Features([1] * 5, [0] * 5), "have 5 input_ids, from 1 to 1; expected 1 to 4 ids"),
        (Features([], []), "have 0 input_ids"),
        (Features([1], [0], {"row": 3}), "a field 'row', which is a name of bertlab's own"),
    ],
)
def test_sequences_that_would_spoil_others_are_refused(made: Features, words: str) -> None:
    head: Any = SimpleNamespace(encode=lambda *_: [made], keeps_examples_together=False)
    tokenizer: Any = SimpleNamespace(vocab_size=9)
    with pytest.raises(PluginError, match=f"row 7: the head's Features .*{re.escape(words)}"):
        encode_examples(head, [Example({}, "row 7")], tokenizer, 4)


def test_an_unknown_kind_of_column_is_refused() -> None:
    with pytest.raises(PluginError, match=r"found kind 'text_s'; did you mean 'texts'"):
        Column("words", "text_s")  # type: ignore[arg-type]
