"""The commands that this package adds to ``bertlab``; what they do is imported when they run."""

from typing import TYPE_CHECKING

from bertlab import Command

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


class Evaluate(Command):
    """Score a model without training it, as on BLiMP."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_evaluations.evaluate_command import main  # noqa: PLC0415

        return main("evaluate", arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from jsonargparse import ArgumentParser  # noqa: PLC0415

        from bertlab.extend import installed  # noqa: PLC0415
        from bertlab_evaluations.evaluate_command import OPTIONS  # noqa: PLC0415

        parser = ArgumentParser(prog="bertlab evaluate", exit_on_error=False)
        for option in OPTIONS:
            added = parser.add_argument(option)
            added.choices = list(installed("evaluation")) if option == "--evaluation" else None
        return {"": parser}


class Embed(Command):
    """Write the hidden states of texts (feature-based use)."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_evaluations.embed_command import main  # noqa: PLC0415

        return main("embed", arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_evaluations.embed_command import make_parser  # noqa: PLC0415

        return {"": make_parser("embed")}


class TakeWords(Command):
    """The first N words of a corpus, as a corpus of its own."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_evaluations.take_words import main  # noqa: PLC0415

        return main(arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_evaluations.take_words import make_parser  # noqa: PLC0415

        return {"": make_parser()}
