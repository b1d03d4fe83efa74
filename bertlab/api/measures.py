"""What the name of a metric says: which end of it is better, and whether it is a share.

A name is ``task/metric``, perhaps with a set and a type: ``tagging/dev/f1/PER``.
"""

from collections.abc import Mapping, Sequence

Shares = Mapping[str, Sequence[str]]
"""The metrics from 0 to 1 that each task declares, by the task's name."""


def is_share(name: str, shares: Shares) -> bool:
    """Whether ``task/metric`` is from 0 to 1, as its task declares, and is read in percent."""
    task, _, metric = name.partition("/")
    return is_among(metric, shares.get(task, ()))


def is_among(metric: str, shares: Sequence[str]) -> bool:
    """Whether a metric, perhaps of a set or type or a baseline, is one of the shares."""
    bare = metric.replace("majority_", "").replace("unigram_", "")
    return end_of(bare, dict.fromkeys(shares, "max")) is not None


def end_of(metric: str, ends: Mapping[str, str]) -> str | None:
    """Return the better end of a metric, whose name may have that of a set or type; else None."""
    parts = metric.split("/")
    # "dev/f1/PER": itself, then dev/f1, f1/PER, dev, f1, PER
    for length in range(len(parts), 0, -1):
        for start in range(len(parts) - length + 1):
            name = "/".join(parts[start : start + length])
            if name in ends:
                return ends[name]
    return None
