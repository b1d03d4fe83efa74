"""A command whose module imports torch: `bertlab --help` would wait for it."""

import torch

from good_commands import GoodCommand


class WaitsForTorch(GoodCommand):
    """It is slow to say what it does."""

    expects = ("is_imported_lightly", "imports numpy, torch")

    def main(self, arguments: list[str]) -> int:
        return super().main(arguments) + int(torch.zeros(()).item())
