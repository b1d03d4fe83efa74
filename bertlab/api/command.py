"""The contract of a command: what is typed after ``bertlab``."""

from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


class Command(ABC):
    """A command of ``bertlab`` that a package adds, an entry point of ``bertlab.commands``.

    What is typed is the entry point's name; a command of bertlab's own cannot be replaced. The
    first line of a subclass's docstring is its line in ``bertlab --help``, which imports the
    module: heavy packages are imported inside the methods. An object is made for each use, without
    arguments.
    """

    @abstractmethod
    def main(self, arguments: list[str]) -> int:
        """Run the command; ``bertlab NAME …`` calls it.

        Args:
            arguments: those after the command's name, ``--help`` as well.

        Returns:
            The exit code, 0 if all is well.

        Raises:
            BertlabError: the user made a mistake: it is printed in one line, and the exit code is
                2. Any other exception is reported as a bug of the package.
        """

    def parsers(self) -> "dict[str, ArgumentParser]":
        """Return the parsers by which shells complete the arguments.

        ``bertlab completion`` calls it. A key is the word between the command and its arguments,
        such as ``run`` of ``bertlab study run``; it is empty if there is none. By default nothing
        is completed.
        """
        return {}


class Opened(Protocol):
    """A command of bertlab's that is ready to run; a package may return its own from a hook."""

    @property
    def directory(self) -> Path:
        """Directory of the run that ``fit`` makes or goes on with."""

    def run(self) -> int:
        """Execute the command.

        Returns:
            The exit code, 0 if all is well.
        """
