"""Linear probes: what can be read off the states of each layer by a linear classifier?

Tags of words as in Liu et al. 2019 and Hewitt and Liang 2019, and two tasks of sentences that need
no labels (Conneau et al. 2018).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertlab import IntArray, check_at_least, check_share, nearest
from bertlab.api import Column, ConfigError, DataError, Example
from bertlab_evaluations.contract import (
    EvaluatedModel,
    Evaluation,
    EvaluationResult,
    FloatArray,
    ScoreGrid,
)
from bertlab_evaluations.layers import Layers, chosen_layers, mean_by_sequence
from bertlab_evaluations.probe_examples import (
    ProbeExamples,
    WordIds,
    content_examples,
    control_labels,
    draw,
    encode_words,
    length_examples,
    tag_examples,
    words_of,
)
from bertlab_evaluations.softmax_regression import fit_probe
from bertlab_pages.layer_states import layer_states

ProbeTask = Literal["tags", "sentence_length", "word_content"]


class Probing(Evaluation):
    """Accuracy of a linear classifier of the states of a layer that stay as they are.

    A word is represented by the state of its first piece, a sentence by the mean over its tokens,
    ``[CLS]`` and ``[SEP]`` included. A row goes to training or test by a keyed hash of its words,
    so that equal rows go to the same side. The metrics are those of the last of ``layers``, the
    last layer if nothing is set; the grid has them all.

    The score of a test row is the share of its words whose class is found; ``accuracy`` is its mean
    over test rows, ``word_accuracy`` is over words and is what the grid has. ``majority_accuracy``
    gives each word the commonest class of training. ``control_accuracy`` is that of a probe of the
    control task (Hewitt and Liang 2019), in which each word type has a fixed class, drawn as often
    as the classes occur: a probe learns it by heart, not from the model. ``selectivity`` is
    ``word_accuracy`` less it. Sentences do not recur, so their tasks have no control.

    Args:
        task: ``tags``: of words. ``sentence_length``: the number of words, in bins.
            ``word_content``: which of some frequent words the sentence holds.
        layers: ``all``, or a list; 0 is the embeddings, -1 the last layer.
        test_share: of the rows.
        l2: weight of the probe's penalty: ``C = 1 / l2`` of scikit-learn.
        max_words: words, or sentences, whose states are kept, as float32: 20,000 of the 13 layers
            of BERT-base are 0.8 GB. Rows beyond it are left out by hash, and counted.
        bins: classes of ``sentence_length``.
        content_words: classes of ``word_content``.
        skip_words: more frequent words that ``word_content`` passes over.
        seed: of the split and of the control task.
        batch_tokens: tokens that are encoded at a time.

    Raises:
        ConfigError: the task is unknown, or a number is out of range.
    """

    columns = (
        Column("words", "texts", required=False),
        Column("text", required=False, aliases=("sentence",)),
        Column("tags", "tags", is_truth=True, required=False),
    )
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {
        "word_accuracy": "max",
        "selectivity": "max",
    }
    shares = ("accuracy", "word_accuracy", "control_accuracy")

    def __init__(
        self,
        task: ProbeTask = "tags",
        layers: Layers = "all",
        test_share: float = 0.2,
        l2: float = 1.0,
        max_words: int = 20_000,
        bins: int = 6,
        content_words: int = 30,
        skip_words: int = 100,
        seed: int = 0,
        batch_tokens: int = 16384,
    ) -> None:
        if task not in get_args(ProbeTask):
            raise ConfigError(
                f"settings.task: found {task!r}{nearest(str(task), get_args(ProbeTask))} "
                f"(there are: {', '.join(get_args(ProbeTask))})"
            )
        check_share("settings.test_share", test_share, ends=False)
        check_at_least("settings.l2", l2, 0)
        check_at_least("settings.skip_words", skip_words, 0)
        check_at_least("settings.max_words", max_words, 2)
        check_at_least("settings.bins", bins, 2)
        check_at_least("settings.content_words", content_words, 2)
        check_at_least("settings.batch_tokens", batch_tokens, 1)
        self.task = task
        self.layers = layers
        self.test_share = test_share
        self.l2 = l2
        self.max_words = max_words
        self.bins = bins
        self.content_words = content_words
        self.skip_words = skip_words
        self.seed = seed
        self.batch_tokens = batch_tokens

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        """Fit a probe of each layer on some rows, and score it on the others.

        Raises:
            ConfigError: the encoder has no such layer.
            EvaluationError: the encoder gives no layers, or its states are not finite.
            DataError: a row has no words or tags, or there are too few rows or classes.
        """
        places = chosen_layers(self.layers, model.encoder.num_hidden_layers + 1)
        keys = ["\n".join(words_of(row)) for row in rows]
        is_test = np.array([draw(self.seed, "split", key) < self.test_share for key in keys])
        examples = self._examples(rows, is_test)
        sequences = [encode_words(row, model.tokenizer) for row in rows]
        kept, notes = self._kept(model, examples, sequences, keys, rows)
        data = _classes(examples, kept, is_test, rows)
        features = self._features(model, [sequences[row] for row in kept], places)
        probes = [self._probe(states, data, examples, kept) for states in features]
        last = probes[-1]

        scores = np.full(len(rows), np.nan)
        tested = data.row[data.is_test]
        counts = np.bincount(tested, minlength=len(rows))
        right = np.bincount(tested, weights=last.right, minlength=len(rows))
        scores[counts > 0] = right[counts > 0] / counts[counts > 0]
        trained = len(np.unique(data.row[~data.is_test]))
        unseen = int((data.label[data.is_test] < 0).sum())
        if unseen:
            notes.append(
                f"{unseen} test words have a class that training lacks, and count as wrong"
            )
        late = [
            str(place) for place, each in zip(places, probes, strict=True) if not each.converged
        ]
        if late:
            notes.append(f"the solver stopped before its minimum: layers {', '.join(late)}")
        parts = np.full(len(rows), "left out", dtype=object)
        parts[np.unique(data.row)] = "train"
        parts[counts > 0] = "test"
        return EvaluationResult(
            metrics={"accuracy": float(np.nanmean(scores)), **_metrics(last, self.task)},
            scores=scores,
            details={"part": parts.tolist(), "words": [len(each) for each in examples.labels]},
            grids=[_grid(self.task, places, probes)],
            notes=[
                f"metrics are those of layer {places[-1]}",
                f"{trained} rows trained the probes, and have no score; {(counts > 0).sum()} were "
                "tested",
                *examples.notes,
                *notes,
            ],
        )

    def _examples(self, rows: Sequence[Example], is_test: npt.NDArray[np.bool_]) -> ProbeExamples:
        if self.task == "tags":
            return tag_examples(rows)
        if self.task == "sentence_length":
            return length_examples(rows, is_test, self.bins)
        return content_examples(rows, is_test, self.content_words, self.skip_words)

    def _kept(
        self,
        model: EvaluatedModel,
        examples: ProbeExamples,
        sequences: Sequence[WordIds],
        keys: Sequence[str],
        rows: Sequence[Example],
    ) -> tuple[list[int], list[str]]:
        """Return the rows whose states are kept, in their order, and notes on the others."""
        notes = []
        long = [row for row, each in enumerate(sequences) if len(each.ids) > model.max_seq_length]
        if long:
            notes.append(
                f"{len(long)} rows have more than {model.max_seq_length} tokens with [CLS] and "
                f"[SEP], and were left out (the first: {rows[long[0]].where})"
            )
        usable = sorted(
            {row for row, each in enumerate(examples.labels) if each} - set(long),
            key=lambda row: (draw(self.seed, "order", keys[row]), row),
        )
        kept, words = [], 0
        for row in usable:
            if words + len(examples.labels[row]) > self.max_words:
                break
            words += len(examples.labels[row])
            kept.append(row)
        if len(kept) < len(usable):
            unit = "words" if self.task == "tags" else "sentences"
            notes.append(
                f"{len(usable) - len(kept)} rows were left out, as settings.max_words keeps "
                f"{self.max_words} {unit}"
            )
        return sorted(kept), notes

    def _features(
        self, model: EvaluatedModel, sequences: Sequence[WordIds], places: list[int]
    ) -> Tensor:
        """Return ``(layers, N, H)`` float32 states of the N words or sentences, in their order."""
        of_words = self.task == "tags"
        counts = [len(each.firsts) if of_words else 1 for each in sequences]
        starts = np.concatenate([[0], np.cumsum(counts)])
        shape = (len(places), int(starts[-1]), model.encoder.hidden_size)
        features = torch.empty(shape, device=model.device)
        ids = [each.ids for each in sequences]
        for states in layer_states(model, ids, self.batch_tokens, track=model.track):
            target = np.concatenate([np.arange(starts[n], starts[n + 1]) for n in states.numbers])
            into = torch.from_numpy(target).to(model.device)
            begins = states.batch.cu_seqlens.tolist()
            firsts = [
                begin + sequences[number].firsts
                for begin, number in zip(begins, states.numbers, strict=False)  # the last is T
            ]
            read = torch.from_numpy(np.concatenate(firsts)).to(model.device)
            for number, place in enumerate(places):
                layer = states.layers[place].float()
                chosen = layer[read] if of_words else mean_by_sequence(layer, states.batch)
                features[number, into] = chosen
        return features

    def _probe(
        self, states: Tensor, data: "_Classes", examples: ProbeExamples, kept: Sequence[int]
    ) -> "_Probed":
        """Fit and test the probe, and that of the control task, of one layer's ``(N, H)``."""
        train = torch.from_numpy(~data.is_test).to(states.device)
        mean, spread = states[train].mean(0), states[train].std(0, correction=0)
        # a constant feature says nothing; dividing by its rounding would make it seem to
        scaled = (states - mean) / torch.where(spread > 1e-6, spread, 1.0)
        counts = np.bincount(data.label[~data.is_test], minlength=len(data.names))
        right, converged = self._fit(scaled, train, data.label, len(counts))
        control = np.full(len(right), np.nan)
        if self.task == "tags":
            types = list(chain.from_iterable(examples.types[row] for row in kept))
            drawn = control_labels(types, counts / counts.sum(), self.seed)
            control, also = self._fit(scaled, train, drawn, len(counts))
            converged = converged and also
        majority = data.label[data.is_test] == counts.argmax()
        return _Probed(right, float(control.mean()), float(majority.mean()), converged)

    def _fit(
        self, features: Tensor, train: Tensor, labels: IntArray, classes: int
    ) -> tuple[FloatArray, bool]:
        """Return which test words a probe gets right, ``(test words,)``; whether it converged."""
        truth = torch.from_numpy(labels).to(features.device)
        probe = fit_probe(features[train], truth[train], classes, self.l2)
        right = probe.predict(features[~train]) == truth[~train]
        return right.double().cpu().numpy(), probe.converged


@dataclass(frozen=True)
class _Classes:
    """The N words, or sentences, whose states are kept.

    Attributes:
        row: ``(N,)`` number of the row of each.
        label: ``(N,)`` its class; -1 of one that training lacks.
        is_test: ``(N,)`` bool.
        names: of the classes.
    """

    row: IntArray
    label: IntArray
    is_test: npt.NDArray[np.bool_]
    names: list[str]


def _classes(
    examples: ProbeExamples,
    kept: Sequence[int],
    is_test: npt.NDArray[np.bool_],
    rows: Sequence[Example],
) -> _Classes:
    tested = [row for row in kept if is_test[row]]
    if not tested or len(tested) == len(kept):
        raise DataError(
            f"{rows[0].where}: found {len(kept)} usable rows, {len(tested)} of them for the test, "
            "expected some for training and some for the test; give more rows"
        )
    known = {each for row in kept if not is_test[row] for each in examples.labels[row]}
    if len(known) < 2:
        raise DataError(
            f"{rows[0].where}: found the one class {known.pop()!r} in the rows for training, "
            "expected two or more; check the columns"
        )
    names = sorted(known)
    places = {name: place for place, name in enumerate(names)}
    row = np.repeat(kept, [len(examples.labels[each]) for each in kept])
    label = [places.get(name, -1) for each in kept for name in examples.labels[each]]
    return _Classes(row, np.array(label), is_test[row], names)


@dataclass(frozen=True)
class _Probed:
    """What the probe of one layer found: of each test word, and means over them."""

    right: FloatArray
    control: float
    majority: float
    converged: bool

    @property
    def accuracy(self) -> float:
        return float(self.right.mean())


def _metrics(probed: _Probed, task: ProbeTask) -> dict[str, float]:
    if task != "tags":
        return {"majority_accuracy": probed.majority}
    return {
        "word_accuracy": probed.accuracy,
        "control_accuracy": probed.control,
        "selectivity": probed.accuracy - probed.control,
        "majority_accuracy": probed.majority,
    }


def _grid(task: ProbeTask, places: Sequence[int], probes: Sequence[_Probed]) -> ScoreGrid:
    of = "words" if task == "tags" else "sentences"
    columns = ["accuracy", "control", "selectivity", "majority"]
    values = [[p.accuracy, p.control, p.accuracy - p.control, p.majority] for p in probes]
    if task != "tags":
        columns, values = columns[::3], [row[::3] for row in values]
    return ScoreGrid(f"{task}, of {of} by layer", list(map(str, places)), columns, np.array(values))
