"""Runs that differ in their objectives only see the same text, layout, masks and order.

What a difference between "MLM" and "MLM + NSP" can be put down to then is the loss alone.
"""

import math
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from bertlab.api.batch import PackedBatch
from bertlab.api.task import TaskContext
from bertlab.data.pretraining import PretrainingData
from bertlab.data.sampler import load_sampler
from bertlab.encoders.bert import BertEncoder
from bertlab.model.build import build_tasks
from bertlab.plugins.index import installed

EPOCHS = 2
ACCUMULATE = 2
BATCH_SIZE = 90
FORMATS: list[str] = list(installed("input_format"))
PAIRS = [name for name in FORMATS if load_sampler(name).has_pairs]
LAYOUT = ("token_type_ids", "position_ids", "cu_seqlens")


class Run:
    """The data of a pre-training run, as Lightning's trainer would ask for it."""

    def __init__(
        self,
        objectives: list[str],
        corpus: Path,
        cache: Path,
        input_format: str,
        workers: int,
        seed: int = 3,
    ) -> None:
        self.data = PretrainingData(
            corpus=str(corpus),
            corpus_format="sentences",
            vocab_size=300,
            input_format=input_format,
            max_seq_length=64,
            batch_size=BATCH_SIZE,
            validation_fraction=0.2,
            validation_sequences=BATCH_SIZE,
            num_workers=workers,
            cache_dir=str(cache),
            seed=seed,
        )
        self.trainer = SimpleNamespace(
            accumulate_grad_batches=ACCUMULATE,
            global_rank=0,
            world_size=1,
            global_step=0,
            max_steps=10,
            max_epochs=-1,
            strategy=SimpleNamespace(root_device=torch.device("cpu")),
            limit_train_batches=1.0,
        )
        self.data.trainer = self.trainer  # type: ignore[assignment]
        tasks = build_tasks({"objectives": dict.fromkeys(objectives)})
        tokenizer = self.data.load_tokenizer()
        self.data.connect(tokenizer, tasks)
        self.data.prepare("fit")
        causal = objectives == ["clm"]
        encoder = BertEncoder(tokenizer.vocab_size, "tiny", hidden_size=8, causal=causal)
        for task in tasks.values():
            task.build(TaskContext(encoder, tokenizer))

    def batches(self) -> Iterator[tuple[str, PackedBatch]]:
        """Every batch of two epochs, each followed by an evaluation, with where it stands."""
        for epoch in range(EPOCHS):
            for number, batch in enumerate(self.data.train_dataloader()):
                yield f"epoch {epoch}, batch {number}", batch
                self.trainer.global_step += number % ACCUMULATE
            for number, batch in enumerate(self.data.val_dataloader()):
                yield f"evaluation {epoch}, batch {number}", batch


def assert_same(one: torch.Tensor, other: torch.Tensor, where: str) -> None:
    assert one.dtype == other.dtype, where
    assert torch.equal(one, other), where


@pytest.mark.first_slow
@pytest.mark.parametrize("input_format", PAIRS)
def test_next_sentence_prediction_changes_nothing_that_the_encoder_sees(
    input_format: str, corpus_file: Path, cache_dir: Path
) -> None:
    runs = [
        Run(objectives, corpus_file, cache_dir, input_format, workers)
        for objectives, workers in (
            *product((["mlm"], ["mlm", "nsp"]), (0, 2)),
            (["nsp", "mlm"], 0),
        )
    ]
    seen: list[str] = []
    for (where, batch), *others in zip(*(run.batches() for run in runs), strict=True):
        seen.append(where)
        assert {"mlm_positions", "mlm_labels", "next_sentence_label"} <= set(batch.fields)
        for place, other in others:
            assert place == where
            assert other.max_seqlen == batch.max_seqlen
            for name in ("input_ids", *LAYOUT):
                assert_same(getattr(batch, name), getattr(other, name), f"{where}: {name}")
            assert set(other.fields) == set(batch.fields)
            for name, field in batch.fields.items():
                assert_same(field, other.fields[name], f"{where}: {name}")
            assert other.counts["mlm"] == batch.counts["mlm"]
            assert other.window_counts["mlm"] == batch.window_counts["mlm"]
    steps = math.ceil(len(runs[0].data.train_sampler or ()) / BATCH_SIZE)
    assert steps > 2
    for kind, number in (("epoch", steps * ACCUMULATE), ("evaluation", 2)):
        for epoch in range(EPOCHS):
            assert [where for where in seen if where.startswith(f"{kind} {epoch},")] == [
                f"{kind} {epoch}, batch {batch}" for batch in range(number)
            ]


@pytest.mark.first_fast
@pytest.mark.parametrize("input_format", FORMATS)
def test_a_left_to_right_run_reads_the_text_that_a_masked_one_does(
    input_format: str, corpus_file: Path, cache_dir: Path
) -> None:
    masked, causal = (
        Run([name], corpus_file, cache_dir, input_format, workers=0) for name in ("mlm", "clm")
    )
    corrupted = 0
    for (where, one), (place, other) in zip(masked.batches(), causal.batches(), strict=True):
        assert place == where
        for name in LAYOUT:
            assert_same(getattr(one, name), getattr(other, name), f"{where}: {name}")
        text = one.input_ids.clone()
        text[one.fields["mlm_positions"]] = one.fields["mlm_labels"]
        assert_same(text, other.input_ids, where)
        corrupted += int((text != one.input_ids).sum())
    assert corrupted > 0


@pytest.mark.first_fast
@pytest.mark.parametrize("input_format", FORMATS)
def test_epochs_and_seeds_do_differ_but_evaluations_do_not(
    input_format: str, corpus_file: Path, cache_dir: Path
) -> None:
    first, second = (
        dict(Run(["mlm"], corpus_file, cache_dir, input_format, workers=0, seed=seed).batches())
        for seed in (3, 4)
    )
    for one, other in (
        (first["epoch 0, batch 0"], first["epoch 1, batch 0"]),
        (first["epoch 0, batch 0"], second["epoch 0, batch 0"]),
    ):
        assert not torch.equal(one.input_ids[:100], other.input_ids[:100])
    for number, run in product(range(EPOCHS), (first, second)):
        again = run[f"evaluation {number}, batch 0"]
        assert_same(again.input_ids, first["evaluation 0, batch 0"].input_ids, "evaluation")
