"""Steps come in order from the data workers, which end with the last one."""

import itertools
import multiprocessing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from bertlab.api.batch import PackedBatch, pack
from bertlab.data.loader import StepLoader, outlive_sigterm, prepare_sequences
from bertlab.errors import PluginError


def writing(name: str, requires: tuple[str, ...] = ()) -> Any:
    """Return an objective that writes a field."""

    def prepare(sequences: Any, *_: object) -> int:
        sequences.fields[name] = np.zeros(2)
        return 2

    return SimpleNamespace(
        requires=requires, corrupts_input=False, rearranges_input=False, prepare=prepare
    )


def test_an_objective_that_replaces_the_field_of_another_is_refused() -> None:
    sequences: Any = SimpleNamespace(fields={}, counts={})
    objectives = {"a": writing("label"), "b": writing("label")}
    told = "objective 'b' replaces the field 'label', which 'a' wrote"
    with pytest.raises(PluginError, match=told):
        prepare_sequences(sequences, objectives, seed=1, training=True)
    objectives = {"a": writing("label"), "b": writing("label", requires=("a",))}
    sequences.fields = {}
    prepare_sequences(sequences, objectives, seed=1, training=True)
    assert sequences.counts == {"a": 2, "b": 2}


class Steps(Dataset[list[PackedBatch]]):
    """Three steps of two micro-batches."""

    def __getitem__(self, step: int) -> list[PackedBatch]:
        return [pack([[step, part]]) for part in range(2)]

    def __len__(self) -> int:
        return 3


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_who_reads_all_batches_leaves_no_worker_waiting(workers: int) -> None:
    others = multiprocessing.active_children()  # of another test
    rows = DataLoader(Steps(), batch_size=None, num_workers=workers, worker_init_fn=outlive_sigterm)
    loader = StepLoader(rows, 2)
    batches = iter(loader)
    read = [batch.input_ids.tolist() for batch in itertools.islice(batches, len(loader))]
    assert read == [[step, part] for step in range(3) for part in range(2)]
    left = set(multiprocessing.active_children()) - set(others)
    assert not left  # though ``batches`` is not used up
    assert next(batches, None) is None
