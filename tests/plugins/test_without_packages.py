"""The core without its packages: what it reads itself, and what it says of the rest."""

import json

import pytest

from bertlab.api.examples import Column
from bertlab.checkpoints.restore import read_pretrained
from bertlab.config.merge import read_request
from bertlab.config.parser import data_class
from bertlab.data.corpus.corpus import Corpus, read_documents
from bertlab.data.corpus.store import TokenStore
from bertlab.data.fine_tuning import LabelledData
from bertlab.data.pretraining import PretrainingData
from bertlab.data.sources import open_source
from bertlab.errors import ConfigError, DataError, PluginError, TokenStoreError
from bertlab.plugins import index
from bertlab.training.predictions import open_sink
from tests.data.corpus import stores
from tests.data.examples.labelled_files import values, write
from tests.plugins.core_alone import leave_the_core_alone

TAGS = (Column("words", "texts"), Column("tags", "tags", is_truth=True))
INSTALL = "it comes with bertlab-tasks: pip install bertlab-tasks"


@pytest.fixture(autouse=True)
def _core_alone(monkeypatch):
    with monkeypatch.context() as patch:
        leave_the_core_alone(patch)
        yield
    index.forget_installed()


def test_it_reads_and_writes_what_its_heads_need(tmp_path):
    expected = [{"text": "EU", "label": "ORG"}]
    rows = write(tmp_path / "a.jsonl", json.dumps(expected[0]))
    assert values(rows) == expected
    open_sink(str(tmp_path / "b.jsonl"), "auto", None).discard()
    with pytest.raises(DataError, match=rf"the ending '\.conll' does not tell .*{INSTALL}"):
        values(write(tmp_path / "a.conll", "EU NNP B-ORG\n"), TAGS)


def test_it_says_which_package_reads_lists(tmp_path):
    path = write(tmp_path / "a.jsonl", json.dumps({"words": ["EU"], "tags": ["B-ORG"]}))
    install = INSTALL.removeprefix("it ")
    with pytest.raises(DataError, match=rf"column 'words': cannot read texts: .*{install}"):
        values(path, TAGS)


def test_it_says_which_package_brings_a_format(tmp_path):
    path = write(tmp_path / "a.tsv", "text\tlabel\nA\tB\n")
    with pytest.raises(ConfigError, match=rf"data\.format: found 'mnli'; {INSTALL}"):
        LabelledData(source=path, format="mnli")
    with pytest.raises(DataError, match=rf"format: found 'mnli'; {INSTALL}"):
        values(path, form="mnli")
    with pytest.raises(DataError, match=rf"--output_format: found 'csv'; {INSTALL}"):
        open_sink(str(tmp_path / "b.csv"), "auto", None)
    with pytest.raises(DataError, match=rf"--output_format: found 'swag'; {INSTALL}"):
        open_sink(str(tmp_path / "b"), "swag", None)


def test_it_says_which_package_brings_several_heads():
    request = read_request(["--model.heads", "{topic: single_sentence, page: sentence_pair}"])
    with pytest.raises(PluginError, match=rf"model\.heads: no data_module .*{INSTALL}"):
        data_class(request)
    assert data_class(read_request(["--model.head", "single_sentence"])) is LabelledData


@pytest.mark.parametrize(
    "name", ["feature_tagging", "multi_label", "multiple_choice", "span", "tagging"]
)
def test_it_says_which_package_brings_a_head(name):
    with pytest.raises(PluginError, match=INSTALL):
        index.load_class("head", name, object)


def test_it_says_which_package_brings_rows_of_the_english_of_python():
    with pytest.raises(PluginError, match=INSTALL):
        open_source("python-english:packages").raw_examples("train")


@pytest.mark.parametrize("name", ["sentence_pairs", "full_sentences", "doc_sentences"])
def test_it_says_which_package_brings_an_input_format(name):
    with pytest.raises(PluginError, match="it comes with bertlab-modern: pip install"):
        PretrainingData(corpus="a.txt", input_format=name)


def test_it_says_which_package_brings_stores_of_several_shards(tmp_path):
    message = "comes with bertlab-cluster: pip install bertlab-cluster"
    with pytest.raises(ConfigError, match=f"shard_tokens: cannot write shards: .*{message}"):
        stores.write(tmp_path / "a", stores.texts(9), 50)
    store = stores.write(tmp_path / "b", stores.texts(9))
    assert type(store) is TokenStore
    manifest = store.path / "store.json"
    manifest.write_text(manifest.read_text().replace('"format_version": 1', '"format_version": 2'))
    with pytest.raises(TokenStoreError, match=f"a token store of several shards: .*{message}"):
        TokenStore.open(store.path)


@pytest.mark.parametrize("url", ["https://host/a.txt", "s3://bucket/texts"])
def test_it_says_which_package_reads_urls(url):
    message = f"{url}: cannot read a URL: comes with bertlab-cluster: pip install bertlab-cluster"
    with pytest.raises(ConfigError, match=message):
        list(read_documents(Corpus([url])))


def test_it_says_which_package_takes_moments_over(tiny_run):
    message = "model.init_optimizer: comes with bertlab-studies: pip install bertlab-studies"
    with pytest.raises(ConfigError, match=message):
        read_pretrained(str(tiny_run), with_optimizer=True)
