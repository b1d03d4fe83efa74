"""Rows of a toy vocabulary, heads built for them, and these beside Hugging Face's."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import BertPreTrainedModel

from bertlab.api.batch import EncoderOutput, PackedBatch
from bertlab.api.examples import Example, Labels
from bertlab.api.task import Head, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.tensor_files import load_matching
from bertlab.data.examples.encoded import encode_examples
from bertlab.encoders.bert import BertEncoder
from bertlab.model.build import build_encoder
from tests.checkpoints.peers import SIZES, TOKENIZER, peer

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def words(count: int, seed: int = 0) -> str:
    """A text of as many words of the toy vocabulary, one token each."""
    return " ".join(f"w{n}" for n in np.random.default_rng(seed).integers(0, 92, count))


def rows_of(*values: dict[str, object]) -> list[Example]:
    return [Example(row, f"train.tsv:{line}") for line, row in enumerate(values, 2)]


def labels_of(head: Head, rows: Sequence[Example]) -> Labels:
    return Labels.of([name for row in rows for name in head.labels_of(row)])


def built(head: Head, rows: Sequence[Example] = (), labels: Labels | None = None) -> Head:
    """The head for a tiny encoder, with the labels of the rows."""
    return built_on_encoder(head, rows, labels)[0]


def built_on_encoder(
    head: Head, rows: Sequence[Example] = (), labels: Labels | None = None
) -> tuple[Head, BertEncoder]:
    """The head and its tiny encoder."""
    torch.manual_seed(0)
    encoder = BertEncoder(**SIZES)
    labels = labels_of(head, rows) if labels is None else labels
    head.build(TaskContext(encoder, TOKENIZER, labels=labels))
    return head, encoder


def batch_of(
    head: Head,
    rows: Sequence[Example],
    max_seq_length: int = 48,
    tokenizer: Tokenizer = TOKENIZER,
) -> PackedBatch:
    encoded = encode_examples(head, rows, tokenizer, max_seq_length)
    return encoded.batch(np.arange(len(encoded)), "head")[0]


def beside_hugging_face(
    head: Head,
    rows: Sequence[Example],
    model: type[BertPreTrainedModel],
    folder: Path,
    **config: object,
) -> tuple[BertEncoder, BertPreTrainedModel]:
    """Build the head and an encoder with the weights of a Hugging Face model without dropout."""
    reference = peer(model, **NO_DROPOUT, **config)
    reference.save_pretrained(folder)
    checkpoint = read_huggingface(folder)
    encoder = build_encoder(checkpoint.encoder_config | NO_DROPOUT, checkpoint.vocab_size)
    load_matching(encoder, checkpoint.encoder_state, checkpoint.source, ["pooler."])
    head.build(TaskContext(encoder, TOKENIZER, labels=labels_of(head, rows)))
    layer = "qa_outputs" if hasattr(reference, "qa_outputs") else "classifier"
    getattr(head, layer).load_state_dict(getattr(reference, layer).state_dict())
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
