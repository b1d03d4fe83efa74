"""``bertlab explain CODE``: what the code in front of an error message means, and what to do."""

import inspect
import textwrap
from collections.abc import Iterator

from bertlab import BertlabError, CommandError, nearest
from bertlab.extend import entry_points_of, remedy_of, say
from bertlab_conformance.error_examples import EXAMPLES


def catalogue() -> dict[str, type[BertlabError]]:
    """Return our error classes by code, in the order of the codes."""
    own = {each.code: each for each in _own(BertlabError)}
    added = {each.name: each.load() for each in entry_points_of("bertlab.errors")}
    return dict(sorted({**added, **own}.items()))


def _own(kind: type[BertlabError]) -> Iterator[type[BertlabError]]:
    if kind.__module__ == BertlabError.__module__:  # a plugin's own has the code of its base
        yield kind
    for each in kind.__subclasses__():
        yield from _own(each)


def main(argv: list[str]) -> int:
    """Print the entry of a code, or all codes."""
    known = catalogue()
    if not argv or "-h" in argv or "--help" in argv:
        lines = (f"  {code}  {meaning(each)[0]}\n" for code, each in known.items())
        say(f"usage: bertlab explain CODE\n\n{''.join(lines)}")
        return 0
    if len(argv) > 1 or argv[0].upper() not in known:
        found = " ".join(argv)
        raise CommandError(
            f"explain: found {found!r}{nearest(found.upper(), known)} "
            f"(there are: {', '.join(known)})"
        )
    error = known[argv[0].upper()]
    paragraphs = [f"{error.code}: {meaning(error)[0]}", *meaning(error)[1:], remedy_of(error)]
    text = "\n\n".join(textwrap.fill(each, 100) for each in paragraphs)
    if (example := EXAMPLES.get(error.code)) is not None:
        text += "\n\nFor example:  {}\ninstead:      {}".format(*example)
    say(text)
    return 0


def meaning(error: type[BertlabError]) -> list[str]:
    """Return the paragraphs of an error's docstring."""
    text = inspect.cleandoc(error.__doc__ or "")
    return [" ".join(each.split()) for each in text.split("\n\n")]
