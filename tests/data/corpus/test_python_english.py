import hashlib
import re
import subprocess
import sys
import sysconfig
from collections import Counter

import pytest

from bertlab.data.corpus import python_english
from bertlab.data.corpus.corpus import Corpus, read_documents
from bertlab.data.corpus.python_english import (
    is_prose,
    prose_paragraphs,
    python_english_documents,
)
from bertlab.errors import CorpusError


@pytest.fixture(scope="module")
def documents():
    return {document.source: document.sentences for document in python_english_documents()}


@pytest.fixture
def library(tmp_path, monkeypatch):
    """A standard library of our own, and one topic."""
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(
        python_english, "_topics", lambda: {"b": "It is so. It was so.", "a": "One thing is it.\n"}
    )
    monkeypatch.setattr(
        python_english, "python_english_documents", python_english_documents.__wrapped__
    )
    return tmp_path


def digest(documents):
    return hashlib.sha256(repr(documents).encode()).hexdigest()


@pytest.mark.slow
def test_amount(documents):
    sentences = [sentence for document in documents.values() for sentence in document]
    assert len(documents) > 350
    assert len(sentences) > 14_000
    assert sum(len(sentence.split()) for sentence in sentences) > 180_000
    assert min(map(len, documents.values())) >= 2
    assert max(Counter(sentences).values()) == 1


@pytest.mark.slow
def test_known_sentences(documents):
    expected = {
        "textwrap": "Wrap a single paragraph of text, returning a list of wrapped lines.",
        "random": "General notes on the underlying Mersenne Twister core generator:",
        "argparse": "The module contains the following public classes:",
        "difflib": "Return list of triples describing matching subsequences.",
        "pydoc_data.topics.assert": "Assert statements are a convenient way to insert debugging "
        "assertions into a program:",
    }
    for source, sentence in expected.items():
        assert sentence in documents[source]


@pytest.mark.slow
def test_order(documents):
    names = list(documents)
    topics = [name for name in names if name.startswith("pydoc_data.topics.")]
    assert names == sorted(topics) + sorted(names[len(topics) :])
    assert not any(re.search(r"(^|\.)(test|tests|idle_test)\.", name) for name in names)
    wrap = documents["textwrap"]
    assert wrap.index("Text wrapping and filling.") == 0
    assert wrap.index("Object for wrapping/filling text.") < wrap.index(
        "Collapse and truncate the given text to fit in the given width."
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "markup",
    [
        r"`",  # inline literals, roles, references
        r"^>>>|^\.\.\. ",  # doctests
        r"^\.\. ",  # directives
        r"[=~^*#]{4,}|-{4,}",  # underlines, tables
        r"^[*+|] ",  # bullets, tables
        r"::$|::=",  # literal blocks, grammar
        r"(?<![\w*])\*\*?[A-Za-z]+\*\*?(?![\w*])",  # emphasis
        r"^(import|from \S+ import|def|class) \S+$",  # code
        r"\n|\t|  ",
    ],
)
def test_markup_is_gone(documents, markup):
    found = [s for sentences in documents.values() for s in sentences if re.search(markup, s)]
    # a sentence may be about the sign itself
    assert [s for s in found if not re.search(rf"[\"'“][^\"'”]*?(?:{markup})", s)] == []


@pytest.mark.nightly
def test_two_runs_agree_and_import_nothing(documents):
    code = (
        "import hashlib, sys\n"
        "from bertlab.data.corpus.python_english import python_english_documents as f\n"
        "documents = {d.source: d.sentences for d in f()}\n"
        "assert not {'turtle', 'tkinter', 'this', 'antigravity'} & set(sys.modules)\n"
        "print(hashlib.sha256(repr(documents).encode()).hexdigest())\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        env={"PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
    )
    assert run.stdout.strip() == digest(documents)


@pytest.mark.slow
def test_as_a_corpus(documents):
    corpus = Corpus(["python-english"])
    assert {d.source: d.sentences for d in read_documents(corpus)} == documents
    assert corpus.fingerprint == Corpus(["python-english"]).fingerprint


def test_source_order_and_what_is_left_out(library):
    filler = "This text is only here to make the file long enough to be read at all, and no more."
    (library / "package/test").mkdir(parents=True)
    (library / "site-packages").mkdir()
    (library / "lib-dynload").mkdir()
    text = f'''"""The module's own words. {filler}"""
class A:
    """The first class of it."""
    def run(self):
        """Run it as a method."""
        def inner():
            """Run it from the inside."""
try:
    def early(): """Run it rather early."""
except ImportError:
    def late(): r"""Run it rather late with \\d."""
'''
    for name in ("package/__init__.py", "package/test/a.py", "site-packages/b.py"):
        (library / name).write_text(text)
    (library / "zlast.py").write_text(
        text + '"""x"""\ndef new(): """This one is new. So is this."""'
    )
    (library / "broken.py").write_text(f'"""{filler * 3}"""\nprint "old"')
    found = [
        (document.source, document.sentences)
        for document in python_english.python_english_documents()
    ]
    assert found == [
        ("pydoc_data.topics.b", ["It is so.", "It was so."]),
        (
            "package",
            [
                "The module's own words.",
                filler,
                "The first class of it.",
                "Run it as a method.",
                "Run it from the inside.",
                "Run it rather early.",
            ],
        ),
        ("zlast", ["This one is new.", "So is this."]),
    ]


def test_no_sources(library):
    with pytest.raises(CorpusError, match="without the sources of its standard library"):
        python_english.python_english_documents()


def test_no_topics(monkeypatch):
    monkeypatch.setitem(sys.modules, "pydoc_data.topics", None)
    with pytest.raises(CorpusError, match="without pydoc_data"):
        python_english._topics()


@pytest.mark.parametrize(
    ("text", "paragraphs"),
    [
        ("Use :func:`~os.walk` or ``x`` as `it says <http://a.b>`_ [1]_.",
         ["Use os.walk or x as it says."]),
        ("The *start* and the **end** of f(*args, **kwargs).",
         ["The start and the end of f(*args, **kwargs)."]),
        ("Name the `old' way.", ["Name the 'old' way."]),
        ("Heading\n=======\n\nWrapped\nlines and dou-\nble words.",
         ["Wrapped lines and dou-ble words."]),
        ("Before::\n\n    code()\n\n    more()\n\nAfter it.", ["Before:", "After it."]),
        ("Try this:\n>>> 1 + 1\n2\n\nAnd on.", ["Try this:", "And on."]),
        ("* one item\n  goes on\n* two items\n1. third",
         ["one item goes on", "two items", "third"]),
        (".. note:: x\n\n   Kept text.\n\n.. code-block:: c\n\n   int x;\n\nEnd.",
         ["Kept text.", "End."]),
        ("a | b | c\n===  ===\n| x | y |\n+---+---+\n", []),
        (":param x: The value.\n:returns: Nothing.", ["The value.", "Nothing."]),
        ("first: one thing\nsecond -- another thing",
         ["first: one thing", "second -- another thing"]),
    ],
)  # fmt: skip
def test_paragraphs(text, paragraphs):
    assert list(prose_paragraphs(text)) == paragraphs


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("Return the number of lines.", True),
        ('If "x == y" is true, the result is one.', True),
        ("copy data from one file to the other file", True),
        (
            "Using the keyword writeback=True may consume vast amounts of memory for the cache.",
            True,
        ),
        ("x = [0, 1] i = 0", False),
        ("for line in lines:", False),
        ("return the old value", False),
        ("import os", False),
        ("expr ::= term or expr plus term", False),
        ("run(args, stdin=None) -> int", False),
        ("Two words.", False),
        ("1 2 3 4 5 6", False),
        ("", False),
    ],
)
def test_is_prose(sentence, expected):
    assert is_prose(sentence) is expected
