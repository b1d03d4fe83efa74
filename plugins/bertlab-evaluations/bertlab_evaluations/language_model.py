"""The language model of a model: found by a batch of its own, and which state predicts a token."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch

from bertlab import TokenClasses, TokenPrediction
from bertlab.api import CounterRNG, Encoder, EvaluationError, PackedSequences, Tokenizer


def language_model(
    source: str, encoder: Encoder, tokenizer: Tokenizer, tasks: Mapping[str, object]
) -> tuple[TokenPrediction, int]:
    """Return the language model of a model, and from which state it predicts a token.

    That is measured, as another state was not trained for it: it may be the one at the token, as of
    a masked LM (0), or the one before it, as of a left-to-right LM (-1). A loss that is not that of
    the states at the written positions has no log-probabilities that could be read.

    Args:
        source: where the model is from, for messages.
        encoder: of the model.
        tokenizer: of the model.
        tasks: of the model, by name; the first with :meth:`TokenPrediction.log_probabilities`
            counts, of that class or another.

    Raises:
        EvaluationError: there is no language model, or none that can be read.
    """
    named = {name: each for name, each in tasks.items() if hasattr(each, "log_probabilities")}
    if not named:
        found = ", ".join(tasks) or "an encoder alone"
        raise EvaluationError(
            f"{source}: found {found}, expected a language model (mlm or clm); "
            "evaluate the pre-training that it comes from"
        )
    name, task = cast("tuple[str, TokenPrediction]", next(iter(named.items())))
    if not hasattr(task, "name"):  # an objective of its own, which writes by its entry point's name
        setattr(task, "name", name)  # noqa: B010  to mypy a class variable
    ids, room = TokenClasses.of(tokenizer).ordinary_ids, min(32, encoder.max_position_embeddings)
    # no word stands twice in a text: of 100 words [0 … 29], [25 … 54], [50 … 79], [75 … 99, 0 … 4]
    texts = [np.roll(ids, -len(ids) * number // 4)[: room - 2].tolist() for number in range(4)]
    sequences = text_sequences(tokenizer, texts, range(4))
    before, place = sequences.input_ids.copy(), encoder.token_embedding.weight.device
    count = task.prepare(sequences, CounterRNG(0, "language model"), training=False)
    batch = sequences.to_batch().to(place)
    with torch.no_grad():
        output = encoder(batch)
        trained = float(task.loss(output, batch).sum)
        try:
            written = batch.token_labels(task.name)
            read = output.tokens[written.positions]
            given = -float(task.log_probabilities(read, written.labels).sum())
            # the states at other positions play no part: the loss is the same without them
            alone = torch.zeros_like(output.tokens).index_copy(0, written.positions, read)
            without = float(task.loss(replace(output, tokens=alone), batch).sum)
        except (RuntimeError, KeyError):  # states of another size; no positions
            given = without = math.inf
    differs = abs(given - trained) > 1e-3 * trained or abs(without - trained) > 1e-6 * trained
    if differs or not count:
        raise EvaluationError(
            f"{source}: objective {name}: its loss is not that of the states at its positions "
            f"({trained:.4f} and {given:.4f} nats), so that no log-probability can be read from "
            "it; let its prepare() write the positions of the states that predict"
        )
    places, labels = written.positions.cpu().numpy(), written.labels.cpu().numpy()
    for offset in (0, -1):
        if (before[(places - offset) % len(before)] == labels).all():
            return task, offset
    raise EvaluationError(
        f"{source}: objective {name} predicts from far away, expected a neighbour"
    )


def text_sequences(
    tokenizer: Tokenizer, texts: Sequence[Sequence[int]], names: Sequence[int]
) -> PackedSequences:
    """Return texts as sequences ``[CLS] … [SEP]``, to be prepared by an objective.

    Args:
        tokenizer: that adds the special tokens.
        texts: ids of each.
        names: numbers by which masks are drawn, one for each text.
    """
    inputs = [tokenizer.build_inputs(list(ids))[0] for ids in texts]
    lengths = np.array([len(ids) for ids in inputs])
    flat = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in inputs])
    positions = np.concatenate([np.arange(length) for length in lengths])
    # [CLS] a b [SEP] -> offsets [-1, 0, 0, -1]: of the text or not is all that is asked
    ends = np.repeat(lengths, lengths) - 1
    return PackedSequences(
        input_ids=flat,
        token_type_ids=np.zeros_like(flat),
        position_ids=positions,
        cu_seqlens=np.concatenate([[0], np.cumsum(lengths)]),
        corpus_offsets=np.where((positions == 0) | (positions == ends), -1, 0),
        epochs=np.zeros(len(lengths), dtype=np.int64),
        indices=np.array(names, dtype=np.int64),
    )
