"""``conformance``: a test function with one case for each check of a plugin's kind."""

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from bertlab.errors import PluginError, nearest
from bertlab.plugins.index import Kind

if TYPE_CHECKING:
    from bertlab.api.batch import PackedBatch
    from bertlab.api.encoder import Encoder
    from bertlab.api.examples import Features


def conformance(
    plugin: type[Any] | str,
    *,
    arguments: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    vocabulary: Sequence[str] | None = None,
    encoder: "Callable[[int], Encoder] | None" = None,
    skip: Mapping[str, str] | None = None,
) -> Callable[[str], None]:
    """Return a test function that checks a plugin's class against the contract of its kind.

    One line in a test file runs all checks, each a test case with the check's name as its id::

        test_conformance = conformance(MyObjective)

    Args:
        plugin: subclass of Encoder, Objective, Head, DataSource or torchmetrics' Metric, or the
            entry-point name of an installed one.
        arguments: of its ``__init__``; for an encoder, small sizes. The defaults if not given. Of
            a source: ``argument``, what stands behind the colon, and the ``split`` to read.
        rows: labelled rows of a head, its columns by name; made for the declared columns if not
            given. Of a metric: batches ``{"preds": …, "target": …}``; class ids if not given.
        vocabulary: tokens of the tokenizer, BERT's special tokens among them; a small English
            vocabulary if not given.
        encoder: makes the encoder that a task needs from the vocabulary's size; a tiny BertEncoder
            if not given.
        skip: checks that do not apply, with the reason.

    Raises:
        PluginError: the class is of no kind, the name is not installed, ``skip`` names no check,
            or an option has no use for the kind.
    """
    import pytest  # noqa: PLC0415  the plugin is loaded before pytest is needed

    from bertlab.testing.catalogue import checks_of, make_case  # noqa: PLC0415  imports torch
    from bertlab.testing.outcomes import CheckRunner  # noqa: PLC0415
    from bertlab.testing.plugin_kinds import find_plugin  # noqa: PLC0415

    kind, found = find_plugin(plugin)
    known = {check.name: check for check in checks_of(kind)}
    reasons = dict(skip or {})
    for name in reasons:
        if name not in known:
            raise PluginError(
                f"conformance({found.__name__}): skip: there is no check {name!r} of {kind}s"
                f"{nearest(name, known)} (bertlab.testing.list_checks({kind!r}) lists them)"
            )
    given = {"rows": rows, "vocabulary": vocabulary, "encoder": encoder}
    case = make_case(kind, found, arguments or {}, given)
    runner = CheckRunner(case, known, skipped=set(reasons))
    cases = [
        pytest.param(
            name, id=name, marks=[pytest.mark.skip(reason=reasons[name])] if name in reasons else []
        )
        for name in known
    ]

    caller = sys._getframe(1)
    test = _test_at(caller.f_code.co_filename, caller.f_lineno, runner.run)
    test.__doc__ = f"{found.__name__} keeps the contract of its kind ({kind})."
    return pytest.mark.parametrize("check", cases)(test)


def _test_at(file: str, line: int, run: Callable[[str], None]) -> Callable[[str], None]:
    """Return a test function that pytest takes to stand in the author's file."""
    test_conformance = lambda check: run(check)  # noqa: E731, PLW0108  one line, like its caller
    test_conformance.__name__ = "test_conformance"
    test_conformance.__code__ = test_conformance.__code__.replace(
        co_name="test_conformance", co_filename=file, co_firstlineno=line
    )
    return test_conformance


def list_checks(kind: Kind) -> list[tuple[str, str]]:
    """Return the name of each check of a kind and what it checks, in a line.

    Args:
        kind: ``encoder``, ``objective``, ``head``, ``metric`` or ``source``.
    """
    from bertlab.testing.catalogue import checks_of  # noqa: PLC0415  imports torch

    return [(check.name, check.summary) for check in checks_of(kind)]


def batch_of(features: "Sequence[Features]") -> "PackedBatch":
    """Return the batch that sequences of a head become, for tests of its own.

    Args:
        features: what ``encode`` returns, of one row or of several.
    """
    import numpy as np  # noqa: PLC0415

    from bertlab.api.examples import Row  # noqa: PLC0415
    from bertlab.data.examples.encoded import collate  # noqa: PLC0415  imports torch

    number = np.arange(len(features))
    rows = [Row({}, f"row {each}") for each in number]
    batch, _ = collate(features, rows, number, together=False).batch(number, "head")
    return batch
