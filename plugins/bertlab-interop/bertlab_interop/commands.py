"""The commands ``export`` and ``extend-vocabulary``; what they do is imported when they run."""

from typing import TYPE_CHECKING

from bertlab import Command

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser


class Export(Command):
    """Write a folder for transformers, or an ONNX file; upload it."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_interop.export_command import main  # noqa: PLC0415

        return main("export", arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_interop.export_command import make_parser  # noqa: PLC0415

        return {"": make_parser("export")}


class ExtendVocabulary(Command):
    """Add pieces to a model's vocabulary and keep its weights (tokenizer --extend)."""

    def main(self, arguments: list[str]) -> int:  # noqa: D102  the contract's
        from bertlab_interop.extend_command import main  # noqa: PLC0415

        return main(arguments)

    def parsers(self) -> "dict[str, ArgumentParser]":  # noqa: D102
        from bertlab_interop.extend_command import make_parser  # noqa: PLC0415

        return {"": make_parser()}
