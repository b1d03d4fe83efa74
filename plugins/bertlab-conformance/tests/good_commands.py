"""A command as it should be; imported without anything heavy."""

from bertlab.api.command import Command
from bertlab.errors import ConfigError


class GoodCommand(Command):
    """Count the arguments."""

    def main(self, arguments: list[str]) -> int:
        if "--help" in arguments:
            print("usage: bertlab count WORD …")
            return 0
        unknown = [each for each in arguments if each.startswith("-")]
        if unknown:
            raise ConfigError(f"count: found {unknown[0]}, expected words")
        print(len(arguments))
        return 0
