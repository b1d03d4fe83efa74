"""The format of WikiExtractor: articles between ``<doc …>`` and ``</doc>``."""

from collections.abc import Iterator
from pathlib import Path

from bertlab.api import CorpusError
from bertlab.extend import RemoteFile


def wiki_articles(
    path: Path | RemoteFile, lines: Iterator[str]
) -> Iterator[tuple[int, str] | None]:
    """Yield the lines of each article, with their numbers, and None where an article ends."""
    opened = 0
    for number, line in enumerate(lines, 1):
        if line.startswith("<doc "):
            if opened:
                raise _never_closed(path, opened, f"before the next one in line {number}")
            opened = number
        elif opened:
            ended = line.rstrip().endswith("</doc>")
            text = line.rstrip().removesuffix("</doc>") if ended else line
            # &amp; comes last: "&amp;lt;" stands for the text "&lt;"
            text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
            yield number, text
            if ended:
                yield None
                opened = 0
        elif line.strip():
            raise CorpusError(
                f"{path}:{number}: found {line.strip()[:40]!r}, expected '<doc id=… url=… "
                "title=…>'; set corpus_format to document or sentences if this is not from "
                "WikiExtractor"
            )
    if opened:
        raise _never_closed(path, opened, "at the end of the file, which may be cut short")


def _never_closed(path: Path | RemoteFile, opened: int, where: str) -> CorpusError:
    return CorpusError(f"{path}:{opened}: <doc> without its </doc> {where}; extract it again")
