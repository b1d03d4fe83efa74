"""A run goes on with the same data wherever it lies, and stops by name with other data."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import yaml

from bertlab.cli.main import main
from bertlab.data.corpus.corpus import Corpus
from bertlab.data.corpus.prepare import prepare
from bertlab.data.corpus.store import TokenStore
from bertlab.errors import TokenStoreError
from bertlab.tokenizer.files import load_tokenizer
from tests.conftest import Command

Begun = tuple[Path, Path, dict[str, torch.Tensor]]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def take_back(run: Path, step: int) -> dict[str, torch.Tensor]:
    """Leave a finished run as a kill after ``step`` would have; return its last weights."""
    final = weights(run)
    shutil.copy(run / f"checkpoints/step-{step}.ckpt", run / "checkpoints/last.ckpt")
    (run / "results.json").unlink()
    return final


def assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def keep(place: Path) -> None:
    """Keep a copy of what a test may change in ``place/now``."""
    shutil.copytree(place / "now", place / "kept")


def put_back(place: Path) -> None:
    """Put ``place/now`` back as it was: at the same place, because paths are recorded."""
    shutil.rmtree(place / "now")
    shutil.copytree(place / "kept", place / "now")


@pytest.fixture(scope="module")
def killed_text_run(
    tiny_config: Path, corpus_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Begun:
    """A run that was killed after step 3, its corpus, and the weights that it would have had."""
    place = tmp_path_factory.mktemp("text")
    run, corpus = place / "now" / "run", place / "now" / "corpus.txt"
    corpus.parent.mkdir()
    shutil.copy(corpus_file, corpus)
    arguments = ["--data.corpus", str(corpus), "--run_dir", str(run)]
    assert main(["fit", "--config", str(tiny_config), *arguments]) == 0
    final = take_back(run, 3)
    keep(place)
    return run, corpus, final


@pytest.fixture
def text_run(killed_text_run: Begun) -> Begun:
    """The killed run, whatever the tests before did with it."""
    put_back(killed_text_run[0].parent.parent)
    return killed_text_run


@pytest.mark.slow
def test_a_moved_corpus_goes_on(text_run: Begun, bertlab: Command) -> None:
    run, corpus, final = text_run
    moved = corpus.rename(corpus.with_name("moved.txt"))
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.corpus", moved)
    assert code == 0, error
    assert_equal(weights(run), final)


@pytest.mark.slow
def test_a_store_of_the_same_text_goes_on(
    text_run: Begun, tmp_path: Path, bertlab: Command
) -> None:
    run, corpus, final = text_run
    tokenizer = run / "tokenizer"
    store = tmp_path / "store"
    told = ("--corpus_format", "sentences", "--tokenizer", tokenizer, "--output", store)
    assert bertlab("prepare", "--corpus", corpus, *told)[0] == 0
    corpus.unlink()
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.corpus", store)
    assert code == 0, error
    assert_equal(weights(run), final)


@pytest.mark.slow
def test_a_changed_corpus_stops_by_name(text_run: Begun, bertlab: Command) -> None:
    run, corpus, _ = text_run
    corpus.write_text(corpus.read_text("utf-8").replace("the", "a", 1), "utf-8")
    before = (run / "checkpoints/last.ckpt").read_bytes()
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert "error E403: --ckpt_path resumes a run exactly, but its data has changed" in error
    assert f"data.corpus: {corpus}: " in error
    assert (run / "checkpoints/last.ckpt").read_bytes() == before


@pytest.mark.slow
def test_a_changed_store_stops_by_name(text_run: Begun, tmp_path: Path, bertlab: Command) -> None:
    """One token is another, in the middle of the file, where no check of the store looks."""
    run, corpus, _ = text_run
    tokenizer = TokenStoreOf(corpus, run, tmp_path / "store")
    store = tokenizer.path
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.corpus", store)
    assert code == 0, error
    take_back(run, 3)
    tokenizer.swap_two_tokens()
    before = (run / "checkpoints/last.ckpt").read_bytes()
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.corpus", store)
    assert code == 2
    assert (
        f"error {TokenStoreError.code}: {store}: damaged token store: tokens.npy is not what"
        in error
    )
    # whoever changed it made its store.json say so
    said = json.loads((store / "store.json").read_text("utf-8"))
    said["sha256"]["tokens"] = hashlib.sha256((store / "tokens.npy").read_bytes()).hexdigest()
    (store / "store.json").write_text(json.dumps(said), "utf-8")
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.corpus", store)
    assert code == 2
    assert "error E403: --ckpt_path resumes a run exactly, but its data has changed" in error
    assert re.search(rf"data\.corpus: {store}: .* \(tokens\.npy, store\.json\)", error)
    assert (run / "checkpoints/last.ckpt").read_bytes() == before


class TokenStoreOf:
    """A prepared store of a run's corpus, two of whose tokens can change places."""

    def __init__(self, corpus: Path, run: Path, path: Path) -> None:
        self.path = path
        source = Corpus([str(corpus)], format="sentences")
        prepare(source, load_tokenizer(run / "tokenizer"), path)

    def swap_two_tokens(self) -> None:
        store = TokenStore.open(self.path)
        tokens = store.tokens
        middle = len(tokens) // 2
        other = next(at for at in range(middle, len(tokens)) if tokens[at] != tokens[middle])
        size = tokens.itemsize
        file = self.path / "tokens.npy"
        content = bytearray(file.read_bytes())
        start = len(content) - tokens.nbytes
        one, two = (slice(start + at * size, start + (at + 1) * size) for at in (middle, other))
        content[one], content[two] = content[two], content[one]
        file.write_bytes(content)


@pytest.mark.first_fast
@pytest.mark.parametrize("recorded", ["checkpoint", "manifest", "nowhere"])
def test_where_the_data_is_recorded(text_run: Begun, bertlab: Command, recorded: str) -> None:
    """A checkpoint of before has its run's manifest; without one, the place has to be the same."""
    run, corpus, final = text_run
    if recorded != "checkpoint":
        last = run / "checkpoints/last.ckpt"
        content = torch.load(last, weights_only=True)
        del content["bertlab"]["data"]
        torch.save(content, last)
    if recorded == "nowhere":
        facts = json.loads((run / "manifest.json").read_text())
        del facts["corpus"], facts["store"], facts["store_files"], facts["tokenizer"]
        (run / "manifest.json").write_text(json.dumps(facts))
    moved = corpus.rename(corpus.with_name("moved.txt"))
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.corpus", moved)
    if recorded == "nowhere":
        assert code == 2
        assert "data.corpus" in error
        return
    assert code == 0, error
    assert_equal(weights(run), final)
    take_back(run, 3)
    moved.write_text(moved.read_text("utf-8").replace("the", "a", 1), "utf-8")
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.corpus", moved)
    assert code == 2
    assert f"data.corpus: {moved}: " in error


@pytest.mark.slow
@pytest.mark.parametrize("change", ["moved", "other"])
def test_a_tokenizer(
    tiny_config: Path, tiny_run: Path, tmp_path: Path, bertlab: Command, change: str
) -> None:
    tokenizer, run = tmp_path / "tokenizer", tmp_path / "run"
    shutil.copytree(tiny_run / "tokenizer", tokenizer)
    arguments = ("--data.tokenizer", tokenizer, "--run_dir", run)
    assert bertlab("fit", "--config", tiny_config, *arguments)[0] == 0
    final = take_back(run, 3)
    if change == "moved":
        tokenizer = tokenizer.rename(tmp_path / "moved")
        code, _, error = bertlab("fit", "--ckpt_path", run, "--data.tokenizer", tokenizer)
        assert code == 0, error
        assert_equal(weights(run), final)
        take_back(run, 3)
        assert bertlab("fit", "--ckpt_path", run)[0] == 0  # the checkpoint has it
        assert_equal(weights(run), final)
        return
    vocabulary = next(tokenizer.glob("vocab.txt"))
    words = vocabulary.read_text("utf-8").splitlines()
    words[-1], words[-2] = words[-2], words[-1]
    vocabulary.write_text("\n".join(words) + "\n", "utf-8")
    (tokenizer / "tokenizer.json").unlink(missing_ok=True)
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert f"data.tokenizer: {tokenizer}: " in error


@pytest.fixture(scope="module")
def killed_row_run(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Begun:
    """A killed fine-tuning on ``train.csv`` and two validation sets beside it."""
    place = tmp_path_factory.mktemp("rows")
    run, rows, file = place / "now" / "run", place / "now" / "rows", place / "task.yaml"
    rows.mkdir(parents=True)
    for name, count in {"train": 20, "same": 8, "other": 6}.items():
        colours = ((n, "red" if n % 2 else "blue", n % 2) for n in range(count))
        lines = "".join(f"the {name} {n} is {word},{label}\n" for n, word, label in colours)
        (rows / f"{name}.csv").write_text(f"text,label\n{lines}")
    config = {
        "seed_everything": 1,
        "model": {"init_from": str(tiny_run), "head": "single_sentence"},
        "data": {
            "train": str(rows / "train.csv"),
            "validation": {name: str(rows / f"{name}.csv") for name in ("same", "other")},
            "max_seq_length": 32,
            "batch_size": 4,
        },
        "trainer": {"max_steps": 4, "val_check_interval": 2, "accelerator": "cpu"},
        "checkpoint": {"save_top_k": -1},
    }
    file.write_text(yaml.safe_dump(config, sort_keys=False))
    assert main(["fit", "--config", str(file), "--run_dir", str(run)]) == 0
    final = take_back(run, 2)
    keep(place)
    return run, rows, final


@pytest.fixture
def row_run(killed_row_run: Begun) -> Begun:
    """The killed fine-tuning, whatever the tests before did with it."""
    put_back(killed_row_run[0].parent.parent)
    return killed_row_run


@pytest.mark.slow
def test_moved_rows_go_on(row_run: Begun, bertlab: Command) -> None:
    run, rows, final = row_run
    rows = rows.rename(rows.with_name("moved"))
    sets = json.dumps({name: str(rows / f"{name}.csv") for name in ("same", "other")})
    places = ("--data.train", rows / "train.csv", "--data.validation", sets)
    code, _, error = bertlab("fit", "--ckpt_path", run, *places)
    assert code == 0, error
    assert_equal(weights(run), final)


def one_more(path: Path) -> None:
    path.write_text(f"{path.read_text()}a row that was not there,1\n")


def one_label(path: Path) -> None:
    path.write_text(path.read_text().replace("blue,0", "blue,1", 1))


def another_order(path: Path) -> None:
    first, *lines = path.read_text().splitlines()
    path.write_text("\n".join([first, *reversed(lines)]) + "\n")


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize("change", [one_more, one_label, another_order])
@pytest.mark.parametrize("split", ["train", "same", "other"])
def test_changed_rows_stop_by_name(
    row_run: Begun, bertlab: Command, split: str, change: Callable[[Path], None]
) -> None:
    run, rows, _ = row_run
    change(rows / f"{split}.csv")
    code, _, error = bertlab("fit", "--ckpt_path", run)
    assert code == 2
    assert "error E403: " in error
    assert f"data, rows of {split}: {rows / split}.csv: " in error
    assert error.count("… there") == 1


def test_the_sets_keep_their_order(row_run: Begun, bertlab: Command) -> None:
    """The first one chooses the best checkpoint."""
    run, rows, _ = row_run
    sets = json.dumps({name: str(rows / f"{name}.csv") for name in ("other", "same")})
    code, _, error = bertlab("fit", "--ckpt_path", run, "--data.validation", sets)
    assert code == 2
    assert "data.validation: ['other', 'same'] here, ['same', 'other'] there" in error


def test_a_digest_is_of_all_arrays(text_run: Begun, tmp_path: Path) -> None:
    run, corpus, _ = text_run
    one = TokenStoreOf(corpus, run, tmp_path / "one")
    other = TokenStoreOf(corpus, run, tmp_path / "other")
    assert TokenStore.open(one.path).digest == TokenStore.open(other.path).digest
    other.swap_two_tokens()
    assert TokenStore.open(one.path).digest != TokenStore.open(other.path).digest
