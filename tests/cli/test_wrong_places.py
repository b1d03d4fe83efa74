"""Places and names that are wrong: told before torch is imported, in the words of the late check.

The words come from functions of the core, which the command that reads the place calls as well, so
what is asserted here is that a command asks them before it imports what takes long.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from bertlab.checkpoints.restore import read_pretrained
from bertlab.cli.fit_help import short_help
from bertlab.config.merge import read_request
from bertlab.data.corpus.corpus import Corpus, no_such_source, read_documents
from bertlab.data.rows.files import output_form
from bertlab.data.sources import check_model, is_hub_name
from bertlab.errors import CheckpointError, ConfigError, CorpusError, OutputError
from bertlab.training.results import print_results
from tests.conftest import Command

NO_HUB = "nowhere: no such folder, and the Hugging Face hub cannot be reached"
# a command with a mistake, and what is said of it
MISTAKES = [
    ("demo nowhere", NO_HUB),
    ("demo runs/mine", "runs/mine: no such folder; did you mean 'mini'?"),
    ("embed nowhere t.txt out.npy --pool mean", NO_HUB),
    ("embed runs/mini t.txt out.txt", "output: found 'out.txt', expected a name that ends in"),
    ("evaluate nowhere blimp", NO_HUB),
    ("evaluate runs/mine blimp", "runs/mine: no such folder; did you mean 'mini'?"),
    ("evaluate blimp", "expected the model first: bertlab evaluate MODEL blimp"),
    ("evaluate runs/mini", "(NAME: all, attention, blimp,"),
    ("export runs/mine out", "runs/mine: no such folder; did you mean 'mini'?"),
    ("tokenizer --extend runs/mine --output out --add 3", "runs/mine: no such folder"),
    ("adapter runs/mine --base b --name n", "runs/mine: no such run or checkpoint of bertlab"),
    ("adapter", "missing: MODEL"),
    (
        "fit --seed 1 quickstart",
        "'quickstart' alone, expected --KEY VALUE (a list: --KEY '[a, b]')"
        "; the names of configs stand before all keys",
    ),
    ("adapter runs/mini --base b --name n", "b: expected a folder, in which the adapter is"),
    ("export runs/mini out --format onx", "no exporter is called 'onx'; did you mean 'onnx'?"),
    ("export runs/mini runs", "runs: the folder is not empty; choose another, or replace"),
    ("embed runs/mini t.tx out.npy --pool mean", "t.tx: cannot be read: No such file"),
    ("embed runs/mini t.csv out.npy --pool mean", "t.csv: is a table (csv), expected one text a l"),
    ("predict runs/mini t.csv", "predict: found 't.csv' on its own, expected --input before it"),
    ("predict t.csv runs/mini", "the model first: bertlab predict runs/mini --input t.csv"),
    ("predict runs/mini fine", "predict: found 'fine' on its own, expected --text before it"),
    ("evaluate runs/mini probing", "missing: --data"),
    ("evaluate runs/mini probing --data nope", "nope: no such file or folder in"),
    ("study plan nowhere", "nowhere: no such study file or directory"),
    ("study run runs/mini", "runs/mini: not the directory of a study (it has no study.yaml)"),
    ("study plan studies/quickstart --reuse nope", "--reuse: nope is not the directory of a"),
    ("study design studies/quickstart --pilot nope", "--pilot: nope: no such study file"),
    ("demo runs/mini --port 99999", "--port: found 99999, expected 1 to 65535, or 0: a free one"),
    ("study import owm.yaml", "no such file or folder in"),
    ("watch runs/mine", "runs/mine: no such run; did you mean 'mini'?"),
    ("watch runs/mini", "runs/mini: no such run (it has no manifest.json)"),
    ("init own.yaml ner", "expected the kind first: bertlab init ner own.yaml"),
    ("doctor", "did you mean 'check-plugins'?"),
    ("fit --config own.yml", "did you mean 'own.yaml'?"),
    ("evaluate ~nobody-here/m blimp", "E101: ~nobody-here/m: found no home directory (is HOME"),
]
# of commands whose places are looked at where torch is not imported yet
EARLY = [
    ("predict nowhere --text x", "--ckpt_path: nowhere: no such run or checkpoint"),
    ("predict runs/mini --text x --output x.xlsx", "--output: x.xlsx: spreadsheets and packed"),
    ("predict runs --text x", "runs: no such run or checkpoint; it is there, but holds no"),
    ("prepare --corpus own.yaml --tokenizer nope --output o", "nope: no such file or folder"),
    ("evaluate runs/mini blimp", "blimp reads ../shared/data/blimp, which is not here"),
    ("fit", "fit: found no config and no data, expected a config, as in bertlab fit quickstart"),
    ("fit --config quickstart --data.corpus nope", "nope: no such file or folder in"),
    ("fit --config quickstart --model.init_from nowhere", NO_HUB),
]


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an empty run and a config, which is the working directory."""
    (tmp_path / "runs" / "mini").mkdir(parents=True)
    (tmp_path / "own.yaml").touch()
    (tmp_path / "t.csv").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize(("line", "words"), MISTAKES)
def test_what_is_said(line: str, words: str, bertlab: Command) -> None:
    code, output, error = bertlab(*line.split())
    assert (code, output) == (2, "")
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_torch_is_not_imported(places: Path) -> None:
    lines = [line.split() for line, _ in MISTAKES + EARLY]
    code = (
        f"import sys; from bertlab.cli.main import main; print([main(each) for each in {lines}]);"
        "print('torch' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], cwd=places, capture_output=True, text=True, check=True
    )
    assert found.stdout == f"{[2] * len(lines)}\nFalse\n"
    for words in (words for _, words in MISTAKES + EARLY):
        assert words in found.stderr


@pytest.mark.usefixtures("places")
def test_resume_as_elsewhere_names_the_key(bertlab: Command) -> None:
    code, _, error = bertlab("fit", "--resume", "runs/mini")
    assert (code, "resume: no such key; did you mean 'ckpt_path'?" in error) == (2, True)


@pytest.mark.usefixtures("places")
@pytest.mark.parametrize("given", ["nowhere", "runs/mine", "./mine", "hf://a/b"])
def test_the_early_words_are_the_late_ones(given: str) -> None:
    with pytest.raises(CheckpointError) as late:
        read_pretrained(given)
    with pytest.raises(CheckpointError) as early:
        check_model(given)
    assert str(early.value) == str(late.value)


def test_what_is_there_is_left_to_the_command(places: Path) -> None:
    check_model("runs/mini")
    (places / "bert_model.ckpt.index").touch()
    check_model("bert_model.ckpt")  # of a reader


def test_a_name_of_the_hub(places: Path) -> None:
    assert is_hub_name("bert-base-uncased")
    assert is_hub_name("google-bert/bert-base-uncased")
    assert not is_hub_name("runs/bert-base-uncased")  # runs is a folder here
    assert not is_hub_name("../bert")


@pytest.mark.usefixtures("places")
def test_a_corpus_is_missed_in_the_same_words() -> None:
    with pytest.raises(CorpusError) as late:
        list(read_documents(Corpus.of("nope")))
    assert str(no_such_source("nope")) == str(late.value)


@pytest.mark.parametrize(
    ("output", "form"),
    [(None, "jsonl"), ("a.CSV", "csv"), ("a.tsv", "tsv"), ("a.parquet", "parquet"), ("a", "jsonl")],
)
def test_the_form_of_predictions(output: str | None, form: str) -> None:
    assert output_form(output) == form


@pytest.mark.parametrize("output", ["a.xlsx", "a.csv.gz"])
def test_forms_that_are_not_written(output: str) -> None:
    with pytest.raises(OutputError, match="not written, expected a name that ends in"):
        output_form(output)


@pytest.mark.parametrize("given", ["none", "None", "nil"])
def test_a_word_for_null(given: str) -> None:
    request = read_request(["--model.init_from", given])
    with pytest.raises(ConfigError, match=f"found '{given}'; did you mean null"):
        _ = request.init_from
    assert read_request(["--model.init_from", "null"]).init_from is None


def test_the_short_help_names_the_keys_of_packages() -> None:
    words = short_help("fit", read_request([]))
    assert "Keys that packages add: against_scratch background_checkpoints" in words
    assert "Keys that packages add" not in short_help("predict", read_request([]))


def test_figures_of_test_rows_are_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    print_results({"head/accuracy": 0.5}, "test rows", {"head": ["accuracy"]}, "test")
    shown = capsys.readouterr().out
    assert "held-out" not in shown
    assert "50.0%" in shown
