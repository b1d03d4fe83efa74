"""Is a held-out text of the domain of the training text? By how far apart their words are.

The Jensen-Shannon divergence of two unigram distributions is 0 bits if they are equal, and 1 if
they share no word. Parts of one text are apart as well: small ones miss words, and each document
has its own. So a text is compared with parts of the training text that have as many words, which
lie side by side there: with how far they are at most from all the rest.

Reference: Lin (1991), Divergence measures based on the Shannon entropy.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from lightning.pytorch import Callback, Trainer
from numpy.typing import NDArray

from bertlab.api import TaskData
from bertlab.extend import PretrainingData

PARTS = "training_parts"  # in the manifest
FAR = 1.3  # times the largest of the parts, from which a text is named
_SIZES = tuple(2**power for power in range(10, 21, 2))  # words of a part: 1,024 … 1,048,576
_COUNT = 8  # parts of each size


def divergence(one: NDArray[np.number], other: NDArray[np.number]) -> float:
    """Return the Jensen-Shannon divergence of two distributions in bits, 0 … 1.

    Args:
        one: ``(V,)`` counts of the words, not all 0.
        other: ``(V,)`` those of the other text.
    """
    found = 0.0
    shares = one / one.sum(), other / other.sum()
    middle = (shares[0] + shares[1]) / 2
    for each in shares:
        there = each > 0
        found += float((each[there] * np.log2(each[there] / middle[there])).sum()) / 2
    return found


def divergence_of_parts(words: NDArray[np.integer[Any]]) -> dict[int, float]:
    """Return by their size how far parts of a text are at most from the rest of it.

    Args:
        words: ``(N,)`` ids, in the order of the text. Sizes are up to N / 2; {} of short texts.
    """
    found: dict[int, float] = {}
    total = np.bincount(words) if len(words) < 2 * _SIZES[-1] * _COUNT else None
    for size in _SIZES:
        if size > len(words) // 2:
            break
        starts = np.linspace(0, len(words) - size, _COUNT).astype(int)
        parts = [words[start : start + size] for start in starts]
        # of a very long text: the other parts of this size
        whole = np.bincount(np.concatenate(parts)) if total is None else total
        counts = [np.bincount(part, minlength=len(whole)) for part in parts]
        found[size] = max(divergence(each, whole - each) for each in counts)
    return found


def natural_divergence(parts: Mapping[int, float], size: int) -> float | None:
    """Return how far a part of so many words would be; None if nothing is known.

    Args:
        parts: as :func:`divergence_of_parts` returns them.
        size: words; between sizes the logarithm interpolates, beyond them the nearest counts.
    """
    if not parts or size < 1:
        return None
    sizes = sorted(parts)
    return float(np.interp(np.log(size), np.log(sizes), [parts[each] for each in sizes]))


def is_far(found: float, natural: float) -> bool:
    """Whether a text is much farther from the training text than its parts are."""
    return found > FAR * natural


def describe_domain(found: float, natural: float) -> str:
    """Return how far a text is from the training text, beside its parts of that size."""
    return (
        "not of the domain of the training text: the Jensen-Shannon divergence of their words is "
        f"{found:.2f} bits, that of parts of the training text of this size at most {natural:.2f}"
    )


class TrainingParts(Callback):
    """Has the manifest of a pre-training say how far parts of its text are from each other."""

    def prepare(self, trainer: Trainer, data: TaskData) -> dict[str, dict[str, float]]:
        """Return the divergences by the size of parts, for the manifest."""
        del trainer
        if not isinstance(data, PretrainingData) or data.store is None:
            return {}
        found = divergence_of_parts(data.store.tokens)
        return {PARTS: {str(size): round(value, 4) for size, value in found.items()}}


def parts_in(manifest: Mapping[str, object]) -> dict[int, float]:
    """Return what a run's manifest says of its text's parts; {} if it says nothing that can be."""
    found = manifest.get(PARTS)
    if not isinstance(found, dict):
        return {}
    # a manifest may be a stranger's
    return {
        int(size): float(each)
        for size, each in found.items()
        if size.isdecimal() and len(size) < 16 and isinstance(each, float) and 0 <= each <= 1
    }
