"""Batches filled up to fixed sizes: few sizes, little filler, the same losses and gradients."""

from collections.abc import Mapping
from functools import wraps

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from bertlab.api.batch import PackedBatch
from bertlab.api.encoder import Encoder, EncoderOutput
from bertlab.api.examples import Labels
from bertlab.api.task import Task, TaskContext, TaskLoss
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import PluginError
from bertlab.heads.sentences import SingleSentence
from bertlab.model.module import BertModule
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.objectives.language_model import CausalLM
from bertlab.objectives.masked_lm import MaskedLM
from bertlab_conformance.samples import SampleLanguage
from bertlab_gpu.filling import FilledBatch, Filling, check_fill, fill_of, size_between
from bertlab_modern.modern import ModernEncoder
from tests.encoders.test_bert import random_batch

LONGEST = 40
ENCODERS: dict[str, type[Encoder]] = {"bert": BertEncoder, "modern": ModernEncoder}


def labelled(batch: PackedBatch, seed: int) -> PackedBatch:
    """Label a seventh of the tokens, and each sequence."""
    generator = torch.Generator().manual_seed(seed)
    positions = (torch.rand(len(batch.input_ids), generator=generator) < 1 / 7).nonzero()[:, 0]
    classes = torch.arange(len(batch)) % 2
    for name in ("mlm", "clm"):
        batch.fields[f"{name}_positions"] = positions
        batch.fields[f"{name}_labels"] = batch.input_ids[positions]
    batch.fields |= {"next_sentence_label": classes, "label": classes}
    return batch


def gradients(tasks: Mapping[str, Task], kind: str, batches: list[PackedBatch]) -> list[Tensor]:
    """Losses and all gradients, one after the other, of each batch."""
    torch.manual_seed(0)
    tokenizer = SampleLanguage.of(None).tokenizer
    encoder = ENCODERS[kind](tokenizer.vocab_size, "tiny", hidden_size=32, causal="clm" in tasks)
    context = TaskContext(encoder, tokenizer, labels=Labels(("no", "yes"), (1, 1)))
    module = BertModule(encoder, tasks, context, OptimizerConfig()).eval()
    found = []
    for batch in batches:
        losses = torch.stack([each.sum for each in module.losses(batch)])
        parameters = [each for each in module.parameters() if each.requires_grad]
        parts = torch.autograd.grad(losses.sum(), parameters, allow_unused=True)
        flat = [part.flatten() for part in parts if part is not None]
        found.append(torch.cat([losses.detach(), *flat]))
    return found


def tasks_of(names: str) -> dict[str, Task]:
    known = {
        "mlm": MaskedLM, "clm": CausalLM, "nsp": NextSentencePrediction, "cls": SingleSentence
    }  # fmt: skip
    return {name: known[name]() for name in names.split()}


def test_what_inherits_a_loss_inherits_how_it_is_filled_up() -> None:
    class Own(NextSentencePrediction):
        """Has nothing of its own."""

    class Checked(NextSentencePrediction):
        """Has its parent's loss, wrapped as strangers' methods are to be checked."""

        loss = wraps(NextSentencePrediction.loss)(lambda self, *given: super().loss(*given))

    class Other(NextSentencePrediction):
        """Has another loss."""

        def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
            return super().loss(output, batch)

    found = [fill_of(each()) is not None for each in (NextSentencePrediction, Own, Checked, Other)]
    assert found == [True, True, True, False]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("names", ["mlm nsp", "clm", "cls"])
@pytest.mark.parametrize("kind", list(ENCODERS))
@settings(max_examples=15, deadline=None)
@given(lengths=st.lists(st.integers(1, LONGEST), min_size=1, max_size=9), seed=st.integers(0, 99))
def test_losses_and_gradients_stay(names: str, kind: str, lengths: list[int], seed: int) -> None:
    tasks = tasks_of(names)
    batch = labelled(random_batch(lengths, seed=seed), seed)
    filled = Filling(tasks, LONGEST)(batch)
    assert isinstance(filled, FilledBatch)
    whole, padded = gradients(tasks, kind, [batch, filled])
    torch.testing.assert_close(padded, whole, atol=2e-5, rtol=2e-4)


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=60),
    longest=st.integers(2, 512),
)
def test_filler_is_whole_sequences(lengths: list[int], longest: int) -> None:
    longest = max(longest, *lengths)
    batch = random_batch(lengths)
    filled = Filling({}, longest)(batch)
    assert isinstance(filled, FilledBatch)
    added = filled.cu_seqlens.diff()[len(lengths) :]
    assert filled.cu_seqlens[: len(lengths) + 1].equal(batch.cu_seqlens)
    assert len(added) == filled.filler
    assert 1 <= added.min() <= added.max() <= longest
    tokens = len(filled.input_ids)
    assert tokens == filled.cu_seqlens[-1] == len(filled.token_type_ids)
    assert tokens % size_between(sum(lengths)) == 0
    assert filled.max_seqlen % 128 == 0
    assert filled.max_seqlen >= max(lengths)
    for begin, end in filled.cu_seqlens.unfold(0, 2, 1).tolist():
        assert filled.position_ids[begin:end].equal(torch.arange(end - begin))


@pytest.mark.nightly
def test_batches_of_a_run_have_few_sizes_and_little_filler() -> None:
    generator = torch.Generator().manual_seed(0)
    sizes, filler, tokens = set(), 0, 0
    for _ in range(200):  # pairs as BERT's: nine of ten fill 128 tokens
        short = torch.rand(256, generator=generator) < 0.1
        drawn = torch.randint(5, 129, (256,), generator=generator)
        lengths = torch.where(short, drawn, 128).tolist()
        batch = labelled(random_batch(lengths), 0)
        filled = Filling(tasks_of("mlm nsp"), 128)(batch)
        assert isinstance(filled, FilledBatch)
        sizes.add((len(filled.input_ids), len(filled.fields["mlm_labels"]), filled.filler))
        filler += len(filled.input_ids) - sum(lengths)
        tokens += sum(lengths)
    assert filler < 0.02 * tokens
    assert len(sizes) < 20


class OtherLoss(MaskedLM):
    """Its loss may read more than is filled up."""

    def loss(self, output, batch):  # type: ignore[no-untyped-def]
        return super().loss(output, batch)


class OtherPairs(NextSentencePrediction):
    """As well: the mechanism sees it, whether or not ``fill`` does."""

    def loss(self, output, batch):  # type: ignore[no-untyped-def]
        return super().loss(output, batch)


def test_a_task_that_cannot_fill_leaves_the_batch() -> None:
    batch = labelled(random_batch([30, 5]), 0)
    for task in (OtherLoss(), OtherPairs(), SingleSentence(regression=True)):
        tasks = {"mlm": task, "nsp": NextSentencePrediction()}
        assert Filling(tasks, LONGEST)(batch) is batch


class CountsFiller(NextSentencePrediction):
    """Says that the filler's pairs follow each other."""

    def fill(self, batch: PackedBatch, slots: int) -> dict[str, Tensor]:
        labels = batch.fields["next_sentence_label"]
        return {"next_sentence_label": F.pad(labels, (0, len(batch) - len(labels)))}


def test_a_fill_that_counts_filler_is_found() -> None:
    tokenizer = SampleLanguage.of(None).tokenizer
    encoder = BertEncoder(tokenizer.vocab_size, "tiny", hidden_size=32)
    batch = labelled(random_batch([30, 5]), 0)
    for task in (NextSentencePrediction(), CountsFiller()):
        context = TaskContext(encoder, tokenizer)
        module = BertModule(encoder, {"nsp": task}, context, OptimizerConfig()).eval()
        if isinstance(task, CountsFiller):
            with pytest.raises(PluginError, match="and filled up"):
                check_fill(module, batch)
        else:
            check_fill(module, batch)
