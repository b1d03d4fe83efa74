"""What is in an HTML page, read as a browser does."""

import base64
import hashlib
import re
from collections import Counter
from html.parser import HTMLParser


class Page(HTMLParser):
    """Counts of tags and ids, addresses of links, the text that is shown, and what may run.

    ``scripts`` are the texts of all scripts, ``policies`` what the page says about them, and
    ``handlers`` attributes that run something, such as ``onclick``.
    """

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.text = ""
        self.scripts: list[str] = []
        self.policies: list[str] = []
        self.handlers: list[str] = []
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self._in_script = tag == "script"
        if self._in_script:
            self.scripts.append("")
        if tag == "meta" and ("http-equiv", "Content-Security-Policy") in attrs:
            self.policies.append(dict(attrs)["content"] or "")
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name in ("src", "href", "xlink:href", "data"):
                self.links.append(value or "")
            if name.startswith("on"):
                self.handlers.append(name)

    def handle_endtag(self, tag: str) -> None:
        self._in_script = False

    def handle_data(self, data: str) -> None:
        if self._in_script:
            self.scripts[-1] += data
        else:
            self.text += data

    @property
    def squeezed(self) -> str:
        """The text without white space, as names may be broken into lines."""
        return squeeze(self.text)


def squeeze(text: str) -> str:
    return re.sub(r"\s", "", text)


def assert_alone(text: str) -> None:
    """Fail if a page loads anything, runs more than its one script, or has two things of one id."""
    page = Page(text)
    assert_only_script(page)
    assert not {"img", "b", "i", "u", "link", "iframe", "image"} & set(page.tags)
    assert max(page.ids.values(), default=1) == 1
    urls = [url.removeprefix("#") for url in re.findall(r"url\((.*?)\)", text)]
    inside = [link[1:] for link in page.links if link.startswith("#")]
    assert all(each in page.ids for each in (*urls, *inside))
    assert all(link.startswith(("#", "./")) for link in page.links)
    assert not re.search(r"@import|<!DOCTYPE svg", text)


def assert_only_script(page: Page) -> None:
    """Fail if a page may run anything but the script that sorts its tables."""
    (script,) = page.scripts
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert page.policies == [
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    ]
    assert page.handlers == []
    assert "aria-sort" in script
