"""What a check raises."""


class ConformanceFailure(AssertionError):  # noqa: N818  pytest's word for it
    """A plugin does not keep its contract.

    Args:
        seen: what was seen, with numbers.
        advice: what to do about it, in a sentence.

    Attributes:
        check: name of the check; filled in by the kit.
    """

    def __init__(self, seen: str, advice: str) -> None:
        super().__init__(seen, advice)
        self.seen = seen
        self.advice = advice
        self.check = ""

    def __str__(self) -> str:
        start = f"{self.check}: " if self.check else ""
        return f"{start}{self.seen}\n  what to do: {self.advice}"


class NotApplicable(Exception):  # noqa: N818  nothing is wrong
    """The plugin has nothing that the check is about; the message says what."""
