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
import re
import sysconfig
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from bertlab.api.examples import RawDocument
from bertlab.data.corpus.documents import Document, split_sentences
from bertlab.errors import CorpusError

# "-----", "=== ====="
_RULE = re.compile(r"[^\w\s]{3,}$|={2,}(?: +={2,})+$|-{2,}(?: +-{2,})+$")
# "| a | b |", "name   meaning"
_TABLE_ROW = re.compile(r"[|+].*[|+]$|.*\s\|\s|\S.*?(?<![.:!?]) {3,}\S|\S+ {2,}-- ")
# "$ ls", "(Pdb) n", "-v, --verbose"
_PROMPT = re.compile(r"(?:\.\.\. |\$ |% |#|@\w|> |\(Pdb\)|-\w[\s,]|--\w)")
# "* item", "1. item", "(a) item", ".. [1] text"
_BULLET = re.compile(
    r"[*+•-](?:\s+|$)"
    r"|(?:o|--|\(?(?:\d{1,2}|[a-z])[.)]|(?:\.\. )?\[(?:\d+|#\w*|\*)\])\s+(?=\S)"
)
# "name: text", "f(x) -- text", not "two words: text"
_DEFINITION = re.compile(r"['\"*]*\w[\w.'\"*]* ?(?:\([^)]*\) ?)?(?::|--?) +\S")
# ".. note:: text" with group 1 "note", ".. a comment"
_DIRECTIVE = re.compile(r"\.\.(?: +([\w-]+)::.*| .*)?$")
_PROSE_DIRECTIVES = {"note", "warning", "seealso"}
# ":param name: text", ":returns: text"
_FIELD = re.compile(r":(?:param|type|returns?|rtype|raises?|arg|keyword)\b[^:]*:\s*")

_BACKTICKS = (
    (re.compile(r":[\w:+-]+:`~?([^`<]*?)(?:\s*<[^`>]*>)?`"), r"\1"),  # :role:`text <target>`
    (re.compile(r"``(.+?)``"), r"\1"),  # ``code``
    (re.compile(r"`([^`<']+?)\s*<[^`>]*>`__?"), r"\1"),  # `text <target>`_
    (re.compile(r"`([^`']+)`_{0,2}(?!\w)"), r"\1"),  # `text`, `text`_
    (re.compile(r"`+"), "'"),  # `old quotes'
)
_OTHER_MARKUP = (
    (re.compile(r"(?<![\w*])\*\*(?=\S)([^*]+)(?<=\S)\*\*(?![\w*])"), r"\1"),  # **text**
    (re.compile(r"(?<![\w*])\*(\w(?:[^*]*[\w).])?)\*(?![\w*])"), r"\1"),  # *text*
    (re.compile(r"(?<![\w|])\|(\w+)\|(?![\w|])"), r"\1"),  # |version|
    (re.compile(r"\s*\[(?:\d+|#\w*)\]_?(?=[\s.,;:)]|$)"), ""),  # [1]_
    (re.compile(r"::$"), ":"),
)
_MARKUP_CHARACTER = re.compile(r"[*|[]|::$")
_BROKEN_WORD = re.compile(r"(?<=[a-z]-) (?=[a-z])")  # "well- known"

_QUOTED = re.compile(r"\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
# "x = 1", "f(a=b)", "{}"
_CODE_SIGN = re.compile(
    r"(?:^|\s)(?:=|[=!<>:+*/|&-]=|->|=>|::=|&&|\|\||<<|>>)(?:\s|$)"
    r"|::=|[{}\\|]|\w=[\w\"'(\[]|;$|>>>|@\w+\(|\)\)|\]\[|^\S+\(.*\)$"
)
# "(don't", 'word,"', not "x1", "f()"
_PLAIN_WORD = re.compile(r"[(\"'“‘]*[A-Za-z]+(?:[-'’/][A-Za-z]+)*['’]?[)\"'”’]*[,.;:!?]*[)\"'”’]*$")
_ENDED = re.compile(r"[.!?:][\"')”’]*$")
_STATEMENT = re.compile(
    r"(?:def|class|async|import|from|return|raise|yield|print|del|assert|if|elif|else|for|while|with"
    r"|try|except|finally|case|match)\b"
)


def is_prose(sentence: str) -> bool:
    """Return whether a sentence is English, not code, a signature, a heading or a list of names.

    Three words or more, and half of all, are plain words, it begins or ends as a sentence does, and
    signs of code outside quotation marks stand in a whole sentence of eight plain words or more.
    """
    words = sentence.split()
    plain = sum(map(bool, map(_PLAIN_WORD.match, words)))
    if plain < 3 or 2 * plain < len(words) or not any(map(str.isalnum, words[0])):
        return False
    capital = sentence.lstrip("\"'“‘([")[:1].isupper()
    if _CODE_SIGN.search(_QUOTED.sub("x", sentence)):
        return capital and sentence.endswith(".") and plain >= max(8, 0.6 * len(words))
    if capital:
        return True
    if _STATEMENT.match(sentence) and not sentence.endswith("."):
        return False
    return _ENDED.search(sentence) is not None or plain >= 6


def prose_paragraphs(text: str) -> Iterator[str]:
    """Yield the paragraphs of a text that may be prose, one line each, without markup."""
    for block in _blocks(text):
        for paragraph in _paragraphs(block):
            if text := _without_markup(paragraph):
                yield text


def _without_markup(text: str) -> str:
    if "`" in text:
        for pattern, replacement in _BACKTICKS:
            text = pattern.sub(replacement, text)
    if _MARKUP_CHARACTER.search(text):
        for pattern, replacement in _OTHER_MARKUP:
            text = pattern.sub(replacement, text)
    return " ".join(text.split())


def _blocks(text: str) -> Iterator[list[tuple[int, str]]]:
    """Yield runs of lines between blank ones as (indent, content), without literal blocks."""
    block: list[tuple[int, str]] = []
    literal: int | None = None  # lines indented deeper than this belong to a literal block
    doctest = False
    for line in [*text.expandtabs().split("\n"), ""]:
        content = line.strip()
        indent = len(line) - len(line.lstrip())
        directive = _DIRECTIVE.match(content)
        if not content:
            doctest = False
        elif doctest or (literal is not None and indent > literal):
            continue
        else:
            literal = None
            doctest = content.startswith(">>>")
        if content and not doctest and not directive:
            block.append((indent, content))
            if not content.endswith("::"):
                continue
            literal = indent
        elif directive and directive[1] not in _PROSE_DIRECTIVES:
            literal = indent
        if block:
            yield block
            block = []


def _paragraphs(block: list[tuple[int, str]]) -> Iterator[str]:
    """Yield the paragraphs and list items of a block with their lines joined."""
    paragraph: list[str] = []
    text_indent = 0
    for indent, content in block:
        if _RULE.match(content):
            if len(paragraph) == 1:  # it underlines a heading
                paragraph = []
            continue
        if _TABLE_ROW.match(content) or _PROMPT.match(content):
            yield _joined(paragraph)
            paragraph = []
            continue
        mark = _BULLET.match(content) or _FIELD.match(content)
        ended = bool(paragraph) and _ENDED.search(paragraph[-1]) is not None
        starts = mark or _DEFINITION.match(content)
        if starts or indent < text_indent or (indent > text_indent and ended):
            yield _joined(paragraph)
            paragraph = []
        length = mark.end() if mark else 0
        paragraph.append(content[length:])
        text_indent = indent + length
    yield _joined(paragraph)


def _joined(lines: list[str]) -> str:
    """Join wrapped lines; a word broken at its hyphen becomes whole again."""
    text = " ".join(lines)
    return _BROKEN_WORD.sub("", text) if "- " in text else text


logger = logging.getLogger(__name__)

_SKIPPED_FOLDERS = {"test", "tests", "idle_test", "dist-packages", "site-packages", "__pycache__"}
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def python_english_documents() -> tuple[Document, ...]:
    """Return the documents, always the same for one Python installation.

    ``source`` is ``pydoc_data.topics.TOPIC`` or the name of a module, such as ``email.message``.
    Topics come first, then modules, both sorted. Documents have two sentences or more and no
    sentence comes twice. Takes about three seconds the first time and none after that.
    """
    found: list[Document] = []
    seen: set[str] = set()
    for source, texts in _texts():
        # a dictionary keeps the order, and one of each
        sentences = [each for each in dict.fromkeys(_sentences(source, texts)) if each not in seen]
        seen.update(sentences)
        if len(sentences) > 1:
            found.append(Document(sentences, source))
    return tuple(found)


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
        told = "python-english: this Python ships without pydoc_data"
        raise CorpusError(f"{told}; use a full Python, or name another corpus") from error
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
