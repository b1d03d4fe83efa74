"""``bertlab fit``, ``validate``, ``test`` and ``predict``."""

from bertlab.config.request import read_request
from bertlab.training.repeated import find_repetition, fit_repeatedly
from bertlab.training.session import open_session


def main(command: str, argv: list[str]) -> int:
    """Run ``fit``, ``validate``, ``test`` or ``predict``; return the exit code."""
    request = read_request(argv)
    repetition = find_repetition(argv, request) if command == "fit" else None
    if repetition is not None:
        return fit_repeatedly(repetition)
    return open_session(command, request).run()
