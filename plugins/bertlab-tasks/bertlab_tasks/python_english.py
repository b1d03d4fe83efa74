"""Two labelled tasks from the English that ships with Python: no network and no download.

``packages``: which package of the standard library a docstring's sentence comes from. The packages
are a fixed list, so that labels are the same with every Python; one that an installation lacks is
no label there (some Linux distributions ship ``tkinter`` and ``idlelib`` apart). A sentence with
the name of any of them is left out, also inside a word such as ``HTTPServer``: what is left is told
by its language.

``same_page``: whether two sentences come from one page, which is a topic of ``help()`` or the
docstrings of a module. A pair of one page is two apart among its longer sentences, so it is never
a pair of neighbors, as next-sentence prediction has them. A pair of two pages takes its
second sentence from another page's pair. So each sentence is in one pair at most, and no sentence
alone can tell the label.

Splits are by module or topic: all sentences of one are in one split, chosen by a hash of its name.
A sentence that training has too, apart from case and punctuation, is no sentence of validation.
Pre-training on the corpus ``python-english`` has read the text of both splits, without labels.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, cast, get_args

from bertlab import nearest
from bertlab.api import DataError, DataSource, Example, RawExamples
from bertlab.extend import Document, LabelledExamples, python_english_documents

Split = Literal["train", "validation"]
_Splits = dict[Split, list[Document]]

PACKAGES = (
    "asyncio",
    "email",
    "http",
    "idlelib",
    "importlib",
    "logging",
    "multiprocessing",
    "tkinter",
    "unittest",
    "xml",
)
# matches Tkinter and tk.Button, not stack
_PACKAGE_NAMED = re.compile(rf"{'|'.join(PACKAGES)}|idle|\btk", re.IGNORECASE)
_HELD_OUT = 0.25
_MAX_SENTENCES = {"train": 600, "validation": 150}  # of a package
_MIN_WORDS = 8
_MAX_PAIRS = 24  # of a page
_APART = 2


class PythonEnglishRows(DataSource):
    """The rows of ``python-english:packages`` and ``python-english:same_page``."""

    def raw_examples(self, split: str | None) -> RawExamples:
        """Return the rows of the task that the argument names."""
        name = self.argument
        if split is None:
            name, _, split = name.partition(":")  # packages:train
        if not split:
            places = " or ".join(f"{self.name}:{each}" for each in get_args(Split))
            raise DataError(f"{self.name}: which split is not said; give {places}")
        found = read(name, cast("Split", split))  # which checks both
        return RawExamples(
            f"python-english:{name} {split}",
            tuple(found.rows[0].values),
            ((row.where, {**row.values, "#document": row.where}) for row in found.rows),
            skipped=Counter(found.skipped),
        )


def read(name: str, split: Split) -> LabelledExamples:
    """Return the rows of a task, always the same for one Python installation.

    ``where`` of a row is its module, such as ``email.message``, or topic; of a pair the first
    sentence's. Takes as long as reading the corpus, about three seconds, the first time.
    """
    if name not in _READERS:
        raise DataError(
            f"python-english rows: found {name!r}{nearest(name, _READERS)}, "
            f"expected one of {', '.join(_READERS)}"
        )
    if split not in get_args(Split):
        raise DataError(
            f"python-english rows: found split {split!r}{nearest(split, get_args(Split))}, "
            "expected train or validation"
        )
    rows = _READERS[name](split)
    if len({row.values["label"] for row in rows.rows}) < 2:
        raise DataError(
            f"python-english rows: {name}: this Python's standard library has too little "
            "documentation for two classes; use a full Python, or other labelled rows"
        )
    return rows


def _packages(split: Split) -> LabelledExamples:
    parts = {package: _split_package(package) for package in PACKAGES}
    parts = {package: splits for package, splits in parts.items() if all(splits.values())}
    skipped: Counter[str] = Counter()
    in_training = _keys(document for splits in parts.values() for document in splits["train"])
    rows: list[Example] = []
    for package, splits in parts.items():
        found = []
        for document in splits[split]:
            for sentence in document.sentences:
                if _PACKAGE_NAMED.search(sentence):
                    skipped["sentence names a package"] += 1
                elif split == "validation" and _key(sentence) in in_training:
                    skipped["sentence is in training too"] += 1
                else:
                    found.append(Example({"text": sentence, "label": package}, document.source))
        limit = _MAX_SENTENCES[split]
        if len(found) > limit:
            skipped[f"sentence is beyond {limit} of a package"] += len(found) - limit
        rows += sorted(found, key=lambda row: _hash(row.values["text"]))[:limit]
    return LabelledExamples(rows, tuple(parts), dict(skipped))


def _split_package(package: str) -> _Splits:
    """Hold modules out in the order of their hashes as long as they fit into the share."""
    modules = [
        document
        for document in python_english_documents()
        if document.source.partition(".")[0] == package
    ]
    room = _HELD_OUT * sum(len(module.sentences) for module in modules)
    splits: _Splits = {"train": [], "validation": []}
    for module in sorted(modules, key=lambda module: _hash(module.source)):
        held_out = len(module.sentences) <= room
        room -= len(module.sentences) if held_out else 0
        splits["validation" if held_out else "train"].append(module)
    return splits


def _same_page(split: Split) -> LabelledExamples:
    splits: _Splits = {"train": [], "validation": []}
    for page in sorted(python_english_documents(), key=lambda page: _hash(page.source)):
        held_out = _hash(page.source) < _HELD_OUT
        splits["validation" if held_out else "train"].append(page)
    in_training = _keys(splits["train"]) if split == "validation" else set()
    skipped: Counter[str] = Counter()
    pairs: list[Example] = []
    for page in splits[split]:
        sentences = []
        for sentence in page.sentences:
            if len(sentence.split()) < _MIN_WORDS:
                skipped[f"sentence is under {_MIN_WORDS} words"] += 1
            elif _key(sentence) in in_training:
                skipped["sentence is in training too"] += 1
            else:
                sentences.append(sentence)
        found = list(_pairs_of_page(sentences, page.source))
        number = min(_MAX_PAIRS, len(found) // 2 * 2)  # as many of each label
        if len(found) > number:
            skipped[f"pair is odd or beyond {_MAX_PAIRS} of a page"] += len(found) - number
        pairs += sorted(found, key=lambda row: _hash(row.values["text_a"]))[:number]
    return LabelledExamples(_with_other_pages(pairs), ("other_page", "same_page"), dict(skipped))


def _pairs_of_page(sentences: Sequence[str], source: str) -> Iterator[Example]:
    """Pair the 1st sentence with the 3rd, the 2nd with the 4th, the 5th with the 7th, and so on."""
    for start in range(0, len(sentences), 2 * _APART):
        block = sentences[start : start + 2 * _APART]
        for first, second in zip(block, block[_APART:], strict=False):  # [1, 2, 3, 4] -> 1 3, 2 4
            yield Example({"text_a": first, "text_b": second, "label": "same_page"}, source)


def _with_other_pages(pairs: list[Example]) -> list[Example]:
    """Exchange the second sentences of every other pair; pairs of a page stand together."""
    kept, changed = pairs[::2], pairs[1::2]
    step = _MAX_PAIRS // 2  # past the page's end, and near, so that a new page changes few rows
    rows: list[Example] = []
    for same, row, other in zip(kept, changed, changed[step:] + changed[:step], strict=True):
        if row.where != other.where:
            values = {**row.values, "text_b": other.values["text_b"], "label": "other_page"}
            rows += [same, Example(values, row.where)]
    return rows


_READERS: dict[str, Callable[[Split], LabelledExamples]] = {
    "packages": _packages,
    "same_page": _same_page,
}


def _hash(text: str) -> float:
    """Return a number in [0, 1) that depends on nothing but the text."""
    # 48 bits fit into a float's 53
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:6]) / 2**48


def _keys(documents: Iterable[Document]) -> set[str]:
    return {_key(sentence) for document in documents for sentence in document.sentences}


def _key(sentence: str) -> str:
    """Return what duplicates have in common: the words, in lower case."""
    return " ".join(re.findall(r"\w+", sentence.lower()))
