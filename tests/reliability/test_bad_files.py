"""Generated mistakes in data, vocabularies and checkpoints: one message, nothing left."""

import itertools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from bertlab.data.corpus import store as token_store
from tests.reliability.bad_files import FORMATS, Damage, Format, SpoiltFile, damages, spoilt_files
from tests.reliability.commands import check_answered, check_refused, contents, run_command
from tests.reliability.conftest import Search

pytestmark = pytest.mark.slow

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ONE_STEP = ("--trainer.max_steps=1", "--trainer.val_check_interval=1", "--trainer.accelerator=cpu")


def fine_tune(file: Path, form: Format, run: Path, name: str) -> list[str]:
    return [
        *("fit", "--model.init_from", str(run), "--run_dir", name, *ONE_STEP),
        *("--model.head", form.head, *form.settings),
        *("--data.source", str(file), "--data.validation_fraction=0.3", "--data.max_seq_length=32"),
        *("--data.batch_size=4", "--seed_everything=1", "--checkpoint.save_last=false"),
    ]


@pytest.mark.first_slow
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.file)
def test_a_whole_file_is_taken(form: Format, folder: Path, tiny_run: Path) -> None:
    file = folder / form.file
    file.write_text(form.whole, "utf-8")
    answer = run_command(fine_tune(file, form, tiny_run, "run"))
    assert answer.code == 0, answer.error


def test_labelled_rows(search: Search, folder: Path, tiny_run: Path) -> None:
    runs = itertools.count()

    def check(case: SpoiltFile) -> None:
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        file = folder / case.form.file
        file.write_bytes(case.content)
        before = contents(folder)
        answer = run_command(fine_tune(file, case.form, tiny_run, f"run-{next(runs)}"))
        check_refused(answer, (case.form.file, "model.head.scheme"))
        assert contents(folder) == before

    search(spoilt_files(), check)


@pytest.mark.first_slow
@pytest.mark.parametrize("form", FORMATS, ids=lambda form: form.file)
def test_damaged_rows(form: Format, search: Search, folder: Path, tiny_run: Path) -> None:
    """What is cut out may leave a file that is whole, if shorter."""
    runs = itertools.count()

    def check(damage: Damage) -> None:
        for each in folder.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        file = folder / form.file
        file.write_bytes(damage.content)
        before = contents(folder)
        answer = run_command(fine_tune(file, form, tiny_run, f"run-{next(runs)}"))
        check_answered(answer, (form.file, "data.", "model.head.scheme"))
        if answer.code:
            assert contents(folder) == before

    search(damages(form.whole.encode()), check)


def prepare(corpus: Path, tokenizer: Path, store: str) -> list[str]:
    named = ("--corpus", str(corpus), "--corpus_format", "sentences", "--tokenizer", str(tokenizer))
    return ["prepare", *named, "--output", store]


def bad_vocabularies(words: list[str]) -> st.SearchStrategy[str]:
    """Return the lines of a vocabulary without a special token, with a word twice, or with none."""
    without = st.sampled_from(SPECIAL).map(lambda gone: [word for word in words if word != gone])
    twice = st.sampled_from(words).map(lambda word: [*words, word])
    short = st.integers(0, 4).map(lambda count: words[:count])
    return st.one_of(without, twice, short).map("\n".join)


def test_a_vocabulary(search: Search, folder: Path, tiny_run: Path, corpus_file: Path) -> None:
    words = (tiny_run / "tokenizer" / "vocab.txt").read_text("utf-8").splitlines()
    vocabulary = folder / "vocab.txt"

    def check(content: str) -> None:
        vocabulary.write_text(content, "utf-8")
        before = contents(folder)
        check_refused(run_command(prepare(corpus_file, vocabulary, "store")), ("vocab.txt",))
        assert contents(folder) == before

    search(bad_vocabularies(words), check)


@pytest.mark.parametrize("name", ["vocab.txt", "tokenizer.json"])
def test_a_damaged_tokenizer(
    name: str, search: Search, folder: Path, tiny_run: Path, corpus_file: Path
) -> None:
    file = folder / name

    def check(damage: Damage) -> None:
        shutil.rmtree(folder / "store", ignore_errors=True)
        file.write_bytes(damage.content)
        before = contents(folder)
        answer = run_command(prepare(corpus_file, file, "store"))
        check_answered(answer, (name, corpus_file.name))
        if answer.code:
            assert contents(folder) == before

    search(damages((tiny_run / "tokenizer" / name).read_bytes()), check)


def test_a_damaged_checkpoint(search: Search, folder: Path, tiny_run: Path) -> None:
    whole = (tiny_run / "checkpoints" / "last.ckpt").read_bytes()
    file = folder / "last.ckpt"

    def check(damage: Damage) -> None:
        file.write_bytes(damage.content)
        answer = run_command(["validate", "--ckpt_path", str(file), "--trainer.accelerator=cpu"])
        check_answered(answer, ("last.ckpt",))
        assert [path.name for path in folder.iterdir()] == ["last.ckpt"]

    search(damages(whole), check)


@pytest.mark.first_slow
@pytest.mark.parametrize("name", ["config.yaml", "manifest.json", "results.json", "tokenizer"])
def test_a_damaged_run(name: str, search: Search, folder: Path, tiny_run: Path) -> None:
    """What a run keeps beside its checkpoints for people to read is not needed to go on."""
    run = folder / "run"
    shutil.copytree(tiny_run, run)
    file = run / name / "tokenizer.json" if name == "tokenizer" else run / name

    def check(damage: Damage) -> None:
        file.write_bytes(damage.content)
        check_answered(run_command(["validate", "--ckpt_path", str(run)]), (name,))

    search(damages(file.read_bytes()), check)


@pytest.mark.first_slow
@pytest.mark.parametrize(
    "name", ["config.json", "model.safetensors", "vocab.txt", "tokenizer.json"]
)
def test_a_damaged_huggingface_folder(
    name: str, search: Search, folder: Path, tiny_run: Path
) -> None:
    model = folder / "model"
    assert run_command(["export", str(tiny_run), str(model)]).code == 0
    (folder / "text.txt").write_text("A text.\n", "utf-8")
    whole = (model / name).read_bytes()

    def check(damage: Damage) -> None:
        (model / name).write_bytes(damage.content)
        command = ["embed", "--model", str(model), "--layers=[-1]", "--overwrite=true"]
        command += ["text.txt", "out.safetensors"]
        check_answered(run_command(command), (name, "model", "--model"))

    search(damages(whole), check)


@pytest.mark.first_slow
@pytest.mark.parametrize(
    "name", ["tokens.npy", "sentence_offsets.npy", "document_offsets.npy", "store.json"]
)
def test_a_damaged_token_store(
    name: str, search: Search, folder: Path, tiny_run: Path, tiny_config: Path, corpus_file: Path
) -> None:
    store = folder / "store"
    assert run_command(prepare(corpus_file, tiny_run / "tokenizer", str(store))).code == 0
    whole = (store / name).read_bytes()
    runs = itertools.count()

    def check(damage: Damage) -> None:
        (store / name).write_bytes(damage.content)
        settings = ("--data.corpus", str(store), "--run_dir", f"run-{next(runs)}", *ONE_STEP)
        answer = run_command(["fit", "--config", str(tiny_config), *settings])
        check_answered(answer, (name, "store"))

    search(damages(whole), check)


@pytest.mark.parametrize("workers", [0, 1])
def test_ids_that_no_vocabulary_has(
    workers: int,
    folder: Path,
    tiny_run: Path,
    tiny_config: Path,
    corpus_file: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the middle of a store, where opening it does not look; also in a data worker."""
    assert run_command(prepare(corpus_file, tiny_run / "tokenizer", "store")).code == 0
    tokens = np.load(folder / "store" / "tokens.npy")
    monkeypatch.setattr(token_store, "_CHECKED_TOKENS", 100)
    tokens[100:-100] = 60_000
    np.save(folder / "store" / "tokens.npy", tokens)
    said = json.loads((folder / "store/store.json").read_text("utf-8"))
    del said["sha256"]  # of an older bertlab, or of whoever made it
    (folder / "store/store.json").write_text(json.dumps(said), "utf-8")
    settings = ("--data.corpus=store", f"--data.num_workers={workers}", "--run_dir=run", *ONE_STEP)
    command = ["fit", "--config", str(tiny_config), *settings]
    check_refused(run_command(command), ("tokens.npy holds id 60000",))  # in a held-out document
    monkeypatch.setattr(token_store.TokenStore, "counts_of", lambda self, document: 0)
    answer = run_command(command)
    check_refused(answer, ("tokens.npy of the corpus: damaged: id 60000 at token",))
