"""Sources with settings: ``data.corpus: {source: NAME, …}``."""

import contextlib
import re
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bertlab.cli.data import make_parser, with_config
from bertlab.config.merge import read_request
from bertlab.config.parse import parse_arguments
from bertlab.config.parser import build_parser
from bertlab.config.run_config import resolve_request
from bertlab.config.yaml_files import read_config
from bertlab.data.corpus.corpus import Corpus, read_raw_documents
from bertlab.errors import ConfigError, PluginError
from bertlab.files import read_object
from bertlab.plugins import index as plugins
from tests.conftest import Command
from tests.plugins.strange_packages import install

SETTINGS = """
import sqlite3
from pathlib import Path
from bertlab.api.examples import DataSource, RawDocument
from bertlab.errors import CorpusError

class Sqlite(DataSource):
    \"\"\"Texts of a table.

    Args:
        file: the database.
        table: with a column text.
        least: characters of the shortest text.
    \"\"\"

    def __init__(self, name: str, argument: str, file: str, table: str = "texts", least: int = 0):
        super().__init__(name, argument)
        self.file, self.table, self.least = file, table, least

    def documents(self):
        if not Path(self.file).is_file():
            raise CorpusError(f"{self.name}: there is no file {self.file}")
        rows = sqlite3.connect(self.file).execute(f"SELECT rowid, text FROM {self.table}")
        for number, text in rows:
            if len(text) >= self.least:
                yield RawDocument(text, False, f"{self.file}:{number}")
"""


@pytest.fixture
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("BERTLAB_CACHE", str(tmp_path / "cache"))
    targets = {"bertlab.sources": {"sqlite": "sqlite_of_stranger:Sqlite"}}
    install(tmp_path, "stranger", targets, {"sqlite_of_stranger": SETTINGS})
    monkeypatch.syspath_prepend(tmp_path)
    plugins.forget_installed()
    file = tmp_path / "a.db"
    with contextlib.closing(sqlite3.connect(file)) as opened, opened:
        for table in ("texts", "same"):
            opened.execute(f"CREATE TABLE {table} (text TEXT)")
            texts = [(f"Text {number} of some words. And more of them.",) for number in range(6)]
            opened.executemany(f"INSERT INTO {table} VALUES (?)", texts)
    yield file
    plugins.forget_installed()
    sys.modules.pop("sqlite_of_stranger", None)


def resolved(*argv: str) -> dict[str, Any]:
    return resolve_request(read_request(argv))["data"]


@pytest.mark.slow
def test_settings_of_a_source_are_typed_keys_below_the_corpus(database: Path) -> None:
    config = database.with_name("c.yaml")
    config.write_text(f"data: {{corpus: {{source: sqlite, file: {database}, least: 3}}}}\n")
    whole = {"source": "sqlite", "file": str(database), "table": "texts", "least": 3}
    assert resolved("--config", str(config))["corpus"] == whole
    found = resolved("--config", str(config), "--data.corpus.table", "same")["corpus"]
    assert found == {**whole, "table": "same"}
    # an argument with files takes the place of the source, and the other way round
    assert resolved("--config", str(config), "--data.corpus", "a.txt")["corpus"] == "a.txt"
    config.write_text("data: {corpus: [a.txt, b.txt]}\n")
    given = ("--data.corpus.source", "sqlite", "--data.corpus.file", "x.db")
    found = resolved("--config", str(config), *given)["corpus"]
    assert found == {"source": "sqlite", "file": "x.db", "table": "texts", "least": 0}
    inline = f"{{source: sqlite, file: {database}}}"
    assert resolved("--data.corpus", inline)["corpus"] == {**whole, "least": 0}


@pytest.mark.first_fast
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("source: sqlite, file: a, tabel: b", ["c.yaml: data.corpus.tabel", "data.corpus.table"]),
        ("source: sqlite, file: a, least: few", ["c.yaml: data.corpus.least", "a whole number"]),
        ("source: sqlite", ["missing: --data.corpus.file"]),
        ("source: sqlit, file: a", ["'sqlit'; did you mean 'sqlite'"]),
        ("sauce: sqlite", ["data.corpus: found the key 'sauce' below it"]),
    ],
)
def test_wrong_settings_are_refused_with_file_and_key(
    database: Path, given: str, words: list[str]
) -> None:
    config = database.with_name("c.yaml")
    config.write_text(f"data: {{corpus: {{{given}}}}}\n")
    with pytest.raises((ConfigError, PluginError)) as error:
        resolved("--config", str(config))
    for each in words:
        assert each in str(error.value)


def test_a_source_that_needs_settings_says_so_without_them(database: Path) -> None:
    with pytest.raises(ConfigError, match=r"sqlite: .*'file'; settings .* \{source: sqlite, …\}"):
        list(read_raw_documents(Corpus(["sqlite"])))


def test_settings_decide_whether_a_store_is_used_again(database: Path) -> None:
    def fingerprint(**settings: object) -> str:
        return Corpus.of({"source": "sqlite", "file": str(database), **settings}).fingerprint

    assert fingerprint(table="texts") == fingerprint(table="texts")
    # the documents are the same, but what is said of them is not
    assert len({fingerprint(table=each) for each in ("texts", "same")}) == 2
    assert fingerprint(table="texts") != fingerprint(table="texts", least=1)


def test_settings_are_shown_by_help(database: Path, capsys: pytest.CaptureFixture[str]) -> None:
    parser = build_parser("fit", read_request(["--data.corpus", "{source: sqlite}"]))
    shown = " ".join(parser.format_help().split())
    assert "--data.corpus.table TABLE with a column text. (type: str, default: texts)" in shown
    assert "--data.corpus.file FILE the database. (required, type: str)" in shown


@pytest.mark.slow
def test_a_run_records_its_source_and_goes_on_with_the_same_settings(
    database: Path, bertlab: Command
) -> None:
    run = database.with_name("run")
    config = database.with_name("c.yaml")
    config.write_text(f"""
model:
  encoder: {{name: bert, num_hidden_layers: 1, hidden_size: 8, num_attention_heads: 1}}
  objectives: [mlm]
data:
  corpus: {{source: sqlite, file: {database}}}
  vocab_size: 60
  max_seq_length: 16
  batch_size: 2
  validation_fraction: 0.4
trainer: {{max_steps: 1, logger: false, enable_progress_bar: false}}
""")
    code, _, error = bertlab("fit", "--config", config, "--run_dir", run)
    assert code == 0, error
    manifest = read_object(run / "manifest.json")
    assert manifest["plugin_names"] == {"source sqlite": "stranger"}
    kept = read_config(run / "config.yaml")["data"]["corpus"]
    assert kept == {"source": "sqlite", "file": str(database), "table": "texts", "least": 0}
    # the stored config names the source and its settings, which a command needs no file for
    code, printed, error = bertlab("validate", run)
    assert code == 0, error
    assert "mlm" in printed
    stores = list((database.parent / "cache" / "stores").glob("*[!k]"))
    assert len(stores) == 1


def test_a_stored_config_names_installed_sources_only(database: Path) -> None:
    stored = {"model": {}, "data": {"corpus": {"source": "os:system", "name": "ls"}}}
    file = database.with_name("last.ckpt")
    request = read_request([], stored, str(file), checkpoint=file)
    with pytest.raises(PluginError, match="no source is called 'os'"):
        build_parser("fit", request)


def test_tokenizer_and_prepare_take_the_settings_as_fit_does(
    database: Path, bertlab: Command
) -> None:
    folder = database.parent
    inline = f"{{source: sqlite, file: {database}, table: same}}"
    made = ("--corpus", inline, "--vocab_size", 60, "--output", folder / "tokenizer")
    code, _, error = bertlab("tokenizer", *made)
    assert code == 0, error
    apart = ("--data.corpus.source", "sqlite", "--data.corpus.file", database)
    more = ("--tokenizer", folder / "tokenizer", "--output", folder / "store")
    code, _, error = bertlab("prepare", *apart, "--data.corpus.table=same", *more)
    assert code == 0, error
    # fit takes the store for its own: it has the same text and settings
    settings = {"source": "sqlite", "file": str(database), "table": "same", "least": 0}
    found = read_object(folder / "store" / "store.json")["corpus_fingerprint"]
    assert found == Corpus.of(settings).fingerprint


CONFIG = """
seed_everything: 1
model: {{objectives: [mlm]}}
data:
  corpus: {{source: sqlite, file: {file}, table: same}}
  max_seq_length: {{from: 16, to: 32}}
  tokenizer_kind: {{name: wordpiece, min_frequency: 1}}
  prepare_workers: 1
  vocab_size: 60
  batch_size: 4
"""


def test_tokenizer_and_prepare_take_a_config_of_fit(database: Path, bertlab: Command) -> None:
    folder, config = database.parent, database.with_name("c.yaml")
    config.write_text(CONFIG.format(file=database))
    code, said, error = bertlab("tokenizer", "-c", config, "--output", folder / "tokenizer")
    assert code == 0, error
    assert "word pieces" in said
    made = ("--tokenizer", folder / "tokenizer", "--output", folder / "store")
    code, _, error = bertlab("prepare", "--config", config, *made, "--corpus.table", "texts")
    assert code == 0, error
    # of the file all but what an argument says; the text is fit's
    settings = {"source": "sqlite", "file": str(database), "table": "texts", "least": 0}
    found = read_object(folder / "store" / "store.json")["corpus_fingerprint"]
    assert found == Corpus.of(settings).fingerprint


def test_what_a_config_becomes(database: Path) -> None:
    config = database.with_name("c.yaml")
    config.write_text(CONFIG.format(file=database))
    corpus = f"--corpus={{source: sqlite, file: {database}, table: same, least: 0}}"
    taken = with_config("prepare", ["--output", "o", "-c", str(config), "--workers=3"])
    assert set(taken) == {corpus, "--workers=3", "--max_seq_length=32", "--output", "o"}
    taken = with_config("tokenizer", ["-c", str(config), "--kind", "wordpiece", "--vocab_size=9"])
    kind = {"--kind=wordpiece", "--min_frequency=1", "--strip_accents=null"}
    assert set(taken) == {corpus, "--vocab_size=9", *kind}
    # another kind has settings of its own; files take the place of the source
    taken = with_config("tokenizer", ["-c", str(config), "--kind", "unigram", "--corpus", "a.txt"])
    assert {"--kind=unigram", "--corpus=a.txt"} <= set(taken)
    assert not any("min_frequency" in each for each in taken)
    assert with_config("prepare", ["--corpus", "a.txt"]) == ["--corpus", "a.txt"]


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("batch_size", "batch_sise", "c.yaml: data.batch_sise: no such key; did you mean"),
        ("objectives", "objective", "c.yaml: model.objective: no such key; did you mean"),
        ("table: same", "tabel: same", "c.yaml: data.corpus.tabel: no such key; did you mean"),
        ("prepare_workers: 1", "prepare_workers: x", "c.yaml: data.prepare_workers: found 'x'"),
        ("from: 16", "form: 16", "data.max_seq_length"),
    ],
)
def test_a_config_for_prepare_is_checked_as_fits(
    database: Path, before: str, after: str, words: str
) -> None:
    config = database.with_name("c.yaml")
    config.write_text(CONFIG.format(file=database).replace(before, after))
    with pytest.raises(ConfigError, match=re.escape(words)):
        with_config("prepare", ["--config", str(config)])


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--corpus", "{source: sqlite, file: a, tabel: b}"], "corpus.tabel: no such key"),
        (["--corpus.source", "sqlite", "--corpus.file", "a", "--corpus.least", "few"], "least"),
        (["--corpus.source", "sqlite"], "missing: --corpus.file"),
        (["--corpus.source", "sqlit"], "'sqlit'; did you mean 'sqlite'"),
    ],
)
def test_wrong_settings_of_prepare_are_refused(
    database: Path, given: list[str], words: str
) -> None:
    arguments = [*given, "--tokenizer", "t", "--output", "o"]
    with pytest.raises((ConfigError, PluginError), match=re.escape(words)):
        parse_arguments(make_parser("prepare", arguments, with_hooks=False)[0], arguments)
