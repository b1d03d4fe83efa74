"""Commands with one bug each, and the check that has to catch it."""

from good_commands import GoodCommand


class NeedsAnArgument(GoodCommand):
    """It cannot be made as the core makes it."""

    expects = ("is_made_without_arguments", "missing 1 required positional argument")

    def __init__(self, path: str) -> None:
        self.path = path


class IsSilent(GoodCommand):
    """It has no help."""

    expects = ("answers_help", "returns 0 and prints ''")

    def main(self, arguments: list[str]) -> int:
        return 0 if "--help" in arguments else super().main(arguments)


class TakesAnything(GoodCommand):
    """It does not look at options."""

    expects = ("unknown_options_are_refused", "returns 0")

    def main(self, arguments: list[str]) -> int:
        return super().main([each for each in arguments if each == "--help"])


class ParsesByItself(GoodCommand):
    """Its parsers are none."""

    expects = ("parsers_are_by_action", "'run': NoneType")

    def parsers(self):
        return {"run": None}
