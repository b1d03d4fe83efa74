"""The commands that this package adds to ``bertlab``; what they do is imported when they run."""

from typing import TYPE_CHECKING

from bertlab import Command

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


class StudyCommand(Command):
    """Run an ablation: variants × seeds × evaluations."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_studies.study_command import main  # noqa: PLC0415

        return main(arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_studies.study_command import ACTIONS, make_parser  # noqa: PLC0415

        return {action: make_parser(action) for action in ACTIONS}


class AblateCommand(Command):
    """An ablation in one line."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_studies.ablate_command import main  # noqa: PLC0415

        return main(arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_studies.ablate_command import make_parser  # noqa: PLC0415

        return {"": make_parser()}
