"""Exporters, readers, executors and formats with one bug each, and the check that catches it."""

import itertools
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import torch

from bertlab import OrderedMap
from bertlab.api import ExportReport, ModelAddress
from bertlab.api.examples import Example
from bertlab.api.exchange import ForeignCheckpoint
from bertlab.api.format import NamedFormat
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.errors import BertlabError
from good_exchange import GoodExecutor, GoodExporter, GoodFormat, GoodReader, LabelLines

_CALLS = itertools.count()


class LeavesNoConfig(GoodExporter):
    """A later export would not know its folder."""

    expects = ("writes_a_config", "no config.json")

    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        report = super().write(model, folder)
        (folder / "config.json").rename(folder / "settings.json")
        return report


class HalvesInPlace(GoodExporter):
    """It changes what it is given."""

    expects = ("leaves_the_model_alone", "changes the model: encoder.")

    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        report = super().write(model, folder)
        next(iter(model.state.values())).mul_(0.5)
        return report


class WritesTheTime(GoodExporter):
    """No two exports are the same."""

    expects = ("export_repeats", "two exports differ in time.txt")

    def write(self, model: Pretrained, folder: Path) -> ExportReport:
        (folder / "time.txt").write_text(str(next(_CALLS)))
        return super().write(model, folder)


class QuotesByHand(GoodExporter):
    """A folder's name can end the string, and run what follows."""

    expects = ("loading_code_quotes_names", "is not Python")

    def loading_code(self, report: ExportReport, address: ModelAddress) -> list[tuple[str, str]]:
        return [("safetensors", f'load_file("{address.name}")')]


class TakesEverything(GoodReader):
    """It takes other programs' checkpoints for its own."""

    expects = ("ignores_what_is_not_its_own", "find('theirs') returns")

    def find(self, path: Path) -> Path | None:
        inside = path / "config.json"
        return inside if inside.is_file() else super().find(path)


class ReadsLists(GoodReader):
    """What it reads are no tensors."""

    expects = ("reads_what_it_finds", "tensors: pooler.dense.bias")

    def read(self, file: Path) -> ForeignCheckpoint:
        found = super().read(file)
        found.tensors.update({k: v.tolist() for k, v in found.tensors.items()})
        return found


class MendsDamage(GoodReader):
    """It reads half of a file as if it were whole."""

    expects = ("damage_is_refused", "as if it were whole")

    def read(self, file: Path) -> ForeignCheckpoint:
        try:
            json.loads(file.read_text())
        except ValueError:
            return ForeignCheckpoint({}, {"pooler.dense.bias": torch.zeros(2)}, file, file)
        return super().read(file)


class OneSource(GoodFormat):
    """A name where a tuple of names belongs."""

    expects = ("columns_have_sources", "columns['text'] is 'sentence'")
    columns: ClassVar = {"text": "sentence"}


class SameName(GoodFormat):
    """Two classes have one name."""

    expects = ("class_names_differ", "['bad', 'bad']")
    label_names = ("bad", "bad")


class CannotRead(NamedFormat):
    """It is no table, and is not read."""

    expects = ("says_what_files_are", "read is missing")
    table = None


class OnTheSide(LabelLines):
    """It writes a file of its own."""

    def write(self, row: Example, prediction: Mapping[str, Any]) -> None:
        super().write(row, prediction)

    def discard(self) -> None:
        self.path.with_suffix(".log").write_text("stopped")
        super().discard()


class LeavesALog(GoodFormat):
    """After an error, something is left of the submission."""

    expects = ("a_discarded_submission_leaves_nothing", "discard() leaves submission.log")
    submission = OnTheSide


class NamesNoOption(GoodExecutor):
    """It hides an option that it does not have."""

    expects = ("only_for_studies_are_options", "only_for_studies has thread;")
    only_for_studies = ("thread",)


class Changed(GoodExecutor):
    """A mapping that is changed by ``change``."""

    def change(self, mapped: OrderedMap, read: Any, function: Any) -> Iterator[Any]:
        raise NotImplementedError

    @contextmanager
    def mapping(self, workers: int | None) -> Iterator[OrderedMap]:
        with super().mapping(workers) as mapped:
            yield lambda read, function: self.change(mapped, read, function)


class FirstReadyFirst(Changed):
    """It yields what is ready."""

    expects = ("results_come_in_order", "are [-19, -18")

    def change(self, mapped: OrderedMap, read: Any, function: Any) -> Iterator[Any]:
        yield from reversed(list(mapped(read, function)))


class WrapsErrors(Changed):
    """It makes errors of the user its own."""

    expects = ("errors_are_passed_on", "becomes RuntimeError")

    def change(self, mapped: OrderedMap, read: Any, function: Any) -> Iterator[Any]:
        try:
            yield from mapped(read, function)
        except BertlabError as error:
            raise RuntimeError("a worker failed") from error


class MustBeReadToItsEnd(Changed):
    """It cannot be ended early."""

    expects = ("ends_early", "TimeoutError: still at work")

    def change(self, mapped: OrderedMap, read: Any, function: Any) -> Iterator[Any]:
        try:
            yield from mapped(read, function)
        except GeneratorExit:
            raise TimeoutError("still at work") from None
