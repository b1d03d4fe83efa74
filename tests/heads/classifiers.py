"""Heads beside their Hugging Face counterparts, with the same weights, on the same rows."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertPreTrainedModel

from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.loading import load_matching
from bertlab.data.encoded_rows import encode_rows
from bertlab.encoders.bert import BertEncoder
from bertlab.heads.base import Head
from bertlab.labelled_rows import Labels, Row
from bertlab.packed_batch import EncoderOutput, PackedBatch
from bertlab.tasks import TaskContext
from tests.checkpoints.peers import SIZES, TOKENIZER, peer

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def words(count: int, seed: int = 0) -> str:
    """A text of as many words of the toy vocabulary, one token each."""
    return " ".join(f"w{n}" for n in np.random.default_rng(seed).integers(0, 92, count))


def rows_of(*values: dict[str, object]) -> list[Row]:
    return [Row(row, f"train.tsv:{line}") for line, row in enumerate(values, 2)]


def built(head: Head, rows: Sequence[Row] = (), labels: Labels | None = None) -> Head:
    """The head on a tiny encoder, with the labels of the rows."""
    torch.manual_seed(0)
    encoder = BertEncoder(**SIZES)
    if labels is None:
        labels = Labels.of([name for row in rows for name in head.labels_of(row)])
    head.build(TaskContext(encoder, TOKENIZER, labels=labels))
    return head


def batch_of(head: Head, rows: Sequence[Row], max_seq_length: int = 48) -> PackedBatch:
    encoded = encode_rows(head, rows, TOKENIZER, max_seq_length)
    return encoded.batch(np.arange(len(encoded)), "head")[0]


def beside_hugging_face(
    head: Head,
    rows: Sequence[Row],
    model: type[BertPreTrainedModel],
    folder: Path,
    **config: object,
) -> tuple[BertEncoder, BertPreTrainedModel]:
    """Build the head and an encoder with the weights of a Hugging Face model without dropout."""
    reference = peer(model, **NO_DROPOUT, **config)
    reference.save_pretrained(folder)
    checkpoint = read_huggingface(folder)
    encoder = BertEncoder(**checkpoint.encoder_config | NO_DROPOUT)
    load_matching(encoder, checkpoint.encoder_state, checkpoint.source)
    names = [name for row in rows for name in head.labels_of(row)]
    head.build(TaskContext(encoder, TOKENIZER, labels=Labels.of(names)))
    head.classifier.load_state_dict(reference.classifier.state_dict())
    return encoder, reference


def assert_equal_gradients(encoder: BertEncoder, head: Head, reference: nn.Module) -> None:
    bert = reference.bert
    pairs = [
        (head.classifier.weight, reference.classifier.weight),
        (head.classifier.bias, reference.classifier.bias),
        (encoder.pooler.weight, bert.pooler.dense.weight),
        (encoder.token_embedding.weight, bert.embeddings.word_embeddings.weight),
    ]
    for ours, theirs in pairs:
        assert theirs.grad.abs().max() > 0
        torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-5, atol=1e-6)


class Pooled(EncoderOutput):
    """An encoder's output of which only the pooled output matters."""

    def __init__(self, pooled: Tensor) -> None:
        self.__dict__["pooled"] = pooled
