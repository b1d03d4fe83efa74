"""DataModules, classes of tokenizers and added functions with one bug each, and good ones."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from lightning.pytorch.cli import LightningArgumentParser

from bertlab import PretrainedModel
from bertlab.api import Task, TaskData, Tokenizer
from bertlab.api.tokenizer import TokenArray
from bertlab.tokenizer.files import WordPieceTokenizer

Expects = tuple[str, str]


class GoodData(TaskData):
    """Nothing to train on, by the contract.

    Args:
        path: of the data.
        seed: of the order.
    """

    def __init__(self, path: str = "", seed: int = 0) -> None:
        super().__init__()
        self.path, self.seed = path, seed

    def load_tokenizer(self) -> Tokenizer:
        raise NotImplementedError

    def connect(self, tokenizer: Tokenizer, tasks: Mapping[str, Task]) -> None:
        self.tokenizer = tokenizer

    def prepare(self, command: str) -> None:
        self.prepared = command

    def report_tables(self) -> list[tuple[str, list[tuple[str, str]]]]:
        return []

    def facts(self) -> dict[str, Any]:
        return {}

    def sequences_per_step(self) -> int:
        return 1

    def mean_lengths(self, steps: float = float("inf")) -> tuple[float, float]:
        return 1.0, 1.0

    def steps_per_epoch(self) -> int:
        return 1

    def train_dataloader(self) -> Any:
        return []

    def val_dataloader(self) -> Any:
        return []

    def predict_dataloader(self) -> Any:
        return []


class NoFacts(GoodData):
    """Leaves a method open, as the contract does."""

    expects: Expects = ("answers_what_a_run_asks", "NoFacts does not define facts")
    facts = TaskData.facts  # type: ignore[assignment]


class NoSeed(GoodData):
    """Has no order of its own."""

    expects: Expects = ("takes_the_seed_of_the_order", "__init__ takes no seed")

    def __init__(self, path: str = "") -> None:
        super().__init__(path)


class OtherKeys(GoodData):
    """Adds a key that it is not given."""

    expects: Expects = ("keys_are_arguments", "add_arguments adds data.folder")

    @classmethod
    def add_arguments(
        cls, parser: LightningArgumentParser, heads: Sequence[str], objectives: Sequence[str]
    ) -> None:
        parser.add_argument("--data.folder", type=str, default="")


class GoodWordPiece(WordPieceTokenizer):
    """WordPiece, as it is."""


class ForgetsCase(GoodWordPiece):
    """Writes that all text is lower-cased."""

    expects: Expects = ("files_come_back", "what to_json() wrote has another fingerprint")

    def to_json(self) -> str:
        return super().to_json().replace('"lowercase": true', '"lowercase": false')


class OneLength(GoodWordPiece):
    """Says that all ids are of one text."""

    expects: Expects = ("many_texts_are_as_each_alone", "of 5 texts encode_texts() gives")

    def encode_texts(self, texts: Sequence[str]) -> tuple[TokenArray, npt.NDArray[np.int64]]:
        ids, _ = super().encode_texts(texts)
        return ids, np.array([len(ids)])


class MasksOfText(GoodWordPiece):
    """Lets a text mask itself."""

    expects: Expects = ("special_tokens_in_a_corpus_are_text", "encode_texts() makes [PAD]")

    def encode_texts(self, texts: Sequence[str]) -> tuple[TokenArray, npt.NDArray[np.int64]]:
        rows = [self.encode(text) for text in texts]
        flat = np.fromiter((number for row in rows for number in row), self.dtype)
        return flat, np.fromiter(map(len, rows), np.int64, len(rows))


def good_name(model: PretrainedModel, power: float = 1.0) -> float:
    """Return the width of a model, to a power."""
    return float(model.encoder.hidden_size**power)


def width(*given: PretrainedModel) -> int:
    """Return the width of a model."""
    return given[0].encoder.hidden_size


def silent(model: PretrainedModel) -> int:
    return model.encoder.hidden_size


BUGS: list[Callable[..., Any]] = [width, silent]
vars(width)["expects"] = ("arguments_are_named", "has *given")
vars(silent)["expects"] = ("has_a_summary", "silent has no docstring")
