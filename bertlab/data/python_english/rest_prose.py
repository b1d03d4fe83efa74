"""Prose out of ReST and docstrings: no code, doctests, tables, headings, option lists or markup.

Rules of thumb, each checked on what the standard library really holds. In doubt text is dropped.
"""

import re
from collections.abc import Iterator

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
