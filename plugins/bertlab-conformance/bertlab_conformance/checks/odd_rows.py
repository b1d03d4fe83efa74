"""Checks of heads on rows that are unusual or wrong."""

from collections.abc import Sequence

import numpy as np

from bertlab import encode_examples
from bertlab.api import BertlabError, Column, DataError, Example
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.samples import changed, sample_rows, without_truth
from bertlab_conformance.stack import MAX_LENGTH, Stack
from bertlab_conformance.task_cases import TASK, HeadCase

# where characters, code points and tokens are not one to one, or a text is far too long
_ODD_TEXTS = {
    "an emoji": "\U0001f600",
    "Chinese characters": "\u6211\u559c\u6b22",
    "combining marks": "e\u0301a\u0300",
    "a word of 300 letters": "x" * 300,
    "a no-break space": "the\u00a0house",
    "500 words": "the house " * 250,
    "the text [MASK]": "[MASK] house",
}
_ADVICE = (
    "check the value in encode() and raise bertlab.errors.DataError with row.where and the column"
)


@check("head", after=("loss_is_a_finite_scalar", "labels_are_names"))
def unknown_label_is_an_error(case: HeadCase) -> None:
    """A label or tag that training has not is a DataError that names the row and the column."""
    stack = case.stack()
    row = case.rows[0]
    columns = _class_columns(case)
    if not columns:
        raise NotApplicable("the head has no labels or tags")
    for column in columns:
        wrong: object = "no such label"
        if column.kind == "tags":
            # one for each word: their number is right, only the names are not
            wrong = [wrong] * len(row.values[column.name])
        if column.kind == "labels":
            wrong = [wrong]
        try:
            _encode(case, stack, changed(row, column, wrong))
        except DataError as error:
            if row.where not in str(error) or column.name not in str(error):
                raise ConformanceFailure(
                    f"the error is {str(error)!r}",
                    f"name row.where ({row.where}) and the column ({column.name}) in it",
                ) from error
        else:
            raise ConformanceFailure(
                f"{column.name}: 'no such label' is encoded without an error",
                "look labels up with self.labels.id_of(label, row.where, column)",
            )


@check("head", after=("loss_is_a_finite_scalar",))
def wrong_truth_is_no_traceback(case: HeadCase) -> None:
    """Truth that is empty or malformed is a BertlabError, or is dealt with."""
    stack = case.stack()
    read = ("number", "numbers", "span")  # the readers refuse what is wrong of these
    truth = [each for each in case.plugin.columns if each.is_truth and each.kind not in read]
    for column in truth:
        for value in _wrong_values(column):
            _encode_or_refuse(case, stack, changed(case.rows[0], column, value), column)


@check("head", after=("decodes", "decodes_without_truth"))
def empty_text_is_no_traceback(case: HeadCase) -> None:
    """A text without words is a BertlabError, or is predicted."""
    stack = case.stack()
    for column in case.plugin.columns:
        if column.is_truth or column.kind not in ("text", "texts"):
            continue
        # a zero-width space is no whitespace for str.strip(), but the tokenizer drops it
        for value in ("", "   ", "\u200b") if column.kind == "text" else ([], [""]):
            row = changed(_unlabelled(case), column, value)
            _predict_or_refuse(case, stack, row, f"{column.name} = {value!r}")


@check("head", after=("decodes", "decodes_without_truth", "encode_keeps_to_any_limit"))
def odd_text_is_read(case: HeadCase) -> None:
    """Emoji, foreign scripts, overlong words and texts are predicted, or a BertlabError."""
    stack = case.stack()
    for column in case.plugin.columns:
        if column.is_truth or column.kind not in ("text", "texts"):
            continue
        for words, text in _ODD_TEXTS.items():
            value = text if column.kind == "text" else [*text.split()[:60], "the"]
            row = changed(_unlabelled(case), column, value)
            _predict_or_refuse(case, stack, row, f"{column.name} = {words}")


@check("head", after=("loss_is_a_finite_scalar",))
def many_classes_work(case: HeadCase) -> None:
    """It is built, trained and evaluated with 120 classes."""
    tags = [column for column in case.plugin.columns if column.is_truth and column.kind == "tags"]
    for column in tags:
        if column not in _class_columns(case):
            raise NotApplicable(
                f"the kit cannot make values of {column.name}, which names no classes"
            )
    rows = sample_rows(case.plugin.columns, case.language, 120, words=4, classes=120)
    labels = case.labels(rows)
    if labels is None or len(labels) < 100:
        raise NotApplicable("the data does not decide how many classes there are")
    other = HeadCase(case.plugin, case.options)
    other.rows = rows
    stack = other.stack()
    loss = stack.loss(other.all(stack))
    if not loss.sum.isfinite():
        raise ConformanceFailure(
            f"the loss of {len(rows)} rows of {len(labels)} classes is {loss.sum.item()}",
            "make as many outputs as len(context.labels)",
        )


@check("head", after=("loss_is_a_finite_scalar",))
def one_class_is_no_traceback(case: HeadCase) -> None:
    """Training rows that all have one label are a BertlabError, or are trained on."""
    rows = [row for row in case.rows for _ in range(2)]
    for column in _class_columns(case):
        if column.kind == "label":
            rows = [changed(row, column, case.rows[0].values[column.name]) for row in rows]
        elif column.kind == "labels":
            rows = [changed(row, column, ["only"]) for row in rows]
        else:
            rows = [changed(row, column, ["O"] * len(row.values[column.name])) for row in rows]
    other = HeadCase(case.plugin, case.options)
    other.rows = rows
    try:
        stack = other.stack()
        loss = stack.loss(other.all(stack))
    except BertlabError:
        return
    if not loss.sum.isfinite():
        raise ConformanceFailure(f"the loss of one class is {loss.sum.item()}", _ADVICE)


@check("head", after=("loss_is_a_finite_scalar", "empty_text_is_no_traceback"))
def messages_name_the_row(case: HeadCase) -> None:
    """Rows that cannot be used are named by file and line."""
    stack = case.stack()
    for column in case.plugin.columns:
        if column.is_truth or column.kind != "text" or not column.required:
            continue
        row = changed(case.rows[0], column, "")
        try:
            _encode(case, stack, row)
        except DataError as error:
            if row.where not in str(error):
                raise ConformanceFailure(
                    f"an empty {column.name} is refused with {str(error)!r}",
                    f"name row.where ({row.where}) in the message",
                ) from error


def _class_columns(case: HeadCase) -> list[Column]:
    """Return the columns of truth that name classes; tags may be numbers, as of a word's parent."""
    names = set(labels.names) if (labels := case.labels(case.rows)) is not None else set()
    return [
        column
        for column in case.plugin.columns
        if column.is_truth
        and column.kind in ("label", "labels", "tags")
        and (
            column.kind != "tags"
            or any(names.intersection(map(str, row.values[column.name])) for row in case.rows)
        )
    ]


def _wrong_values(column: Column) -> Sequence[object]:
    match column.kind:
        case "label":
            # 1e400 is a number that becomes infinity, nan one that passes most comparisons
            return ["", " ", "-1", "1e400", "nan"]
        case "tags":
            return [[], ["O"] * 500, [""]]
        case "labels":
            return [[], [""], "", ["no such label"] * 500]
        case "answers":
            # an answer that is not there, one behind the end, and fewer starts than texts
            nowhere = {"text": ["is nowhere in the text"], "answer_start": [0]}
            far = {"text": ["the"], "answer_start": [10_000]}
            uneven = {"text": ["the"], "answer_start": []}
            return [{"text": [], "answer_start": []}, nowhere, far, uneven]
        case "texts":
            return [[], [""]]
        case _:
            return ["", "\u200b"]


def _encode(case: HeadCase, stack: Stack, row: Example) -> None:
    stack.head.encode(row, case.language.tokenizer, MAX_LENGTH)


def _encode_or_refuse(case: HeadCase, stack: Stack, row: Example, column: Column) -> None:
    try:
        _encode(case, stack, row)
    except BertlabError:
        return
    except Exception as error:
        raise ConformanceFailure(
            f"{column.name} = {str(row.values[column.name])[:60]!r} raises "
            f"{type(error).__name__}: {error}",
            _ADVICE,
        ) from error


def _predict_or_refuse(case: HeadCase, stack: Stack, row: Example, words: str) -> None:
    try:
        encoded = encode_examples(stack.head, [row], case.language.tokenizer, MAX_LENGTH)
        if len(encoded):
            batch, _ = encoded.batch(np.arange(len(encoded)), TASK)
            stack.head.merge(row, stack.decode(batch))
    except BertlabError:
        return
    except Exception as error:
        raise ConformanceFailure(
            f"{words} raises {type(error).__name__}: {error}", _ADVICE
        ) from error


def _unlabelled(case: HeadCase) -> Example:
    return without_truth(case.plugin.columns, case.rows[:1])[0]
