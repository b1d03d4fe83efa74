"""The commands that this package adds to ``bertlab``; what they do is imported when they run."""

from typing import TYPE_CHECKING

from bertlab import Command
from bertlab.extend import train_or_use

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

PRINT_CONFIG = "--print_config"


class Completion(Command):
    """What makes the shell complete commands and options."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_conformance.completion import main  # noqa: PLC0415

        return main(arguments)


class Explain(Command):
    """What the code of an error means, and what to do."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_conformance.explain import main  # noqa: PLC0415

        return main(arguments)


class Init(Command):
    """Write a config for data of your own."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_conformance.init import main  # noqa: PLC0415

        return main(arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from jsonargparse import ArgumentParser  # noqa: PLC0415

        from bertlab_conformance.init import templates  # noqa: PLC0415

        return {kind: ArgumentParser(exit_on_error=False) for kind in templates()}


class Json(Command):
    """Run a command and print one JSON document (BERTLAB COMMAND --json)."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_conformance.json_document import main  # noqa: PLC0415

        return main(arguments)


class PrintConfig(Command):
    """Print the config of a run, and run nothing (fit --print_config)."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        if any(each.split("=")[0] == PRINT_CONFIG for each in arguments):  # as `fit` calls it
            from bertlab_conformance.printing import main  # noqa: PLC0415  torch

            return main(arguments)
        # print-config quickstart, print-config fit quickstart: as typed behind `fit`
        typed = arguments[1:] if arguments[:1] == ["fit"] else arguments
        return train_or_use("fit", [*typed, PRINT_CONFIG])


class NewPlugin(Command):
    """Write a package with a plugin of your own."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_conformance.scaffold import main  # noqa: PLC0415

        return main("new-plugin", arguments)


class CheckPlugins(Command):
    """Import every plugin; say what is broken and why."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_conformance.plugin_check import main  # noqa: PLC0415

        return main(arguments)


class Plugins(Command):
    """What is installed, and what it takes."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102
        from bertlab_conformance.plugin_list import main  # noqa: PLC0415

        return main(arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from jsonargparse import ArgumentParser  # noqa: PLC0415

        from bertlab_conformance.plugin_list import ACTIONS  # noqa: PLC0415

        return {action: ArgumentParser(exit_on_error=False) for action in ACTIONS}
