"""Checks of ``prepare``, and that the sequences of a batch do not influence each other."""

import copy
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from bertlab.api import PackedSequences
from bertlab_conformance.check import TASK_KINDS, ConformanceFailure, NotApplicable, check
from bertlab_conformance.checks.building import USABLE
from bertlab_conformance.comparisons import close, difference, fits_together
from bertlab_conformance.stack import Stack
from bertlab_conformance.task_cases import TASK, ObjectiveCase, TaskCase

_KEY_ADVICE = (
    "draw with rng.uniform(…), .integers(…) or .bits(…), keyed by sequences.epochs and .indices "
    "(and position_ids), repeated by sequences.lengths for tokens; never by the place in the batch"
)
_LAYOUT = ("cu_seqlens", "position_ids", "epochs", "indices")
_TEXT = ("token_type_ids", "corpus_offsets")


@check("objective", after=("builds", *USABLE))
def prepare_returns_a_count(case: ObjectiveCase) -> None:
    """``prepare`` returns how many predictions ``loss`` will make, an int."""
    for training in (True, False):
        sequences = case.prepare(case.stack().task, case.sequences(case.units), training)
        count = sequences.counts[TASK]
        if type(count) is not int or count < 0:
            raise ConformanceFailure(
                f"prepare(…, training={training}) returns {count!r}",
                "return the number of predictions as an int: len(positions), int(mask.sum())",
            )


@check("objective", after=("prepare_returns_a_count",))
def prepare_writes_arrays(case: ObjectiveCase) -> None:
    """``fields`` holds NumPy arrays of numbers or booleans that torch can compute with."""
    sequences = case.prepare(case.stack().task, case.sequences(case.units))
    for name, values in sequences.fields.items():
        if not isinstance(values, np.ndarray) or values.dtype.kind not in "biuf":
            shown = getattr(values, "dtype", type(values).__name__)
            raise ConformanceFailure(
                f"fields[{name!r}] is {shown}", "write a NumPy array of numbers or booleans"
            )
        if values.dtype.kind == "u" and values.dtype != np.uint8:
            raise ConformanceFailure(
                f"fields[{name!r}] is {values.dtype}, which torch hardly computes with",
                "write .astype(np.int64)",
            )


@check("objective", after=("prepare_writes_arrays",))
def directions_are_asked_for(case: ObjectiveCase) -> None:
    """``fields["causal"]`` is ``(B,)`` bool, of an encoder that is required to read directions."""
    sequences = case.prepare(case.stack().task, case.sequences(case.units))
    causal = sequences.fields.get("causal")
    if causal is None:
        return
    if causal.dtype != bool or causal.shape != sequences.lengths.shape:
        raise ConformanceFailure(
            f"fields['causal'] is {causal.shape} {causal.dtype}",
            f"write {sequences.lengths.shape} bool, one for each sequence; encoders read the field",
        )
    if not case.plugin.requires_encoder.get("reads_directions"):
        raise ConformanceFailure(
            "prepare() writes fields['causal'], which most encoders do not read",
            "set requires_encoder = {'reads_directions': True}, so that others are refused",
        )


@check("objective", after=("prepare_returns_a_count",))
def prepare_leaves_the_layout_alone(case: ObjectiveCase) -> None:
    """``prepare`` changes no lengths and positions; text moves only if ``rearranges_input``."""
    fresh = case.sequences(case.units)
    prepared = case.prepare(case.stack().task, case.sequences(case.units))
    names = _LAYOUT if case.plugin.rearranges_input else (*_LAYOUT, *_TEXT)
    for name in names:
        if not np.array_equal(getattr(fresh, name), getattr(prepared, name)):
            raise ConformanceFailure(
                f"prepare() changes {name}",
                "write labels into fields; an objective that moves text inside its sequence says "
                "rearranges_input = True",
            )
    tokenizer = case.language.tokenizer
    ends = np.isin(fresh.input_ids, [tokenizer.cls_id, tokenizer.sep_id])  # (T,) bool
    moved = fresh.input_ids[ends] != prepared.input_ids[ends]
    if moved.any() and not case.plugin.rearranges_input:
        raise ConformanceFailure(
            f"prepare() overwrites {int(moved.sum())} of {int(ends.sum())} [CLS] and [SEP]",
            "leave out tokens whose corpus_offsets are -1",
        )


@check("objective", after=("prepare_leaves_the_layout_alone",))
def rewritten_input_has_the_same_layout(case: ObjectiveCase) -> None:
    """``rewrite_input`` returns a batch of the same sequences, each as long as before."""
    stack = case.stack()
    batch = case.batch(stack, case.units)
    rewritten = stack.rewritten(batch)
    # caught: every sequence twice in a row, for two passes of a contrastive loss
    if not torch.equal(batch.cu_seqlens, rewritten.cu_seqlens):
        raise ConformanceFailure(
            f"rewrite_input() makes {len(rewritten)} sequences of {len(rewritten.input_ids)} "
            f"tokens out of {len(batch)} of {len(batch.input_ids)}, and the places that other "
            "objectives wrote into fields are wrong",
            "encode a second batch in loss(): output.encode(other_batch)",
        )


@check(
    "objective", after=("prepare_leaves_the_layout_alone", "rewritten_input_has_the_same_layout")
)
def corrupts_input_is_true(case: ObjectiveCase) -> None:
    """``corrupts_input`` says whether ``prepare`` or ``rewrite_input`` overwrites ``input_ids``."""
    stack = case.stack()
    fresh = case.sequences(case.units)
    prepared = case.prepare(stack.task, case.sequences(case.units))
    batch = case.batch(stack, case.units)
    rewritten = stack.rewritten(batch)
    in_prepare = int((fresh.input_ids != prepared.input_ids).sum())
    on_device = int((batch.input_ids != rewritten.input_ids).sum())
    if case.plugin.corrupts_input or case.plugin.rearranges_input:
        if case.plugin.corrupts_input and not in_prepare + on_device:
            raise ConformanceFailure(
                f"corrupts_input is True, but no id of {len(fresh.input_ids)} is overwritten",
                "set corrupts_input = False, so that the objective goes together with mlm",
            )
    elif in_prepare + on_device:
        where = "prepare()" if in_prepare else "rewrite_input()"
        raise ConformanceFailure(
            f"{where} overwrites {in_prepare or on_device} of {len(fresh.input_ids)} ids, but "
            "corrupts_input is False",
            "set corrupts_input = True, so that no second objective of a run overwrites them too; "
            "or work on a copy",
        )


@check("objective", after=("prepare_leaves_the_layout_alone",))
def rearranged_text_is_the_same_text(case: ObjectiveCase) -> None:
    """With ``rearranges_input``, each sequence keeps its tokens, in some order."""
    fresh = case.sequences(case.units)
    prepared = case.prepare(case.stack().task, case.sequences(case.units))
    if not case.plugin.rearranges_input or case.plugin.corrupts_input:
        return
    for number, (start, stop) in enumerate(
        zip(fresh.cu_seqlens[:-1], fresh.cu_seqlens[1:], strict=True)
    ):
        # sorted: [7, 3, 3] and [3, 7, 3] are the same tokens, [7, 7, 3] are not
        before, after = (np.sort(each.input_ids[start:stop]) for each in (fresh, prepared))
        if not np.array_equal(before, after):
            raise ConformanceFailure(
                f"sequence {number} of {stop - start} tokens has other tokens afterwards",
                "only move tokens inside their sequence, corpus_offsets with them",
            )


@check("objective", after=("prepare_returns_a_count",))
def prepare_leaves_other_fields_alone(case: ObjectiveCase) -> None:
    """``prepare`` keeps the fields that the sampler and other objectives wrote."""
    fresh = case.sequences(case.units)
    # caught: sequences.fields = {"mine": …}, which throws the others' fields away
    theirs = {"other_labels": np.arange(len(fresh.indices)), **copy.deepcopy(fresh.fields)}
    fresh.fields |= copy.deepcopy(theirs)
    prepared = case.prepare(case.stack().task, fresh)
    for name, values in theirs.items():
        kept = prepared.fields.get(name)
        if kept is None or not np.array_equal(kept, values):
            raise ConformanceFailure(
                f"prepare() changes fields[{name!r}], which is not its own",
                "begin the names of its fields with the objective's name, and replace no others",
            )


@check("objective", after=("prepare_returns_a_count",))
def prepare_leaves_global_random_numbers_alone(case: ObjectiveCase) -> None:
    """``prepare`` draws nothing from the global generators of Python, NumPy and torch."""
    task = case.stack().task
    before = _global_states()
    case.prepare(task, case.sequences(case.units))
    for name, state in _global_states().items():
        if state != before[name]:
            raise ConformanceFailure(
                f"prepare() draws from {name}, so that a run depends on its workers and cannot be "
                "resumed",
                _KEY_ADVICE,
            )


@check("objective", after=("prepare_leaves_global_random_numbers_alone",))
def prepare_repeats(case: ObjectiveCase) -> None:
    """``prepare`` labels the same sequences in the same way, however often it is called."""
    for training in (True, False):
        task = case.stack().task
        one, other = (case.prepare(task, case.sequences(case.units), training) for _ in range(2))
        name = _first_difference(one, other)
        if name:
            raise ConformanceFailure(
                f"prepare(…, training={training}) gives other {name} the second time",
                _KEY_ADVICE,
            )


@check(
    "objective",
    after=("prepare_repeats", "prepare_writes_arrays", "prepare_leaves_the_layout_alone"),
)
def prepare_does_not_depend_on_the_batch(case: ObjectiveCase) -> None:
    """A sequence is labelled as if it were alone in its batch."""
    stack = case.stack()
    for training in (True, False):
        _compare_with_parts(case, stack, training)


def _compare_with_parts(case: ObjectiveCase, stack: Stack, training: bool) -> None:
    whole = case.prepare(stack.task, case.sequences(case.units), training)
    # caught: rng drawn once for the whole batch, so that a label depends on its neighbours
    parts = [case.prepare(stack.task, case.sequences([u]), training) for u in case.units]
    words = f"(training={training}) packed against one by one"
    ids = np.concatenate([part.input_ids for part in parts])
    if not np.array_equal(whole.input_ids, ids):
        different = int((whole.input_ids != ids).sum())
        raise ConformanceFailure(f"{different} of {len(ids)} ids differ {words}", _KEY_ADVICE)
    counts = whole.counts[TASK], sum(part.counts[TASK] for part in parts)
    if counts[0] != counts[1]:
        raise ConformanceFailure(f"{counts[0]} and {counts[1]} predictions {words}", _KEY_ADVICE)
    odd = [name for name in whole.fields if not _fits(name, whole, parts)]
    if not odd:
        return
    # a layout that the kit does not know: the loss knows it
    losses = [stack.loss(part.to_batch()).sum.item() for part in parts]
    if not close(stack.loss(whole.to_batch()).sum.item(), sum(losses)):
        raise ConformanceFailure(f"fields {', '.join(odd)} differ {words}", _KEY_ADVICE)


def _fits(name: str, whole: PackedSequences, parts: list[PackedSequences]) -> bool:
    arrays = [part.fields[name] for part in parts if name in part.fields]
    starts = whole.cu_seqlens[:-1]
    return len(arrays) == len(parts) and fits_together(whole.fields[name], arrays, starts)


def _first_difference(one: PackedSequences, other: PackedSequences) -> str | None:
    if not np.array_equal(one.input_ids, other.input_ids):
        return "input_ids"
    if one.counts != other.counts:
        return f"counts ({one.counts[TASK]}, {other.counts[TASK]})"
    for name, values in one.fields.items():
        theirs = other.fields.get(name)
        # bytes: NaN equals NaN
        if theirs is None or values.tobytes() != theirs.tobytes():
            return f"fields[{name!r}]"
    return None


def _global_states() -> dict[str, str]:
    return {
        "random": repr(random.getstate()),
        "np.random": repr(np.random.get_state(legacy=False)),  # noqa: NPY002
        "torch": str(torch.get_rng_state().tolist()),
    }


_ADVICE = (
    "use batch.cu_seqlens, batch.lengths or batch.pad(…) so that nothing is computed over the "
    "sequences of a batch together; tokens of all of them lie end to end. A contrastive loss says "
    "compares_sequences = True"
)


@check(*TASK_KINDS, after=("loss_is_a_sum", "evaluation_repeats"))
def loss_does_not_leak(case: TaskCase) -> None:
    """The loss of a batch is the sum of the losses of its sequences, each alone."""
    if case.plugin.compares_sequences:
        raise NotApplicable("compares_sequences is True")
    stack = case.stack()
    # caught: the first token of a sequence, predicted from the last one of its neighbour
    packed = stack.loss(case.all(stack))
    alone = [stack.loss(batch) for batch in case.each(stack)]
    total = sum(loss.sum.item() for loss in alone)
    if sum(loss.count for loss in alone) != packed.count:
        raise ConformanceFailure(
            f"count is {packed.count} packed and {sum(loss.count for loss in alone)} one by one",
            _ADVICE,
        )
    if not close(packed.sum.item(), total):
        raise ConformanceFailure(
            f"sum is {packed.sum.item():.6g} packed and {total:.6g} one by one", _ADVICE
        )


@check(*TASK_KINDS, after=("decodes", "loss_does_not_leak", "one_sequence_works"))
def predictions_do_not_leak(case: TaskCase) -> None:
    """Each sequence of a batch is predicted as if it were alone."""
    stack = case.stack()
    packed = stack.decode(case.all(stack))
    alone = [prediction for batch in case.each(stack) for prediction in stack.decode(batch)]
    _same(packed, alone, "packed against alone")


@check(*TASK_KINDS, after=("predictions_do_not_leak",))
def neighbours_do_not_matter(case: TaskCase) -> None:
    """Other words in one sequence change no prediction for the others."""
    stack = case.stack()
    batch = case.all(stack)
    before = stack.decode(batch)
    units = _sequences_of_first_unit(case, stack)
    # cu_seqlens [0, 9, 14], one sequence of the first row: tokens 1 to 7, not [CLS] and [SEP]
    changed = slice(1, int(batch.cu_seqlens[units]) - 1)
    special = torch.from_numpy(case.language.tokenizer.special_mask)
    ids = batch.input_ids.clone()
    # places in the batch; + 1 as the slice begins there
    words = (~special[ids[changed]]).nonzero().squeeze(-1) + 1
    ids[words] = ids[words].flip(0)
    after = stack.decode(replace(batch, input_ids=ids))
    _same(before[units:], after[units:], "before against after a change in another sequence")


@check(*TASK_KINDS, after=("loss_does_not_leak",))
def order_does_not_matter(case: TaskCase) -> None:
    """The sequences of a batch in another order have the same loss and predictions."""
    stack = case.stack()
    # caught: a softmax over the batch, the first sequence taken for a special one
    backwards = list(reversed(case.units))
    one, other = case.all(stack), case.batch(stack, backwards)
    losses = [stack.loss(batch).sum.item() for batch in (one, other)]
    if not close(*losses):
        raise ConformanceFailure(
            f"sum is {losses[0]:.6g}, and {losses[1]:.6g} in the reverse order", _ADVICE
        )
    if len(one) == len(case.units):  # a unit may be several sequences
        predictions = stack.decode(other)[::-1]
        _same(stack.decode(one), predictions, "in order against in reverse order")


def _same(one: Sequence[dict[str, Any]], other: Sequence[dict[str, Any]], words: str) -> None:
    found = difference(list(one), list(other))
    if found:
        raise ConformanceFailure(f"decode() differs, {words}: {found.strip()}", _ADVICE)


def _sequences_of_first_unit(case: TaskCase, stack: Stack) -> int:
    return len(case.batch(stack, [case.units[0]]))
