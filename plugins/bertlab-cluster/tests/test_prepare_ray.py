"""Preparing on Ray: the store of this machine, for any number of workers, whatever is lost."""

import os
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertlab.api.examples import RawDocument
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.corpus.prepare import EncodedBatch, encode_batch, prepare
from bertlab.errors import CorpusError
from bertlab.tokenizer.files import SPECIAL_TOKENS, WordPieceTokenizer
from bertlab_cluster import prepare_ray
from bertlab_cluster.prepare_ray import map_on_ray
from bertlab_cluster.ray import connection
from tests.conftest import Command

pytestmark = pytest.mark.usefixtures("no_other_ray")

SMALL = 80 * 2**20  # bytes of a node's object store: the least that Ray takes
WORDS = ["the", "fox", "sleeps", "in", "a", "warm", "house", "unheard-of", "."]
LETTERS = "abcdefghijklmnopqrstuvwxyz-."
VOCABULARY = [*SPECIAL_TOKENS, *WORDS[:4], *LETTERS, *(f"##{letter}" for letter in LETTERS)]
TOKENIZER = WordPieceTokenizer.from_vocabulary(VOCABULARY)
SHARD_TOKENS = 200_000


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Corpus:
    """Some five batches of documents."""
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    rng = np.random.default_rng(0)
    with path.open("w", encoding="utf-8") as file:
        for _ in range(4000):
            for words in rng.choice(WORDS, (rng.integers(2, 50), 10)):
                file.write(" ".join(words) + "\n")
            file.write("\n")
    return Corpus([str(path)], format="sentences")


@pytest.fixture(scope="module")
def here(corpus: Corpus, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the files of the store that is prepared in this process."""
    path = tmp_path_factory.mktemp("here") / "store"
    prepare(corpus, TOKENIZER, path, shard_tokens=SHARD_TOKENS)
    return files_of(path)


def files_of(store: Path) -> dict[str, bytes]:
    files = (path for path in store.rglob("*") if path.is_file())
    return {str(path.relative_to(store)): path.read_bytes() for path in files}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a task take a batch or two, so that there are some."""
    monkeypatch.setattr(prepare_ray, "BLOCK", 2**20)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head node with one CPU."""
    pytest.importorskip("ray")
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  Ray's: not the lowest priority
    from ray import cloudpickle
    from ray.cluster_utils import Cluster

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # nodes cannot import the tests
    settings = {"num_cpus": 1, "object_store_memory": SMALL, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=settings)
    yield cluster
    cluster.shutdown()


def die_once(marker: Path) -> None:
    """End this process as one that is killed, the first time that it is called."""
    try:
        marker.touch(exist_ok=False)
    except FileExistsError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


class DyingTokenizer(WordPieceTokenizer):
    """Kills the process that it works in, twice."""

    markers: Path

    def encode_texts(self, texts: Any) -> Any:
        for number in range(2):
            die_once(self.markers / f"encoding {number}")
        return super().encode_texts(texts)


def dying_batches(
    batches: Callable[[], Iterable[list[RawDocument]]], markers: Path
) -> Iterator[list[RawDocument]]:
    """Read batches, and kill the process that reads after two of them, once."""
    for number, batch in enumerate(batches()):
        if number == 2:
            die_once(markers / "reading")
        yield batch


# ray 2.60 leaves files and processes open, and warns of its own settings
@pytest.mark.nightly
@pytest.mark.timeout(900)  # Ray takes minutes to start on a busy machine
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_store_is_the_same_on_one_and_two_nodes(
    cluster: Any, corpus: Corpus, here: dict[str, bytes], tmp_path: Path
) -> None:
    assert sum(name.endswith(".tokens.npy") for name in here) > 5
    node = None
    for workers in (1, 2):
        with connection(cluster.address) as ray:
            away = partial(map_on_ray, ray, workers)
            output = tmp_path / f"{workers}"
            prepare(corpus, TOKENIZER, output, 1, shard_tokens=SHARD_TOKENS, away=away)
        assert files_of(output) == here
        node = node or cluster.add_node(num_cpus=1, object_store_memory=SMALL)
    cluster.remove_node(node)


@pytest.mark.nightly
@pytest.mark.timeout(900)  # Ray takes minutes to start on a busy machine
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_workers_and_a_node_that_are_lost(
    cluster: Any, corpus: Corpus, here: dict[str, bytes], tmp_path: Path
) -> None:
    node = cluster.add_node(num_cpus=1, object_store_memory=SMALL)
    dying = DyingTokenizer.from_vocabulary(VOCABULARY)
    dying.markers = tmp_path / "markers"
    dying.markers.mkdir()

    with connection(cluster.address) as ray:

        def away(read: Any, function: Any) -> Generator[EncodedBatch, None, None]:
            del function
            read = partial(dying_batches, read, dying.markers)
            function = partial(encode_batch, tokenizer=dying, language="en")
            encoded = map_on_ray(ray, 2, read, function)
            yield next(encoded)
            cluster.remove_node(node, allow_graceful=False)
            yield from encoded

        output = tmp_path / "store"
        prepare(corpus, TOKENIZER, output, 1, shard_tokens=SHARD_TOKENS, away=away)
    assert len(list(dying.markers.iterdir())) == 3
    assert files_of(output) == here


@pytest.mark.nightly
@pytest.mark.timeout(900)  # Ray takes minutes to start on a busy machine
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_the_reading_node_says_is_passed_on(cluster: Any, tmp_path: Path) -> None:
    corpus = Corpus([str(tmp_path / "text.txt")])
    (tmp_path / "text.txt").write_text("A text.", "utf-8")
    assert corpus.fingerprint  # is there for whoever asks for the store
    (tmp_path / "text.txt").unlink()
    with connection(cluster.address) as ray:
        away = partial(map_on_ray, ray, 1)
        with pytest.raises(CorpusError) as found:
            prepare(corpus, TOKENIZER, tmp_path / "store", 1, away=away)
    assert "text.txt: no such file" in str(found.value)
    assert "(read on the node " in str(found.value)
    assert list(tmp_path.iterdir()) == []


def test_what_the_command_refuses(
    bertlab: Command, corpus_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    TOKENIZER.save(tmp_path / "tokenizer")
    command = ["prepare", "--corpus", corpus_file, "--tokenizer", tmp_path / "tokenizer"]
    command += ["--output", tmp_path / "store"]
    code, _, error = bertlab(*command, "--address", "127.0.0.1:1")
    assert (code, "--executor ray as well" in error) == (2, True)
    code, _, error = bertlab(*command, "--executor", "ray", "--workers", 0)
    assert (code, "workers: found 0, expected 1 or more" in error) == (2, True)
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, error = bertlab(*command, "--executor", "ray")
    assert (code, "pip install 'bertlab-lightning[ray]'" in error) == (2, True)
    assert not (tmp_path / "store").exists()
