"""What is in an HTML page, read as a browser does."""

import re
from collections import Counter
from html.parser import HTMLParser


class Page(HTMLParser):
    """Counts of tags and ids, addresses of links, and the text that is shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: Counter[str] = Counter()
        self.ids: Counter[str] = Counter()
        self.links: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        for name, value in attrs:
            if name == "id":
                self.ids[value or ""] += 1
            if name in ("src", "href", "xlink:href", "data"):
                self.links.append(value or "")

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def squeezed(self) -> str:
        """The text without white space, as names may be broken into lines."""
        return squeeze(self.text)


def squeeze(text: str) -> str:
    return re.sub(r"\s", "", text)


def assert_alone(text: str) -> None:
    """Fail if a page loads or runs anything, or has two things of one id."""
    page = Page(text)
    assert not {"script", "img", "b", "i", "u", "link", "iframe", "image"} & set(page.tags)
    assert max(page.ids.values(), default=1) == 1
    urls = [url.removeprefix("#") for url in re.findall(r"url\((.*?)\)", text)]
    inside = [link[1:] for link in page.links if link.startswith("#")]
    assert all(each in page.ids for each in (*urls, *inside))
    assert all(link.startswith(("#", "./")) for link in page.links)
    assert not re.search(r"@import|<!DOCTYPE svg", text)
