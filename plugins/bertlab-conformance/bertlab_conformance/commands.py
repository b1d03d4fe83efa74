"""The commands that this package adds to ``bertlab``; what they do is imported when they run."""

from bertlab import Command


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
