"""Minimal pairs: does a language model find the acceptable sentence of two more probable?

For BLiMP (Warstadt et al. 2020), Zorro (Huebner et al. 2021) and any file of such pairs.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from bertlab import IntArray, TokenClasses, check_at_least, nearest, text_ids
from bertlab.api import Column, ConfigError, DataError, EvaluationError, Example, PackedBatch
from bertlab.extend import ending_format, is_packed
from bertlab_evaluations.contract import EvaluatedModel, Evaluation, EvaluationResult, FloatArray

Method = Literal["within_word_l2r", "original"]
METHODS = ("within_word_l2r", "original")
# scores closer than this share of themselves are equal: sums of float32 scores know no better
_RESOLUTION = 1e-6
_GROUPS = ("field", "phenomenon", "paradigm")


class MinimalPairs(Evaluation):
    """Share of pairs whose acceptable sentence has the higher score; a tie counts one half.

    The score of a masked language model is the pseudo-log-likelihood (Salazar et al. 2020): the sum
    over the tokens of a sentence of the log-probability of each, where it is masked. Under
    ``within_word_l2r`` the pieces of a word that follow are masked with it (Kauf & Ivanova 2023),
    as they would give it away. The score of a left-to-right model is the log-probability of the
    sentence. ``[CLS]`` and ``[SEP]`` are read, and not scored.

    Args:
        method: of masked language models: ``within_word_l2r`` or ``original``.
        per_token: divide each score by the sentence's number of tokens. A sum prefers the sentence
            with fewer tokens; how far that alone goes is the metric ``uniform_accuracy``.
        batch_tokens: tokens that are encoded at a time, masked copies included.

    Raises:
        ConfigError: ``method`` is none of the two, or ``batch_tokens`` is below 1.
    """

    columns = (
        Column("good", aliases=("sentence_good",)),
        Column("bad", aliases=("sentence_bad",)),
        Column("paradigm", required=False, aliases=("UID",)),
        Column("phenomenon", required=False, aliases=("linguistics_term",)),
        Column("field", required=False),
    )
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {
        f"{kind}_accuracy": "max" for kind in _GROUPS
    }
    shares = ("accuracy", "uniform_accuracy", "ties", *better)
    chance = 0.5

    def __init__(
        self,
        method: Method = "within_word_l2r",
        per_token: bool = False,
        batch_tokens: int = 4096,
    ) -> None:
        if method not in METHODS:
            raise ConfigError(
                f"settings.method: found {method!r}{nearest(str(method), METHODS)} "
                f"(there are: {', '.join(METHODS)})"
            )
        check_at_least("settings.batch_tokens", batch_tokens, 1)
        self.method = method
        self.per_token = per_token
        self.batch_tokens = batch_tokens

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        """Score both sentences of each pair.

        Raises:
            EvaluationError: the model has no ``mlm`` or ``clm``, or its scores are not finite.
            DataError: there is no word in a sentence, or some rows alone are of a paradigm.
        """
        pairs = _encode(model, rows)
        log_probs = sentence_scores(model, pairs.sentences, self.method, self.batch_tokens)
        lengths = np.array([len(ids) for ids in pairs.sentences])
        if not np.isfinite(log_probs[lengths <= model.max_seq_length - 2]).all():
            raise EvaluationError(
                f"{model.source}: gives NaN or infinite scores; its weights are damaged"
            )
        values = log_probs / lengths if self.per_token else log_probs
        scores = _compare(values[pairs.good], values[pairs.bad])
        shorter = 0 * lengths if self.per_token else -lengths
        uniform = _compare(shorter[pairs.good], shorter[pairs.bad])
        groups = _groups(rows)
        return EvaluationResult(
            metrics=_metrics(scores, uniform, groups),
            scores=scores,
            groups=groups,
            details={
                "good": values[pairs.good].tolist(),
                "bad": values[pairs.bad].tolist(),
                "good_tokens": lengths[pairs.good].tolist(),
                "bad_tokens": lengths[pairs.bad].tolist(),
            },
            # pairs of a paradigm are one template with other words
            clusters=[f"paradigm:{name}" for name in groups["paradigm"]],
            notes=_notes(scores, pairs, model, rows),
        )


@dataclass(frozen=True)
class _Pairs:
    """The pairs as numbers of sentences; each sentence is scored once.

    Attributes:
        sentences: the ids of U sentences without special tokens.
        good: ``(N,)`` number of each pair's acceptable sentence.
        bad: ``(N,)`` number of the other one.
    """

    sentences: list[tuple[int, ...]]
    good: IntArray
    bad: IntArray


def _encode(model: EvaluatedModel, rows: Sequence[Example]) -> _Pairs:
    numbers: dict[tuple[int, ...], int] = {}
    found: dict[str, list[int]] = {"good": [], "bad": []}
    for row in rows:
        for side, chosen in found.items():
            ids = tuple(text_ids(row.values[side], row, side, model.tokenizer))
            chosen.append(numbers.setdefault(ids, len(numbers)))
    return _Pairs(list(numbers), np.array(found["good"]), np.array(found["bad"]))


def sentence_scores(
    model: EvaluatedModel,
    sentences: Sequence[Sequence[int]],
    method: Method = "within_word_l2r",
    batch_tokens: int = 4096,
) -> FloatArray:
    """Return the score of each sentence, ``(U,)`` float64; NaN of those that are too long.

    Args:
        model: with a masked or a left-to-right language model.
        sentences: U lists of ids without special tokens; none may be empty.
        method: as of :class:`MinimalPairs`.
        batch_tokens: tokens that are encoded at a time.

    Raises:
        EvaluationError: the model has no language model.
    """
    _ = model.language_model  # or there is none
    scores = np.full(len(sentences), np.nan)
    room = model.max_seq_length - 2  # [CLS] and [SEP]
    by_length: dict[int, list[int]] = {}
    for number, ids in enumerate(sentences):
        if len(ids) <= room:
            by_length.setdefault(len(ids), []).append(number)
    batches: list[list[int]] = []
    for length, numbers in sorted(by_length.items()):
        # sentences of one length need no padding; 5 tokens make 5 masked copies of 7
        copies = 1 if model.encoder.causal else length
        most = max(1, batch_tokens // (copies * (length + 2)))
        batches += [numbers[start : start + most] for start in range(0, len(numbers), most)]
    for chosen in model.track(batches):
        inputs = np.array([model.tokenizer.build_inputs(sentences[n])[0] for n in chosen])
        scores[chosen] = _score(model, inputs, method, batch_tokens)
    return scores


def _score(model: EvaluatedModel, ids: IntArray, method: Method, batch_tokens: int) -> FloatArray:
    """Return the scores ``(S,)`` of S sentences of one length L, special tokens included."""
    sequences, length = ids.shape
    if model.encoder.causal:
        copies = ids
        # [CLS] a b [SEP]: a stands at 1, b at 2
        places = np.arange(sequences)[:, None] * length + np.arange(1, length - 1)
    else:
        copies = _masked_copies(ids, TokenClasses.of(model.tokenizer), method)
        # [CLS] a b [SEP]: copy 0 masks 1, copy 1 masks 4 + 2
        numbers = np.arange(sequences * (length - 2))
        places = (numbers * length + numbers % (length - 2) + 1).reshape(sequences, -1)
    # of N copies: (N, L - 2) of a left-to-right model, (N, 1) of a masked one
    places = places.reshape(len(copies), -1)
    labels = ids[:, 1:-1].reshape(len(copies), -1)
    found = []
    most = max(1, batch_tokens // length)  # the copies of a long sentence are read in parts
    for start in range(0, len(copies), most):
        part = slice(start, start + most)
        batch = _pack(copies[part]).to(model.device)
        # copies of 5 tokens, the part from copy 2 on: place 12 of all is 2 of the part
        read = (places[part] - start * length).reshape(-1)
        wanted = torch.from_numpy(labels[part].reshape(-1)).to(model.device)
        found.append(_log_probabilities(model, batch, read, wanted).double().cpu())
    # (S * (L - 2),) -> (S,)
    return np.asarray(torch.cat(found).numpy().reshape(sequences, -1).sum(1))


def _masked_copies(ids: IntArray, classes: TokenClasses, method: Method) -> IntArray:
    """Return ``(S * (L - 2), L)`` copies of ``(S, L)`` sentences, one masked in each."""
    length = ids.shape[1]
    inner = np.arange(1, length - 1)
    # (1, L - 2, L): copy i masks token i + 1
    masked = (inner[:, None] == np.arange(length))[None]
    if method == "within_word_l2r":
        # em ##bed ##s a -> words [0, 0, 0, 1]: the copy that predicts ##bed masks ##s too
        words = np.cumsum(classes.word_starts(ids), axis=1)  # (S, L)
        same = words[:, 1:-1, None] == words[:, None, :]  # (S, L - 2, L)
        masked = same & (np.arange(length) >= inner[:, None])
    copies = np.where(masked, classes.mask_id, ids[:, None, :])  # (S, L - 2, L)
    return copies.reshape(-1, length)


def _pack(ids: IntArray) -> PackedBatch:
    """Return ``(B, L)`` sequences of one length as a batch."""
    sequences, length = ids.shape
    flat = torch.from_numpy(np.ascontiguousarray(ids).reshape(-1))
    return PackedBatch(
        input_ids=flat,
        token_type_ids=torch.zeros_like(flat),
        position_ids=torch.arange(length).repeat(sequences),
        cu_seqlens=torch.arange(0, len(flat) + 1, length, dtype=torch.int32),
        max_seqlen=length,
    )


def _log_probabilities(
    model: EvaluatedModel, batch: PackedBatch, places: IntArray, labels: Tensor
) -> Tensor:
    """Return the log-probability of each label at its flat place, ``(K,)`` float32."""
    objective, offset = model.language_model
    read = torch.from_numpy(places + offset).to(model.device)
    with torch.no_grad():
        states = model.encoder(replace(batch, tokens_read=read)).tokens[read]  # (K, H)
    return objective.log_probabilities(states, labels)


def _compare(good: FloatArray | IntArray, bad: FloatArray | IntArray) -> FloatArray:
    """Return 1 where ``good`` is higher, 0.5 at a tie, 0 where it is lower; NaN of NaN."""
    difference = np.subtract(good, bad, dtype=np.float64)
    larger = np.maximum(np.abs(good), np.abs(bad))
    tied = np.abs(difference) <= _RESOLUTION * larger
    scores = np.where(tied, 0.5, (difference > 0).astype(np.float64))
    return np.where(np.isnan(difference), np.nan, scores)


def _groups(rows: Sequence[Example]) -> dict[str, list[str]]:
    """Return the groups that the rows name; a file without paradigms is one itself."""
    found = {}
    for kind in _GROUPS:
        missing = [row for row in rows if kind not in row.values]
        if not missing:
            found[kind] = [str(row.values[kind]) for row in rows]
        elif len(missing) < len(rows):
            raise DataError(
                f"{missing[0].where}: {kind}: found no value, and {len(rows) - len(missing):,} "
                f"other rows have one; expected a {kind} in each row, or in none"
            )
    if "paradigm" not in found:
        # blimp/wh_island.jsonl.gz:12 -> blimp/wh_island.jsonl.gz
        files = [row.where.rpartition(":")[0] or row.where for row in rows]
        names = {file: _without_ending(PurePath(file).name) for file in dict.fromkeys(files)}
        found["paradigm"] = [names[file] for file in files]
    return found


def _without_ending(file: str) -> str:
    """Return a file's name without its ending: ``wh_island`` of ``wh_island.jsonl.gz``."""
    name = PurePath(file).stem if is_packed(file) else file
    # en.agreement.csv -> en.agreement, which has no ending that is known
    return PurePath(name).stem if ending_format(name) is not None else name


def _metrics(
    scores: FloatArray, uniform: FloatArray, groups: Mapping[str, Sequence[str]]
) -> dict[str, float]:
    scored = ~np.isnan(scores)
    metrics = {
        "accuracy": _mean(scores[scored]),
        "uniform_accuracy": _mean(uniform[scored]),
        "ties": _mean((scores == 0.5)[scored].astype(np.float64)),
    }
    for kind, names in groups.items():
        means = [_mean(scores[each]) for each in _members(names, scored)]
        metrics[f"{kind}_accuracy"] = _mean(np.array(means))
    return metrics


def _members(names: Sequence[str], scored: npt.NDArray[np.bool_]) -> Iterator[IntArray]:
    # by number: an array of the names would have the length of the longest for each
    places = {name: number for number, name in enumerate(sorted(set(names)))}
    numbers = np.array([places[name] for name in names])
    for group in range(len(places)):
        members = np.flatnonzero((numbers == group) & scored)
        if len(members):
            yield members


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _notes(
    scores: FloatArray, pairs: _Pairs, model: EvaluatedModel, rows: Sequence[Example]
) -> list[str]:
    notes = []
    long = np.flatnonzero(np.isnan(scores))
    if len(long):
        notes.append(
            f"{len(long)} pairs have a sentence of more than {model.max_seq_length} tokens with "
            f"[CLS] and [SEP], and were not scored (the first: {rows[long[0]].where})"
        )
    equal = np.flatnonzero(pairs.good == pairs.bad)
    if len(equal):
        notes.append(
            f"both sentences of {len(equal)} pairs are the same tokens, which makes them ties "
            f"(the first: {rows[equal[0]].where})"
        )
    ties = Counter(scores.tolist())[0.5]
    if ties:
        notes.append(f"{ties} ties of {len(scores) - len(long)} pairs count one half each")
    return notes
