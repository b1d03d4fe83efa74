"""Ctrl-C and its like, noted instead of obeyed at once."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any


class StopSignals:
    """Notes Ctrl-C, SIGTERM and SIGHUP instead of ending the process, while it is entered.

    Attributes:
        number: of the first signal; None before it.
        count: of signals so far: a second one means at once.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.count = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopSignals":
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # as nohup sets it
                    self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.number = self.number or number
        self.count += 1
