"""The templates of a report's formats; each value that they print is escaped for its format.

So names with markup in them, or with code of the template language, are shown as they are.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from textwrap import indent

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from bertlab.extend import visible, without_secrets, yaml_inline

_SHARED = "bertlab_pages"  # its templates are there for every package
# a_b stays as it is, _b and a_ would begin or end emphasis
_MARKDOWN_SPECIAL = re.compile(r"[\\`*{}\[\]<>|~$&#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_LATEX_TEXTS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "`": r"\textasciigrave{}",
    '"': r"\symbol{34}",  # German babel gives it a meaning
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "[": "{[}",  # at the start of a row it would be an option of \\
    "]": "{]}",
    "*": "{*}",
    "±": r"$\pm$",
    "−": "$-$",
    "×": r"$\times$",
    "↓": r"$\downarrow$",
    "†": r"$\dagger$",
    "‡": r"$\ddagger$",
    "–": "--",
    "…": r"$\ldots$",
    **{char: f"\\{char}" for char in "{}$&#%_"},
}
# the first of two characters that LaTeX would draw as one: "--" is a dash, "''" a quotation mark
# "--" -> "-{}-"
_LATEX_SPECIAL = re.compile(f"[{re.escape(''.join(_LATEX_TEXTS))}]|([-',])(?=\\1)")


def markdown_text(text: str) -> str:
    """Return text that Markdown shows as it is, on one line."""
    return _MARKDOWN_SPECIAL.sub(lambda found: f"\\{found[0]}", " ".join(text.split()))


def latex_text(text: str) -> str:
    """Return text that LaTeX shows as it is, on one line."""
    return _LATEX_SPECIAL.sub(
        lambda found: _LATEX_TEXTS.get(found[0], found[0] + "{}"), visible(" ".join(text.split()))
    )


def _heading_lines(headings: Sequence[Sequence[str]]) -> list[list[str]]:
    """Return the headings of a table line by line; a heading of one line stands in the last one.

    ``(("variant",), ("qnli", "accuracy"))`` -> ``[["", "qnli"], ["variant", "accuracy"]]``
    """
    depth = max(map(len, headings))
    # ("a",), ("b", "c") -> ["", "b"], ["a", "c"]
    padded = [(*[""] * (depth - len(heading)), *heading) for heading in headings]
    return [list(line) for line in zip(*padded, strict=True)]


def _code_block(text: object) -> Markup:
    return Markup(indent(str(text), "    ", lambda line: True))  # noqa: S704  nothing has a meaning in it


def _breaks(value: object) -> object:
    """Let a name of HTML end its line behind each ``_``: ``single_`` | ``sentence``."""
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return Markup("_<wbr>").join(without_secrets(value).split("_"))


def _sha256(script: str) -> str:
    """Return the hash by which a page's policy names a script that may run."""
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")


def html_templates(package: str) -> Environment:
    """Return the HTML templates of a package, and those that all pages share."""
    return _environment(package)


def markdown_templates(package: str) -> Environment:
    """Return the Markdown templates of a package."""
    return _environment(package, markdown_text)


def latex_templates(package: str) -> Environment:
    """Return the LaTeX templates of a package: ``<< value >>``, ``<% block %>``."""
    return _environment(
        package,
        latex_text,
        # {{ and {% are LaTeX's own
        variable_start_string="<<",
        variable_end_string=">>",
        block_start_string="<%",
        block_end_string="%>",
    )


def _environment(
    package: str, finalize: Callable[[str], str] | None = None, **delimiters: str
) -> Environment:
    """Return the templates, each value that they print escaped, and without secrets in URLs.

    Args:
        package: whose folder ``templates`` has them.
        finalize: escapes text; HTML's escaping if None. Like ``autoescape``, and unlike a filter
            in the template, it cannot be forgotten. What is ``Markup`` is escaped already.
        delimiters: of the template language.
    """

    def escaped(value: object) -> object:
        if isinstance(value, Markup):
            return value
        if isinstance(value, str):
            value = without_secrets(value)
        return value if finalize is None else Markup(finalize(str(value)))  # noqa: S704  escaped here

    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package), PackageLoader(_SHARED)]),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        **delimiters,  # type: ignore[arg-type]
    )
    environment.filters |= {
        "breaks": _breaks,
        "code_block": _code_block,
        "heading_lines": _heading_lines,
        "sha256": _sha256,
        "yaml_inline": yaml_inline,
    }
    return environment
