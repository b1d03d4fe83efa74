"""The module: losses against Hugging Face's, accumulation, and what does not go together."""

from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import BertForPreTraining

from bertlab.api.batch import PackedBatch, PackedSequences
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Objective, TaskContext
from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.corpus.prepare import prepare
from bertlab.data.corpus.store import TokenStore
from bertlab.data.loader import SequenceStream, StepDataset, StepSampler
from bertlab.data.module import limited_steps
from bertlab.data.run_length import StepSizes
from bertlab.data.sampler import load_sampler
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import ConfigError, PluginError
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.objectives.language_model import CausalLM
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.tokenizer.files import load_tokenizer
from tests.checkpoints.peers import export_huggingface
from tests.conftest import Command


@pytest.fixture(scope="module")
def store(
    tiny_run: Path, corpus_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> TokenStore:
    tokenizer = load_tokenizer(tiny_run / "tokenizer")
    output = tmp_path_factory.mktemp("store") / "topics"
    return prepare(Corpus([str(corpus_file)], "sentences"), tokenizer, output)


def make_stream(store: TokenStore, objectives: dict[str, Objective]) -> SequenceStream:
    sampler = load_sampler("segment_pairs")(
        store=store,
        tokenizer=store.tokenizer,
        documents=np.arange(len(store)),
        max_seq_length=48,
        short_sequence_probability=0.5,
        rng=CounterRNG(0, "sampler"),
    )
    return SequenceStream(sampler, objectives, seed=0, training=True)


def make_module(store: TokenStore, tasks: dict[str, Objective], **encoder: object) -> BertModule:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_attention_heads": 2, "max_position_embeddings": 64}
    bert = BertEncoder(store.tokenizer.vocab_size, preset="tiny", **(sizes | encoder))
    return BertModule(bert, tasks, TaskContext(bert, store.tokenizer), OptimizerConfig())


def test_packed_losses_equal_padded_hugging_face(store: TokenStore, tmp_path: Path) -> None:
    tasks = {"mlm": MaskedLM(), "nsp": NextSentencePrediction()}
    module = make_module(store, tasks).eval()
    batch, counts = make_stream(store, tasks).batch(np.arange(24))
    assert batch.lengths.unique().numel() > 3
    states = {name: task.state_dict() for name, task in tasks.items()}
    export_huggingface(module.encoder, states, store.tokenizer, tmp_path / "export")
    peer = BertForPreTraining.from_pretrained(tmp_path / "export").eval()

    def pad(flat: torch.Tensor) -> torch.Tensor:
        padded = flat.new_zeros(len(batch) * batch.max_seqlen)
        return padded.index_copy(0, batch.padded_index, flat).view(len(batch), -1)

    labels = torch.full_like(batch.input_ids, -100)
    labels[batch.fields["mlm_positions"]] = batch.fields["mlm_labels"]
    padded_labels = torch.full((len(batch), batch.max_seqlen), -100)
    padded_labels[batch.attention_mask] = labels
    with torch.no_grad():
        expected = peer(
            input_ids=pad(batch.input_ids),
            token_type_ids=pad(batch.token_type_ids),
            attention_mask=batch.attention_mask.long(),
        )
        mlm_loss = F.cross_entropy(
            expected.prediction_logits.flatten(0, 1), padded_labels.flatten(), reduction="sum"
        )
        nsp_loss = F.cross_entropy(
            expected.seq_relationship_logits,
            batch.fields["next_sentence_label"],
            reduction="sum",
        )
        output = module(batch)
        mlm, nsp = (task.loss(output, batch) for task in tasks.values())
    assert counts == {"mlm": mlm.count, "nsp": len(batch)}
    assert float(mlm.sum) / mlm.count == pytest.approx(float(mlm_loss) / mlm.count, abs=1e-5)
    assert float(nsp.sum) == pytest.approx(float(nsp_loss), abs=1e-4)


def test_accumulated_batches_equal_one_large_batch(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    """Four batches of 8 with different numbers of predicted tokens must weigh by tokens."""
    states = []
    for accumulate in (1, 4):
        run = tmp_path / str(accumulate)
        code, _, error = bertlab(
            *("fit", "--config", tiny_config, "--run_dir", run, "--data.batch_size", 32),
            *("--trainer.accumulate_grad_batches", accumulate, "--trainer.max_steps", 4),
            *("--trainer.val_check_interval", 4 * accumulate),
            *("--data.short_sequence_probability", 0.9),
        )
        assert code == 0, error
        states.append(read_run_checkpoint(run / "checkpoints" / "last.ckpt").state)
    one, four = states
    assert all(torch.allclose(one[name], four[name], atol=1e-5) for name in one)


def test_micro_batches_of_a_step_know_the_predictions_of_all(store: TokenStore) -> None:
    tasks: dict[str, Objective] = {"mlm": MaskedLM(), "nsp": NextSentencePrediction()}
    make_module(store, tasks)
    stream = make_stream(store, tasks)
    whole = StepDataset(stream, StepSizes(12))[2]
    parts = StepDataset(stream, StepSizes(12), accumulate=3)[2]
    assert len(parts) == 3
    assert torch.equal(torch.cat([part.input_ids for part in parts]), whole[0].input_ids)
    assert len({part.counts["mlm"] for part in parts}) > 1
    for part in parts:
        assert part.window_counts == whole[0].counts
    ranks = [
        StepDataset(stream, StepSizes(12), accumulate=2, rank=rank, world_size=2)[2]
        for rank in (0, 1)
    ]
    together = [batch.input_ids for batches in ranks for batch in batches]
    assert torch.equal(torch.cat(together), whole[0].input_ids)


def test_a_loss_of_more_predictions_than_were_announced_is_refused(store: TokenStore) -> None:
    class Forgetful(NextSentencePrediction):
        def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
            return super().prepare(sequences, rng, training) - 1

    tasks: dict[str, Objective] = {"nsp": NextSentencePrediction(), "odd": Forgetful()}
    module = make_module(store, tasks)
    stream = make_stream(store, tasks)
    batch = StepDataset(stream, StepSizes(8))[2][0]
    words = "odd: its loss is of 8 predictions, and its sequences announced 7; expected the same"
    with pytest.raises(PluginError, match=words):
        module.shares(batch)
    assert len(module.shares(batch, torch.tensor([8, 8]))) == 2  # a package's own batch


def test_switching_nsp_off_changes_the_loss_and_nothing_else(store: TokenStore) -> None:
    both: dict[str, Objective] = {"mlm": MaskedLM(), "nsp": NextSentencePrediction()}
    only: dict[str, Objective] = {"mlm": MaskedLM()}
    make_module(store, both)
    make_module(store, only)
    for step in range(5):
        (with_nsp,) = StepDataset(make_stream(store, both), StepSizes(8))[step]
        (without,) = StepDataset(make_stream(store, only), StepSizes(8))[step]
        assert torch.equal(with_nsp.input_ids, without.input_ids)
        assert torch.equal(with_nsp.token_type_ids, without.token_type_ids)
        assert torch.equal(with_nsp.cu_seqlens, without.cu_seqlens)
        assert torch.equal(with_nsp.fields["mlm_positions"], without.fields["mlm_positions"])


def test_a_resumed_epoch_goes_on_where_it_stopped() -> None:
    assert list(StepSampler(5, lambda: 0)) == [0, 1, 2, 3, 4]
    assert list(StepSampler(5, lambda: 7)) == [7, 8, 9]
    assert list(StepSampler(5, lambda: 10)) == [10, 11, 12, 13, 14]


def test_a_limited_epoch_has_as_many_steps_as_the_limit() -> None:
    epochs = [list(StepSampler(5, lambda done=done: done, 3)) for done in (0, 3, 6, 7)]
    assert epochs == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [7, 8]]
    assert len(StepSampler(5, lambda: 0, 3)) == 5  # of which Lightning takes its share


@pytest.mark.parametrize(
    ("limit", "parts", "expected"),
    [(1.0, 2, 6), (0.5, 2, 3), (4, 2, 2), (100, 2, 6), (1, 2, 1), (0.01, 1, 1)],
)
def test_steps_of_an_epoch_under_a_limit_of_batches(
    limit: float, parts: int, expected: int
) -> None:
    trainer: Any = Mock(limit_train_batches=limit, accumulate_grad_batches=parts)
    assert limited_steps(6, trainer) == expected


class Swapped(NextSentencePrediction):
    """Turns every text round, and notes what the masked LM had done by then."""

    rearranges_input = True

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        self.masks_seen = int((sequences.input_ids == 4).sum())
        sequences.input_ids[:] = sequences.input_ids[::-1]
        return super().prepare(sequences, rng, training)


class Rewritten(NextSentencePrediction):
    """Gives the encoder other tokens than the data has."""

    corrupts_input = True

    def rewrite_input(self, batch: PackedBatch) -> PackedBatch:
        return replace(batch, input_ids=torch.full_like(batch.input_ids, 7))


def test_what_moves_text_is_prepared_first(store: TokenStore) -> None:
    mlm, swapped = MaskedLM(), Swapped()
    tasks: dict[str, Objective] = {"mlm": mlm, "swapped": swapped}
    make_module(store, tasks)
    stream = make_stream(store, tasks)
    batch, counts = stream.batch(np.arange(12))
    assert swapped.masks_seen == 0
    assert int((batch.input_ids == store.tokenizer.mask_id).sum()) > 0
    assert counts.keys() == {"mlm", "swapped"}


def test_what_overwrites_the_input_is_prepared_last(store: TokenStore) -> None:
    class Sees(NextSentencePrediction):
        def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
            sequences.fields["seen"] = sequences.input_ids.copy()
            return super().prepare(sequences, rng, training)

    seen = []
    for names in (("mlm", "sees"), ("sees", "mlm")):
        made: dict[str, Objective] = {"mlm": MaskedLM(), "sees": Sees()}
        tasks = {name: made[name] for name in names}
        make_module(store, tasks)
        batch, _ = make_stream(store, tasks).batch(np.arange(6))
        seen.append(batch)
    assert torch.equal(seen[0].fields["seen"], seen[1].fields["seen"])
    assert torch.equal(seen[0].input_ids, seen[1].input_ids)
    assert not (seen[0].fields["seen"] == store.tokenizer.mask_id).any()


def test_the_encoder_reads_what_an_objective_rewrites_but_not_in_prediction(
    store: TokenStore,
) -> None:
    tasks: dict[str, Objective] = {"rewritten": Rewritten()}
    module = make_module(store, tasks).eval()
    batch, _ = make_stream(store, tasks).batch(np.arange(6))
    seen: list[Tensor] = []
    module.encoder.register_forward_pre_hook(lambda _, given: seen.append(given[0].input_ids))
    module.validation_step(batch, 0)
    module.predict_step(batch, 0)
    assert (seen[0] == 7).all()
    assert torch.equal(seen[1], batch.input_ids)


@pytest.mark.parametrize(
    ("tasks", "causal", "words"),
    [
        ({}, False, "found none"),
        ({"mlm": MaskedLM(), "other": MaskedLM()}, False, "mlm and other both overwrite"),
        ({"keys": MaskedLM()}, False, "keys cannot name a task"),
        ({"a": Swapped(), "b": Swapped()}, False, "a and b both move the text of the input"),
        ({"mlm": MaskedLM()}, True, "mlm needs a bidirectional encoder"),
        ({"clm": CausalLM()}, False, "clm needs a left-to-right encoder"),
    ],
)
def test_what_does_not_go_together_is_refused(
    store: TokenStore, tasks: dict[str, Objective], causal: bool, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        make_module(store, tasks, causal=causal)


def test_pretraining_parameters_are_the_papers() -> None:
    with torch.device("meta"):
        encoder = BertEncoder(vocab_size=30522, preset="base")
    heads = 768 * 768 + 768 + 2 * 768 + 30522 + 2 * 768 + 2
    assert sum(each.numel() for each in encoder.parameters()) + heads == 110_106_428
