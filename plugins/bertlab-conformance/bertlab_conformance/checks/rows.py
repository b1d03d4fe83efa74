"""Checks of how a head reads rows, and of the predictions from ``decode`` and ``merge``."""

import copy
import json
import math

import numpy as np

from bertlab.api import BertlabError, DataError, Features, Head, PackedBatch
from bertlab.extend import Mapped, column_reader
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, NotApplicable, check
from bertlab_conformance.checks.building import USABLE
from bertlab_conformance.comparisons import difference, not_json
from bertlab_conformance.samples import without_truth
from bertlab_conformance.stack import MAX_LENGTH, Stack
from bertlab_conformance.task_cases import EvaluationCase, HeadCase, TaskCase


@check("head", after=("builds", "columns_are_declared", *USABLE))
def encode_fits_the_encoder(case: HeadCase) -> None:
    """``encode`` returns Features of ids below the vocabulary's size, no longer than allowed."""
    head = case.stack().head
    limit, size = MAX_LENGTH, case.language.tokenizer.vocab_size
    case.encoded(case.stack(), case.rows)
    for row in case.rows:
        for features in head.encode(row, case.language.tokenizer, limit):
            if not isinstance(features, Features):
                raise ConformanceFailure(
                    f"encode() returns a list of {type(features).__name__}",
                    "return a list of bertlab.api.examples.Features",
                )
            ids = np.asarray(features.input_ids)
            if not 0 < len(ids) <= limit or ids.min() < 0 or ids.max() >= size:
                raise ConformanceFailure(
                    f"{row.where}: {len(ids)} ids from {ids.min(initial=0)} to "
                    f"{ids.max(initial=0)}, with max_seq_length {limit} and {size} ids",
                    "cut the text so that it fits with its special tokens",
                )
            if len(features.token_type_ids) != len(ids):
                raise ConformanceFailure(
                    f"{row.where}: {len(features.token_type_ids)} token_type_ids for {len(ids)} "
                    "input_ids",
                    "take both from tokenizer.build_inputs(a, b)",
                )


@check("head", "evaluation", after=("columns_are_declared",))
def given_rows_are_readable(case: HeadCase | EvaluationCase) -> None:
    """Rows that the author gives would be read from a file as they are."""
    if case.options.rows is None:
        raise NotApplicable("no rows are given")
    for row in case.rows:
        for column in case.plugin.columns:
            if column.name not in row.values and not column.required:
                continue
            mapped = Mapped(column, column.name, column.name, None)
            try:  # caught: a list where a text is declared, a number that no file would give
                reader = column_reader(mapped)
                values = {**row.values, column.name: reader.read(row.values, row.where)}
                if column.of:
                    reader.settle(values, row.where)
            except DataError as error:
                raise ConformanceFailure(
                    f"no run would get this row: {error}",
                    f"give a value of the kind {column.kind!r}, or declare another kind",
                ) from error
            read = values[column.name]
            if column.name in row.values and read != row.values[column.name]:
                raise ConformanceFailure(
                    f"{row.where}: {column.name} is {row.values[column.name]!r}, and a run would "
                    f"get {read!r}",
                    "give what a run gets",
                )


@check("head", after=("encode_fits_the_encoder",))
def fields_fit_the_batch(case: HeadCase) -> None:
    """All Features have the same fields: numbers, or arrays as long as the sequence."""
    head = case.stack().head
    made = [f for row in case.rows for f in head.encode(row, case.language.tokenizer, MAX_LENGTH)]
    # caught: a field that only rows with an answer have, so that they cannot be laid end to end
    names = set(made[0].fields) | set(made[0].ragged)
    for features in made:
        if set(features.fields) | set(features.ragged) != names:
            raise ConformanceFailure(
                f"some sequences have the fields {sorted(names)}, others "
                f"{sorted([*features.fields, *features.ragged])}",
                "give all labelled sequences the same fields",
            )
        for name, value in features.fields.items():
            # a number is for the sequence; (tokens,) or (tokens, …) has a row for each token
            if np.ndim(value) and np.shape(value)[0] != len(features.input_ids):
                raise ConformanceFailure(
                    f"fields[{name!r}] has {np.shape(value)[0]} entries for "
                    f"{len(features.input_ids)} tokens",
                    "give one entry a token, a number for the sequence, or use Features.ragged",
                )


@check("head", after=("encode_fits_the_encoder",))
def encode_keeps_to_any_limit(case: HeadCase) -> None:
    """Whatever ``max_seq_length`` is, no sequence is longer; too small a one is a BertlabError."""
    head = case.stack().head
    # caught: cutting to limit and then adding [CLS] and [SEP]: two tokens too many
    for limit in (5, 8, 12, 24, 48):
        for row in case.rows:
            try:
                made = head.encode(row, case.language.tokenizer, limit)
            except BertlabError:
                continue
            longest = max((len(features.input_ids) for features in made), default=0)
            if longest > limit:
                raise ConformanceFailure(
                    f"{row.where}: {longest} tokens, though max_seq_length is {limit}",
                    "leave room for [CLS] and [SEP] when cutting",
                )


@check("head", after=("encode_fits_the_encoder",))
def encode_repeats(case: HeadCase) -> None:
    """``encode`` gives the same Features again, and leaves the row as it is."""
    head = case.stack().head
    for row in case.rows:
        # caught: row.values["tokens"].insert(0, "[CLS]"), which grows at each epoch
        before = copy.deepcopy(dict(row.values))
        one, other = (head.encode(row, case.language.tokenizer, MAX_LENGTH) for _ in range(2))
        found = difference([_plain(f) for f in one], [_plain(f) for f in other])
        if found:
            raise ConformanceFailure(
                f"{row.where}: encode() differs the second time: {found.strip()}",
                "draw nothing in encode(), and keep nothing of other rows",
            )
        found = difference(before, dict(row.values))
        if found:
            raise ConformanceFailure(
                f"{row.where}: encode() changes the row: {found.strip()}",
                "work on a copy of lists and dicts in row.values",
            )


@check("head", after=("encode_fits_the_encoder",))
def labels_are_names(case: HeadCase) -> None:
    """``labels_of`` gives the class names of a row as texts."""
    for row in case.rows:
        names = list(case.new().labels_of(row))
        wrong = [name for name in names if not isinstance(name, str)]
        if wrong:
            raise ConformanceFailure(
                f"{row.where}: labels_of() gives {wrong[0]!r}",
                "yield str(…) of every class name in the row",
            )


@check("head", after=("decodes",))
def merges_to_rows(case: HeadCase) -> None:
    """``merge`` makes one dict of each row's predictions, which can be written as JSON."""
    predictions = row_predictions(case, case.stack(), labelled=True)
    _check_predictions(predictions)


@check("head", after=("merges_to_rows", "decodes_without_truth"))
def merges_without_truth(case: HeadCase) -> None:
    """``merge`` predicts rows without their truth, as ``predict`` needs it."""
    try:
        predictions = row_predictions(case, case.stack(), labelled=False)
    except KeyError as error:
        raise ConformanceFailure(
            f"merge() of a row without truth raises KeyError: {error}",
            "read only columns that are not the truth",
        ) from error
    _check_predictions(predictions)


@check("head", after=("merges_to_rows",))
def scores_are_named(case: HeadCase) -> None:
    """``score`` returns a float for every name of ``score_names``, and no metric's name."""
    stack = case.stack()
    head = stack.head
    names = list(head.score_names())
    if not names:
        raise NotApplicable("the head scores no whole rows")
    scores = head.score(case.rows, row_predictions(case, stack, labelled=True))
    if sorted(scores) != sorted(names):
        raise ConformanceFailure(
            f"score_names() gives {sorted(names)}, score() {sorted(scores)}",
            "let both give the same names",
        )
    both = set(names) & {"loss", *head.metrics()}
    if both:
        raise ConformanceFailure(
            f"{', '.join(sorted(both))} is in metrics() and in score_names()", "rename one"
        )
    for name, value in scores.items():
        if not isinstance(value, float):
            raise ConformanceFailure(
                f"score()[{name!r}] is a {type(value).__name__}", "return float(…)"
            )


@check("head", after=("merges_to_rows", "metrics_take_the_predictions"))
def row_scores_mean_the_metric(case: HeadCase) -> None:
    """``row_scores`` gives a number for each row, whose mean is the metric; else None."""
    if case.plugin.row_scores is Head.row_scores:
        raise NotApplicable("the head gives no scores of rows")
    stack = case.stack()
    head, made = stack.head, row_predictions(case, stack, labelled=True)
    values = {"no_such_metric": math.nan, **head.score(case.rows, made)}
    loss = stack.loss(case.all(stack))
    for name, metric in head.metrics().items():
        loss.update(metric)
        values[name] = float(metric.compute())
    truth = {column.name for column in case.plugin.columns if column.is_truth}
    golds = [{n: v for n, v in row.values.items() if n in truth} for row in case.rows]
    lines = [{**each, "gold": gold} for each, gold in zip(made, golds, strict=True)]
    rows = json.loads(json.dumps(lines))  # as a study reads them, with a head that is not built
    for name, value in values.items():
        try:
            found = case.new().row_scores(name, rows)
        except Exception as error:
            raise ConformanceFailure(
                f"row_scores({name!r}, …) raises {type(error).__name__}: {error}",
                "return None of a metric that it does not know; read the rows alone, as the head "
                "is not built",
            ) from error
        if found is None:
            continue
        scores = np.asarray(found, np.float64)
        if scores.shape != (len(rows),) or not abs(scores.mean() - value) < SAME_METRIC:
            raise ConformanceFailure(
                f"row_scores({name!r}, …) gives {scores.size} numbers of {len(rows)} rows, whose "
                f"mean is {scores.mean():.6g}; the metric is {value:.6g}",
                "return one number for each row, whose mean is the metric; of a ratio of two sums, "
                "a / b, that is ratio + (a - ratio * b) / b.mean()",
            )


@check("head", after=("merges_to_rows", "saved_and_restored_is_the_same"))
def tuned_values_are_saved(case: HeadCase) -> None:
    """What ``tune`` chooses is in the ``state_dict``, so that a checkpoint predicts the same."""
    if case.plugin.tune is Head.tune:
        raise NotApplicable("the head tunes nothing")
    stack, restored = case.stack(), case.stack()
    stack.head.tune(case.rows, row_predictions(case, stack, labelled=True))
    # caught: self.threshold = 0.4, a plain number that no checkpoint has
    restored.load(stack.state())
    one, other = (row_predictions(case, each, labelled=True) for each in (stack, restored))
    found = difference(one, other)
    if found:
        raise ConformanceFailure(
            f"predictions of a tuned head differ after it was restored: {found.strip()}",
            "keep what tune() chooses in a buffer: self.register_buffer(…), then .fill_(…)",
        )


def row_predictions(case: HeadCase, stack: Stack, labelled: bool) -> list[dict[str, object]]:
    """Return the prediction of every row that has sequences."""
    head = stack.head
    rows = case.rows if labelled else without_truth(case.plugin.columns, case.rows)
    batch = case.batch_of(stack, rows)
    parts: dict[int, list[dict[str, object]]] = {}
    for number, prediction in zip(batch.fields["row"].tolist(), stack.decode(batch), strict=True):
        parts.setdefault(number, []).append(prediction)
    return [head.merge(rows[number], parts[number]) for number in sorted(parts)]


def _check_predictions(predictions: list[dict[str, object]]) -> None:
    for prediction in predictions:
        reason = not_json(prediction)
        if not isinstance(prediction, dict) or reason:
            raise ConformanceFailure(
                f"merge() returns {str(prediction)[:80]}" + (f": {reason}" if reason else ""),
                "return a dict of texts, numbers, lists and dicts: .tolist() of tensors, no NaN",
            )


def _plain(features: Features) -> dict[str, object]:
    values = {**features.fields, **features.ragged}
    named = {name: np.asarray(value).tolist() for name, value in values.items()}
    return {"ids": list(map(int, features.input_ids)), "count": features.count, **named}


SAME_METRIC = 1e-5  # metrics are computed in float32; a study asks for as much

_TRUTH_ADVICE = "read no field in decode() that is made from the truth; predict has none of them"


@check(*TASK_KINDS, after=("loss_is_a_finite_scalar",))
def decodes(case: TaskCase) -> None:
    """``decode`` returns a list with one dict for each sequence, which can be written as JSON."""
    stack = case.stack()
    _decoded(stack, case.all(stack))


@check(*TASK_KINDS, after=("decodes",))
def decodes_without_truth(case: TaskCase) -> None:
    """``decode`` needs no field that is made from the truth, nor what ``prepare`` writes."""
    stack = case.stack()
    batch = case.unlabelled(stack)
    try:
        _decoded(stack, batch)
    except (KeyError, AttributeError, TypeError) as error:
        raise ConformanceFailure(
            f"decode() of new text raises {type(error).__name__}: {error}; the batch has the "
            f"fields {', '.join(batch.fields) or 'of no task'}",
            _TRUTH_ADVICE,
        ) from error


@check(*TASK_KINDS, after=("decodes_without_truth", "evaluation_repeats"))
def decoding_repeats(case: TaskCase) -> None:
    """``decode`` gives the same twice, also with a loss in between."""
    stack = case.stack()
    batch = case.unlabelled(stack)
    first = stack.decode(batch)
    stack.loss(case.all(stack))
    found = difference(first, stack.decode(batch))
    if found:
        raise ConformanceFailure(
            f"decode() of one batch differs the second time: {found.strip()}",
            "keep nothing of a batch in the task, and draw nothing in evaluation mode",
        )


def _decoded(stack: Stack, batch: PackedBatch) -> None:
    predictions = stack.decode(batch)
    if not isinstance(predictions, list) or not all(isinstance(p, dict) for p in predictions):
        raise ConformanceFailure(
            f"decode() returns {type(predictions).__name__} {str(predictions)[:80]}",
            "return a list with a dict for each sequence",
        )
    if len(predictions) != len(batch):
        raise ConformanceFailure(
            f"decode() returns {len(predictions)} dicts for {len(batch)} sequences",
            "return a dict for each of len(batch) sequences, an empty one where there is nothing "
            "to say",
        )
    reason = not_json(predictions)
    if reason:
        raise ConformanceFailure(
            f"predictions cannot be written as JSON: {reason}",
            "return texts, numbers, lists and dicts: .tolist() of tensors, no NaN or infinity",
        )
