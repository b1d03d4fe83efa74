"""What no task reads is left out of the last layer, and nothing else changes."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.task import Task, TaskContext
from bertlab.encoders.bert import BertEncoder
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.objectives.masked_lm import MaskedLM
from bertlab_conformance.samples import SampleLanguage
from tests.encoders.test_bert import pad, random_batch, reference_pair, run_peer


def last_rows(encoder: BertEncoder) -> list[int]:
    """Rows that the last feed-forward network is given, by call."""
    rows: list[int] = []

    def count(_: nn.Module, inputs: tuple[Tensor]) -> None:
        rows.append(len(inputs[0]))

    last = encoder.layers[-1]
    last.intermediate.register_forward_pre_hook(count)  # type: ignore[union-attr, operator]
    return rows


@settings(max_examples=25, deadline=None)
@given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5), seed=st.integers(0, 99))
def test_states_and_gradients_are_hugging_faces(lengths: list[int], seed: int) -> None:
    ours, peer = reference_pair()
    batch = random_batch(lengths, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    read = (torch.rand(sum(lengths), generator=generator) < 0.2).nonzero().squeeze(-1)
    batch.tokens_read = torch.cat([read, read[:2]])  # by two tasks
    output = ours(batch)
    (output.tokens[read].square().sum() + output.pooled.square().sum()).backward()
    expected = run_peer(peer, batch)
    states = expected.last_hidden_state[batch.attention_mask]
    (states[read].square().sum() + expected.pooler_output.square().sum()).backward()
    torch.testing.assert_close(output.tokens[read], states[read], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(output.pooled, expected.pooler_output, atol=1e-5, rtol=1e-4)
    pairs = [
        (ours.token_embedding, peer.embeddings.word_embeddings),
        (ours.layers[-1].attention.output, peer.encoder.layer[-1].attention.output.dense),
        (ours.layers[-1].output_norm, peer.encoder.layer[-1].output.LayerNorm),
        (ours.layers[0].intermediate, peer.encoder.layer[0].intermediate.dense),
    ]
    for mine, theirs in pairs:
        torch.testing.assert_close(mine.weight.grad, theirs.weight.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
def test_the_last_layer_computes_what_is_read(causal: bool) -> None:
    encoder = BertEncoder(97, "tiny", hidden_size=32, causal=causal).eval()
    rows = last_rows(encoder)
    batch = random_batch([30, 50, 20])
    whole = encoder(batch)
    batch.tokens_read = torch.tensor([7, 8, 29, 30])  # 29 ends a sequence, 30 begins one
    part = encoder(batch)
    assert rows == [128, 16]  # filled up to whole blocks
    torch.testing.assert_close(part.cls, whole.cls)
    torch.testing.assert_close(part.tokens[[7, 8, 29, 30]], whole.tokens[[7, 8, 29, 30]])
    assert not part.tokens[9].any()


def test_a_bilstm_on_top_reads_all_states() -> None:
    encoder = BertEncoder(97, "tiny", hidden_size=32, bilstm_layers=1).eval()
    batch = random_batch([30, 5])
    whole = encoder(batch)
    batch.tokens_read = torch.tensor([3])
    torch.testing.assert_close(encoder(batch).tokens, whole.tokens)


def test_all_layers_have_all_states() -> None:
    encoder = BertEncoder(97, "tiny", hidden_size=32).eval()
    batch = random_batch([30, 5])
    batch.tokens_read = torch.tensor([3])
    output = encoder(batch, all_layers=True)
    assert output.all_layers is not None
    torch.testing.assert_close(output.tokens, output.all_layers[-1])
    assert pad(batch, output.tokens)[batch.attention_mask].any(-1).all()


class ReadsAnything(NextSentencePrediction):
    """A task that does not say what it reads, as those of other packages may not."""

    def tokens_read(self, batch: PackedBatch) -> None:
        del batch


@pytest.mark.parametrize(
    ("tasks", "rows"),
    [
        ({"mlm": MaskedLM, "nsp": NextSentencePrediction}, 16),
        ({"nsp": NextSentencePrediction}, 16),
        ({"mlm": MaskedLM, "other": ReadsAnything}, 64),
    ],
)
def test_a_run_computes_what_its_tasks_read(tasks: dict[str, type[Task]], rows: int) -> None:
    tokenizer = SampleLanguage.of(None).tokenizer
    encoder = BertEncoder(tokenizer.vocab_size, "tiny", hidden_size=32)
    context = TaskContext(encoder, tokenizer)
    made = {name: task() for name, task in tasks.items()}
    module = BertModule(encoder, made, context, OptimizerConfig()).eval()
    found = last_rows(encoder)
    batch = random_batch([30, 20])
    labelled(batch, [4, 17, 33])
    losses = [task.loss(module(batch), batch).sum for task in made.values()]
    assert found == [rows] * len(losses)
    whole: EncoderOutput = encoder(replace(batch, tokens_read=None))
    expected = [task.loss(whole, batch).sum for task in made.values()]
    torch.testing.assert_close(losses, expected)


def labelled(batch: PackedBatch, positions: Sequence[int]) -> None:
    batch.fields["mlm_positions"] = torch.tensor(positions)
    batch.fields["mlm_labels"] = batch.input_ids[batch.fields["mlm_positions"]]
    batch.fields["next_sentence_label"] = torch.zeros(len(batch), dtype=torch.int64)
