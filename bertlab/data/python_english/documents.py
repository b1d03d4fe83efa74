"""The English that ships with every Python, for a first run with no network and no download.

Documents are the language reference (``pydoc_data.topics``, a topic each) and the docstrings of the
standard library (a module each). Sources are parsed, not imported: nothing of them runs. Code,
doctests, tables, headings and ReST markup are left out; so is every sentence that came before, so
that held-out documents share none with the others.
"""

import ast
import gc
import inspect
import logging
import os
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bertlab.api.source import RawDocument
from bertlab.data.corpus.documents import Document, split_sentences
from bertlab.data.python_english.rest_prose import is_prose, prose_paragraphs
from bertlab.errors import CorpusError

logger = logging.getLogger(__name__)

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "dist-packages", "site-packages", "__pycache__"}
_MIN_SENTENCES = 2
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def python_english_documents() -> Iterator[Document]:
    """Yield the documents, always the same for one Python installation.

    ``source`` is ``pydoc_data.topics.TOPIC`` or the name of a module, such as ``email.message``.
    Topics come first, then modules, both sorted. Documents have two sentences or more and no
    sentence comes twice. Takes about three seconds the first time and none after that.
    """
    yield from _documents()


@cache
def _documents() -> tuple[Document, ...]:
    documents: list[Document] = []
    seen: set[str] = set()
    for source, texts in _texts():
        sentences: list[str] = []
        for sentence in _sentences(source, texts):
            if sentence not in seen:
                seen.add(sentence)
                sentences.append(sentence)
        if len(sentences) >= _MIN_SENTENCES:
            documents.append(Document(sentences, source))
    return tuple(documents)


def _sentences(source: str, texts: list[str]) -> Iterator[str]:
    for text in texts:
        for paragraph in prose_paragraphs(text):
            raw = RawDocument(paragraph, presplit=False, source=source)
            yield from filter(is_prose, split_sentences(raw, "en"))


def _texts() -> Iterator[tuple[str, list[str]]]:
    """Yield name and texts of each topic and module, in order."""
    for topic, text in sorted(_topics().items()):
        yield f"pydoc_data.topics.{topic}", [text]
    library = Path(sysconfig.get_path("stdlib"))
    documented = 0
    for module, path in sorted(_modules(library)):
        if texts := _docstrings(path):
            documented += 1
            yield module, texts
    if not documented:
        raise CorpusError(
            f"python-english: no documented .py file in {library}, so this Python ships without "
            "the sources of its standard library; use a full Python, or name another corpus"
        )


def _topics() -> dict[str, str]:
    try:
        from pydoc_data.topics import topics  # noqa: PLC0415
    except ImportError as error:
        raise CorpusError(
            "python-english: this Python ships without pydoc_data; "
            "use a full Python, or name another corpus"
        ) from error
    return dict(topics)


def _modules(library: Path) -> Iterator[tuple[str, Path]]:
    """Yield name and file of the standard library's modules."""
    for folder, folders, names in os.walk(library):
        # in place: os.walk does not go into the others
        folders[:] = [
            name for name in folders if name.isidentifier() and name not in _SKIPPED_FOLDERS
        ]
        for name in names:
            path = Path(folder, name)
            if path.suffix == ".py" and path.stem.isidentifier():
                parts = path.relative_to(library).with_suffix("").parts
                yield ".".join(parts).removesuffix(".__init__"), path


def _docstrings(path: Path) -> list[str]:
    """Return the docstrings of a file in source order."""
    source = path.read_bytes()
    # a """b""" c """dd""" -> [b, dd] -> 3 characters
    quoted = sum(map(len, source.replace(b"'''", b'"""').split(b'"""')[1::2]))
    if quoted < max(100, 0.02 * len(source)):
        return []  # little to find, and parsing takes most of the time
    collecting = gc.isenabled()
    gc.disable()  # a tree has no cycles, and looking for them costs a fifth of the time
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in old modules
            module = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        logger.debug("%s: left out: %s", path, error)
        return []
    finally:
        if collecting:
            gc.enable()
    first = ast.get_docstring(module, clean=False)
    texts = ([first] if first else []) + list(_nested_docstrings(module.body))
    return [inspect.cleandoc(text) for text in texts]


def _nested_docstrings(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, _Definition):
            if text := ast.get_docstring(node, clean=False):
                yield text
            yield from _nested_docstrings(node.body)
        elif isinstance(node, ast.If | ast.Try):
            yield from _nested_docstrings(node.body)
            for handler in node.handlers if isinstance(node, ast.Try) else []:
                yield from _nested_docstrings(handler.body)
            yield from _nested_docstrings(node.orelse)
