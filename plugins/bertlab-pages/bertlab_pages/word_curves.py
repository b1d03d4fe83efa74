"""Curves of scores against words seen, from ``NAME.words.csv`` of an evaluation."""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from bertlab.extend import explain_damage
from bertlab_pages.spreadsheets import spreadsheet_rows

Curve = tuple[list[int], list[float]]


@dataclass(frozen=True)
class WordCurve:
    """Scores against words seen, with a band around the curve.

    Attributes:
        words: that were seen, rising.
        values: of the curve, as many; NaN where there is none.
        low: lower edge of the band.
        high: upper edge of the band.
        runs: of a curve that is a mean, the words and values of each run, by what it is called.
    """

    words: list[int]
    values: list[float]
    low: list[float]
    high: list[float]
    runs: dict[str, Curve] = field(default_factory=dict)


def read_word_curves(path: Path) -> dict[str, dict[str, WordCurve]]:
    """Return the curve of each group by kind and group, from ``NAME.words.csv``.

    Kind ``all`` has one group, which is empty: the mean over all rows. The band is the 95 %
    interval over rows.
    """
    points: dict[str, dict[str, dict[int, list[float]]]] = defaultdict(lambda: defaultdict(dict))
    with explain_damage(path):
        for row in spreadsheet_rows(path):
            scores = [float(row[name] or "nan") for name in ("mean", "low", "high")]
            points[row["kind"]][row["group"]][int(row["words"])] = scores
    return {
        kind: {group: _word_curve(by_words) for group, by_words in groups.items()}
        for kind, groups in points.items()
    }


def _word_curve(by_words: dict[int, list[float]]) -> WordCurve:
    words = sorted(by_words)
    values, low, high = ([by_words[each][place] for each in words] for place in range(3))
    return WordCurve(words, values, low, high)
