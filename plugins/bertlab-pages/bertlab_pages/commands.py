"""The commands that this package adds to ``bertlab``; what they do is imported when they run."""

from typing import TYPE_CHECKING

from bertlab import Command

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


class Demo(Command):
    """A page on this machine to try a model and look inside it."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_pages.demo_command import main  # noqa: PLC0415

        return main("demo", arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_pages.demo_command import make_parser  # noqa: PLC0415

        return {"": make_parser("demo")}


class Notebooks(Command):
    """Copy the executed notebooks, which show bertlab from Python, into a folder."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_pages.notebooks_command import main  # noqa: PLC0415

        return main("notebooks", arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_pages.notebooks_command import make_parser  # noqa: PLC0415

        return {"": make_parser("notebooks")}


class Watch(Command):
    """The page of a run on this machine, which follows the run while it trains."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_pages.watch_command import main  # noqa: PLC0415

        return main("watch", arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_pages.watch_command import make_parser  # noqa: PLC0415

        return {"": make_parser("watch")}
