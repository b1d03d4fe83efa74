"""Exporters and readers of strangers, and those of packages that are not installed."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bertlab.checkpoints.restore import read_pretrained
from bertlab.errors import CheckpointError, CommandError, PluginError
from bertlab.plugins import hooks
from bertlab.plugins import index as plugins
from bertlab.training.run import Run
from tests.checkpoints.peers import TOKENIZER, assert_bit_equal, export_huggingface, randomized
from tests.checkpoints.test_export import model
from tests.conftest import Command
from tests.plugins.strange_packages import install, without

EXPORTER = '''
from bertlab.api import Exporter, ExportReport


class Names(Exporter):
    """The names of the tensors.

    Args:
        ending: of each line.
    """

    def __init__(self, ending: str = "") -> None:
        self.ending = ending

    def write(self, model, folder):
        (folder / "config.json").write_text("{}")
        (folder / "names.txt").write_text("".join(f"{n}{self.ending}\\n" for n in model.state))
        return ExportReport("names.txt", "The names of the tensors", ["numbers stay behind"])

    def loading_code(self, report, address):
        return [("python", f"open({address.arguments})\\n```\\n# Title")]
'''
READER = """
from pathlib import Path
from bertlab.api.exchange import CheckpointReader, ForeignCheckpoint
from bertlab.checkpoints.huggingface import read_huggingface_config
from bertlab.checkpoints.tensor_files import read_tensors

ASKED = []


class KIND(CheckpointReader):
    def find(self, path):
        ASKED.append(path)
        file = path.with_suffix(".parcel")
        return file if file.is_file() else None

    def read(self, file):
        folder = Path(file.read_text())
        config, weights = folder / "config.json", folder / "model.safetensors"
        found = read_huggingface_config(config)
        return ForeignCheckpoint(found, read_tensors(weights), config, weights)
"""


@pytest.fixture(autouse=True)
def fresh_index() -> Iterator[None]:
    yield
    hooks.hook_modules.cache_clear()
    plugins.forget_installed()
    for name in [name for name in sys.modules if name.endswith("_of_a_stranger")]:
        del sys.modules[name]


@pytest.fixture
def stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder on ``sys.path`` to install packages in."""
    (tmp_path / "site").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "site")
    plugins.forget_installed()
    return tmp_path / "site"


def test_a_strangers_exporter_has_settings_and_a_card(
    stranger: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    module = "names_of_a_stranger"
    install(
        stranger, "names", {"bertlab.exporters": {"names": f"{module}:Names"}}, {module: EXPORTER}
    )
    arguments = ("export", tiny_run, tmp_path / "out", "--format", "names")
    code, printed, error = bertlab(*arguments, "--settings.ending", "!")
    assert (code, error) == (0, "")
    assert printed == f"{tmp_path / 'out'}: names.txt\nnote: numbers stay behind\n"
    assert (
        "encoder.token_embedding.weight!" in (tmp_path / "out/names.txt").read_text().splitlines()
    )
    card = (tmp_path / "out/README.md").read_text()
    assert card.startswith("---\nlibrary_name: names\n")
    assert "The names of the tensors, written by bertlab" in card
    assert card.split("```python\n")[1] == 'open("out")\n# Title\n```\n'
    code, _, error = bertlab(*arguments, "--settings.endin", "!")
    assert code == 2
    assert "did you mean 'settings.ending'" in error


def test_an_export_that_no_later_one_would_know_is_refused(
    stranger: Path, tiny_run: Path, tmp_path: Path
) -> None:
    module = "names_of_a_stranger"
    code = EXPORTER.replace('"config.json"', '"settings.json"')
    install(stranger, "names", {"bertlab.exporters": {"names": f"{module}:Names"}}, {module: code})
    words = "exporter 'names' wrote names.txt, settings.json, expected config.json among it"
    with pytest.raises(PluginError, match=words):
        Run(tiny_run).export(tmp_path / "out", form="names")
    assert not (tmp_path / "out").exists()


def test_an_unknown_form_is_told_with_the_nearest(tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"--format: no exporter .* did you mean 'transformers'"):
        Run(tiny_run).export(tmp_path / "out", form="transformer")
    assert not (tmp_path / "out").exists()


def test_without_its_package_the_command_says_what_to_install(
    tiny_run: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "bertlab-interop")
    code, _, error = bertlab("export", tiny_run, tmp_path / "out", "--format", "onnx")
    assert code == 2
    assert "`bertlab export` comes with bertlab-interop: pip install bertlab-interop" in error


def test_without_pages_an_export_has_no_card_and_is_not_pushed(
    tiny_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch, "bertlab-pages")
    run = Run(tiny_run)
    report = run.export(tmp_path / "out")
    assert (report.form, report.architecture) == ("transformers", "BertForPreTraining")
    assert (report.output / "model.safetensors").is_file()
    assert not (report.output / "README.md").exists()
    with pytest.raises(CommandError, match=r"--push: .* pip install bertlab-pages"):
        run.export(tmp_path / "other", repository="me/tiny")
    assert not (tmp_path / "other").exists()


def add_reader(folder: Path, name: str) -> list[Path]:
    """Install a reader of ``.parcel`` files; return the list of what it is asked."""
    module = f"{name}_of_a_stranger"
    code = READER.replace("KIND", name.title())
    install(folder, name, {"bertlab.readers": {name: f"{module}:{name.title()}"}}, {module: code})
    plugins.forget_installed()
    asked: list[Path] = __import__(module).ASKED
    return asked


@pytest.mark.slow
def test_a_strangers_reader_reads_what_nobody_else_knows(
    stranger: Path, tiny_run: Path, tmp_path: Path, bertlab: Command
) -> None:
    later = add_reader(stranger, "second")
    asked = add_reader(stranger, "first")
    encoder, _ = model()
    export_huggingface(randomized(encoder), {}, TOKENIZER, tmp_path / "folder")
    read_pretrained(str(tiny_run))
    expected = read_pretrained(str(tmp_path / "folder"))
    assert (asked, later) == ([], [])  # of runs and folders of transformers

    (tmp_path / "a.parcel").write_text(str(tmp_path / "folder"))
    for place in ("a.parcel", "a"):
        found = read_pretrained(str(tmp_path / place))
        assert found.source == str(tmp_path / place)
        assert_bit_equal(found.state, expected.state)
        assert found.tokenizer is not None
        assert found.tokenizer.fingerprint == TOKENIZER.fingerprint
    assert later == []  # asked in the order of names
    assert asked
    assert bertlab("export", tmp_path / "a", tmp_path / "out")[0] == 0
    assert json.loads((tmp_path / "out/config.json").read_text())["model_type"] == "bert"

    with pytest.raises(CheckpointError, match="no such folder"):
        read_pretrained(str(tmp_path / "b" / "c" / "d"))
    assert later


def test_a_checkpoint_of_ours_under_another_name_is_read(
    stranger: Path, tiny_run: Path, tmp_path: Path
) -> None:
    add_reader(stranger, "first")
    (tmp_path / "kept.model").write_bytes((tiny_run / "checkpoints/last.ckpt").read_bytes())
    assert read_pretrained(str(tmp_path / "kept.model")).global_step == 6


@pytest.mark.parametrize("place", ["", "bert_model.ckpt", "bert_model.ckpt.index"])
def test_without_interop_a_tensorflow_checkpoint_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "bert_config.json").write_text("{}")
    (tmp_path / "bert_model.ckpt.index").touch()
    without(monkeypatch, "bertlab-interop")
    with pytest.raises(CheckpointError, match=r"'tensorflow'.*: pip install bertlab-interop"):
        read_pretrained(str(tmp_path / place))
