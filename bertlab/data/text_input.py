"""Texts given for prediction, as batches for objectives."""

from collections.abc import Sequence

import torch

from bertlab.data.tokenizer import WordPieceTokenizer
from bertlab.errors import ConfigError
from bertlab.labelled_rows import Row
from bertlab.packed_batch import PackedBatch, pack

PREDICT_BATCH = 64  # sequences


def text_batches(
    texts: Sequence[str],
    text_pairs: Sequence[str] | None,
    tokenizer: WordPieceTokenizer,
    max_seq_length: int,
) -> list[list[PackedBatch]]:
    """Return the batches of texts, each a step of its own, with the texts' numbers as ``row``.

    Args:
        texts: of ``data.text``.
        text_pairs: of ``data.text_pair``: a second text for each; None for none.
        tokenizer: encodes them.
        max_seq_length: most tokens of a sequence, special tokens included.

    Raises:
        ConfigError: the pairs do not match, or a text is empty or too long.
    """
    if text_pairs is not None and len(text_pairs) != len(texts):
        raise ConfigError(
            f"data.text_pair: found {len(text_pairs)} texts, expected {len(texts)} as data.text"
        )
    inputs = []
    for number, text in enumerate(texts):
        if not text.strip():
            raise ConfigError(f"data.text: text {number} is empty")
        pair_ids = None if text_pairs is None else tokenizer.encode(text_pairs[number])
        made = tokenizer.build_inputs(tokenizer.encode(text), pair_ids)
        if len(made[0]) > max_seq_length:
            raise ConfigError(
                f"data.text: text {number} has {len(made[0])} tokens, more than "
                f"data.max_seq_length {max_seq_length}"
            )
        inputs.append(made)
    batches = []
    for start in range(0, len(inputs), PREDICT_BATCH):
        part = inputs[start : start + PREDICT_BATCH]
        batch = pack([ids for ids, _ in part], [kinds for _, kinds in part])
        batch.fields["row"] = torch.arange(start, start + len(part))
        batches.append([batch])
    return batches


def text_row(texts: Sequence[str], text_pairs: Sequence[str] | None, number: int) -> Row:
    """Return a text, and its pair if there is one."""
    values = {"text": texts[number]}
    if text_pairs is not None:
        values["text_pair"] = text_pairs[number]
    return Row(values, f"data.text {number}")
