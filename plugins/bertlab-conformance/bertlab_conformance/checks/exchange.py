"""Checks of exporters and readers: models for other programs, and from them."""

import ast
import json
import shutil
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import torch

from bertlab import CheckpointError, Pretrained
from bertlab.api import CheckpointReader, ForeignCheckpoint
from bertlab.extend import RECORDED_AS
from bertlab_conformance.cases import Case
from bertlab_conformance.check import ConformanceFailure, NotApplicable, check
from bertlab_conformance.comparisons import not_json
from bertlab_conformance.stack import seeded, tiny_encoder

if TYPE_CHECKING:
    from bertlab.api import Exporter, ExportReport

# a name of a folder that breaks out of a string that is not escaped
_HOSTILE = """a"b\'c\\d\ne"""


class ExporterCase(Case):
    """An exporter under test, with a small BERT to write."""

    plugin: "type[Exporter]"

    @cached_property
    def model(self) -> Pretrained:
        """A new encoder with its tokenizer, without a head."""
        tokenizer = self.language.tokenizer
        with seeded(0):
            encoder = tiny_encoder(tokenizer.vocab_size)
        sizes = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size")
        values = dict(zip(sizes, (3, 32, 2, 64), strict=True))
        return Pretrained(
            source=RECORDED_AS,
            encoder_config={"name": "bert", **values, "max_position_embeddings": 64},
            vocab_size=tokenizer.vocab_size,
            state={f"encoder.{name}": each for name, each in encoder.state_dict().items()},
            tokenizer=tokenizer,
        )

    def write(self) -> "tuple[ExportReport, dict[str, bytes]]":
        """Return the report of a new exporter, and what it writes."""
        exporter: Exporter = self.new()
        with TemporaryDirectory() as place:
            report = exporter.write(self.model, Path(place))
            files = [path for path in Path(place).rglob("*") if path.is_file()]
            return report, {path.relative_to(place).as_posix(): path.read_bytes() for path in files}

    @cached_property
    def written(self) -> "tuple[ExportReport, dict[str, bytes]]":
        """What is written first."""
        return self.write()


class ReaderCase(Case):
    """A reader under test, with a checkpoint if its author gave one."""

    plugin: type[CheckpointReader]

    def new(self) -> CheckpointReader:
        """Return a reader, which takes no arguments."""
        return self.plugin()

    @property
    def path(self) -> Path:
        """The author's checkpoint."""
        if "path" not in self.options.arguments:
            raise NotApplicable("no checkpoint is given: arguments={'path': …}")
        return Path(self.options.arguments["path"])


@check("exporter", after=("arguments_have_defaults",))
def writes_a_config(case: ExporterCase) -> None:
    """``write`` returns an ``ExportReport``, and one of its files is ``config.json``."""
    from bertlab.api import ExportReport  # noqa: PLC0415  of bertlab-interop

    report, files = case.written
    if not isinstance(json.loads(files.get("config.json", b"null")), dict):
        raise ConformanceFailure(
            "write() leaves no config.json with a JSON object",
            "write the encoder's settings there; a later export knows the folder by it",
        )
    if not isinstance(report, ExportReport):
        raise ConformanceFailure(
            f"write() returns a {type(report).__name__}", "return ExportReport(architecture, …)"
        )
    for name in ("architecture", "description"):
        if not isinstance(value := getattr(report, name), str) or not value.strip():
            raise ConformanceFailure(f"report.{name} is {value!r}", "say it in a few words")


@check("exporter", after=("writes_a_config",))
def leaves_the_model_alone(case: ExporterCase) -> None:
    """``write`` changes neither tensors nor settings of the model."""
    model = case.model
    settings, tensors = dict(model.encoder_config), {k: v.clone() for k, v in model.state.items()}
    case.write()
    changed = [k for k in tensors | model.state if not _same(tensors.get(k), model.state.get(k))]
    if changed or settings != model.encoder_config:
        raise ConformanceFailure(
            f"write() changes the model: {', '.join(changed[:3]) or 'encoder_config'}",
            "copy what you change: the model card and other exports read it after you",
        )


@check("exporter", after=("leaves_the_model_alone",))
def export_repeats(case: ExporterCase) -> None:
    """The same model is written as the same bytes."""
    (_, first), (_, second) = case.written, case.write()
    changed = [name for name in first | second if first.get(name) != second.get(name)]
    if changed:
        raise ConformanceFailure(
            f"two exports differ in {', '.join(sorted(changed))}",
            "write neither times nor random names, and sort what comes out of sets",
        )


@check("exporter", after=("writes_a_config",))
def loading_code_quotes_names(case: ExporterCase) -> None:
    """Loading code is Python, and the name of the folder is no more than a string in it."""
    from bertlab.api import ModelAddress  # noqa: PLC0415  of bertlab-interop

    report, _ = case.written
    for library, code in case.new().loading_code(report, ModelAddress(_HOSTILE)):
        try:
            nodes = list(ast.walk(ast.parse(code)))
        except SyntaxError as error:
            raise ConformanceFailure(
                f"the code for {library} is not Python where a name has quotes: {error}",
                "put the name in by address.arguments alone, which escapes it",
            ) from None
        texts = [each.value for each in nodes if isinstance(each, ast.Constant)]
        if not any(isinstance(text, str) and _HOSTILE in text for text in texts):
            raise ConformanceFailure(
                f"the code for {library} does not load by the address that it is given",
                "put the name in by address.arguments",
            )


@check("reader", after=("is_made_without_arguments",))
def ignores_what_is_not_its_own(case: ReaderCase) -> None:
    """``find`` gives None for hub names, empty folders and folders of ``transformers``."""
    with TemporaryDirectory() as place:
        empty, theirs = Path(place, "empty"), Path(place, "theirs")
        empty.mkdir()
        theirs.mkdir()
        (theirs / "config.json").write_text("{}")
        (theirs / "model.safetensors").write_bytes(b"")
        for path in (empty, theirs, theirs / "config.json", Path("owner/name"), Path(place, "no")):
            if (found := case.new().find(path)) is not None:
                raise ConformanceFailure(
                    f"find({path.name!r}) returns {found}",
                    "return a file only where its name says that it is yours",
                )


@check("reader", after=("ignores_what_is_not_its_own",))
def reads_what_it_finds(case: ReaderCase) -> None:
    """``find`` finds the given checkpoint, and ``read`` gives its config and tensors."""
    found = case.new().find(case.path)
    if not isinstance(found, Path):
        raise ConformanceFailure(f"find({str(case.path)!r}) returns {found!r}", "return the file")
    checkpoint = case.new().read(found)
    if not isinstance(checkpoint, ForeignCheckpoint):
        raise ConformanceFailure(
            f"read() returns a {type(checkpoint).__name__}", "return a ForeignCheckpoint"
        )
    if reason := not_json(checkpoint.config):
        raise ConformanceFailure(
            f"config is not plain data: {reason}", "keep what a config.json could hold"
        )
    wrong = [k for k, v in checkpoint.tensors.items() if not isinstance(v, torch.Tensor)]
    if wrong or not checkpoint.tensors:
        raise ConformanceFailure(
            f"tensors: {', '.join(wrong[:3]) or 'there is none'}", "return torch.Tensors by name"
        )


@check("reader", after=("reads_what_it_finds",))
def damage_is_refused(case: ReaderCase) -> None:
    """A file that lacks its second half is a ``CheckpointError``."""
    inside = case.path.is_dir()
    with TemporaryDirectory() as place:
        folder = Path(place, "copy")
        shutil.copytree(case.path if inside else case.path.parent, folder)
        found = case.new().find(folder if inside else folder / case.path.name)
        assert found is not None
        content = found.read_bytes()
        found.write_bytes(content[: len(content) // 2])
        try:
            case.new().read(found)
        except CheckpointError:
            return
    raise ConformanceFailure(
        "half of the file is read as if it were whole",
        "check sizes or checksums, and raise bertlab.CheckpointError with the file's name",
    )


def _same(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    return one is not None and other is not None and torch.equal(one, other)
