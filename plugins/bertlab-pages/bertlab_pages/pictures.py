"""Pictures as SVG and PDF: files of their own, or parts of a page in the page's own ink.

The same figure gives the same bytes, and its text stays text. What a point or a curve is, browsers
show on hovering: :func:`hover` gives it a text.
"""

import io
import re
import warnings
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup, escape
from matplotlib.artist import Artist
from matplotlib.figure import Figure

from bertlab_pages.plot_axes import INK, printable

_HOVER = "hover-"


@dataclass(frozen=True)
class Picture:
    """A picture of a report.

    Attributes:
        name: of its file, without the ending: letters, digits, ``_`` and ``-``.
        caption: says what is drawn and what the marks mean.
        svg: the file, with a transparent ground.
        pdf: the same picture for print; empty if nobody asked for it.
    """

    name: str
    caption: str
    svg: str
    pdf: bytes = b""


def file_names(names: list[str]) -> list[str]:
    """Return a file name for each name, all different: ``["a/b", "a b"]`` → ``["a_b", "a_b_2"]``.

    They have letters and digits of ASCII, ``_`` and ``-`` only, and at most about 80 of them.
    """
    found: list[str] = []
    taken: set[str] = set()
    for name in names:
        start = re.sub(r"[^A-Za-z0-9-]+", "_", name).strip("_-")[:80] or "_"
        chosen, number = start, 1
        while chosen.casefold() in taken:  # some disks take a and A for the same
            number += 1
            chosen = f"{start}_{number}"
        taken.add(chosen.casefold())
        found.append(chosen)
    return found


def hover(artist: Artist, text: str) -> None:
    """Let browsers show a text where the pointer is on a part of a figure."""
    # matplotlib writes a part's gid as its id in the SVG; in hexadecimal digits any text is one
    artist.set_gid(_HOVER + printable(text, 1000).encode().hex())


def svg_of(figure: Figure) -> str:
    """Return a figure as SVG: no date in it, and the same names inside it each time."""
    svg = _saved(figure, "svg", ("Date", "Creator"), transparent=True).decode()
    return re.sub(rf'<g id="{_HOVER}([0-9a-f]*)">', _titled, svg)


def _titled(tag: re.Match[str]) -> str:
    # id="hover-6162" -> a title that says ab
    return f"<g><title>{escape(bytes.fromhex(tag[1]).decode())}</title>"


def pdf_of(figure: Figure) -> bytes:
    """Return a figure as PDF: on white, with its fonts and without a date."""
    return _saved(figure, "pdf", ("CreationDate", "Creator", "Producer"), transparent=False)


def _saved(figure: Figure, form: str, left_out: tuple[str, ...], transparent: bool) -> bytes:
    file = io.BytesIO()
    metadata: dict[str, Any] = dict.fromkeys(left_out)
    with warnings.catch_warnings():
        # of an SVG the viewer's fonts, not ours, show the text; a PDF has boxes in its place
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure.savefig(file, format=form, metadata=metadata, transparent=transparent)
    return file.getvalue()


def inline_svg(picture: Picture) -> Markup:
    """Return a picture in the page's own ink, with names that no other picture of it has."""

    def adapt(tag: re.Match[str]) -> str:
        # id="a" -> id="NAME-a", url(#a) -> url(#NAME-a)
        text = re.sub(r'(\bid="|href="#|url\(#)', rf"\g<1>{picture.name}-", tag[0])
        return text.replace(INK, "currentColor")

    # tags only; texts stay
    svg = re.sub(r"<[^>]+>", adapt, picture.svg[picture.svg.index("<svg") :])
    attributes = f'<svg role="img" aria-label="{escape(picture.caption)}"'
    if (width := re.search(r'\bwidth="([\d.]+pt)"', svg[: svg.index(">")])) is not None:
        attributes += f' style="--width: {width[1]}"'
    return Markup(svg.replace("<svg", attributes, 1))  # noqa: S704  matplotlib escaped its names


def on_white(svg: str) -> str:
    """Return a picture that can be read where the viewer's own ground is dark."""
    return svg.replace("<svg", '<svg style="background: white"', 1)
