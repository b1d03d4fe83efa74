"""``bertlab init``: configs that run once the user's own paths are in them."""

from pathlib import Path

import pytest
import yaml

from bertlab.config.shipped import find_config, offered_names, shipped_configs
from bertlab.plugins import index
from tests.conftest import Command
from tests.plugins.strange_packages import install

ROWS = range(24)
# kind: name of the user's file, its content
FILES = {
    "classification": (
        "my-texts.csv",
        "text,label\n" + "".join(f'"A text, of {n}",{"ab"[n % 2]}\n' for n in ROWS),
    ),
    "regression": (
        "my-texts.csv",
        "text,score\n" + "".join(f'"A text, of {n}",{n / 4}\n' for n in ROWS),
    ),
    "pair": (
        "my-pairs.csv",
        "first,second,label\n" + "".join(f"Is it {n},It is,{'yn'[n % 2]}\n" for n in ROWS),
    ),
    "ner": (
        "my-sentences.conll",
        "".join(f"Marie B-PER\nCurie I-PER\nsaw O\n{n} O\n\n" for n in ROWS),
    ),
    "qa": (
        "my-questions.csv",
        "question,context,answer\n" + "".join(f"Which {n},It is {n} of it,{n} of\n" for n in ROWS),
    ),
    "multi-label": (
        "my-texts.csv",
        "text,labels\n" + "".join(f"A text of {n},{('', 'a', 'b|a')[n % 3]}\n" for n in ROWS),
    ),
    "multiple-choice": (
        "my-questions.csv",
        "question,a,b,c,right\n" + "".join(f"Take {n},one,two,three,{n % 3}\n" for n in ROWS),
    ),
}
HEADS = {
    "classification": ("single_sentence/accuracy", "text: It is.\n", "label"),
    "regression": ("single_sentence/pearson", "text: It is.\n", "score"),
    "pair": ("sentence_pair/accuracy", "", "label"),
    "ner": ("tagging/f1", "", "tags"),
    "qa": ("span/f1", "", "answer"),
    "multi-label": ("multi_label/micro_f1", "", "labels"),
    "multiple-choice": ("multiple_choice/accuracy", "", "choice"),
}


def test_every_kind_has_a_file_here_and_a_line_of_help(bertlab: Command) -> None:
    code, output, _ = bertlab("init", "--help")
    assert code == 0
    for kind in (*FILES, "pretraining"):
        assert f"\n  {kind} " in output
    assert output.count("\n  ") == len(FILES) + 5  # --list, FILE and --for, too
    listed = bertlab("init", "--list")[1].splitlines()
    assert [each.split()[0] for each in listed] == sorted([*FILES, "pretraining"])


@pytest.mark.slow
def test_configs_and_templates_of_a_package_have_names(
    tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "poems_of_a_stranger" / "configs"
    (folder / "templates").mkdir(parents=True)
    (folder.parent / "__init__.py").write_text("raise RuntimeError('it is not imported')")
    (folder / "small.yaml").write_text("model: {objectives: [mlm]}\n")
    text = "# Label verses.\nrun_dir: runs/finetune-my\ndata: {source: x}  # <<<\n"
    (folder / "templates" / "verses.yaml").write_text(text)
    groups = {"bertlab.configs": {"poems": "poems_of_a_stranger.configs"}}
    install(tmp_path, "poems", groups, {})
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    index.forget_installed()
    shipped_configs.cache_clear()
    try:
        assert find_config("poems/small") == folder / "small.yaml"
        assert "poems/small" in offered_names()
        assert "poems/templates/verses" not in offered_names()
        assert "  poems/verses     Label verses" in bertlab("init", "--list")[1]
        code, _, error = bertlab("init", "poems/verses", "mine.yaml")
        assert code == 0, error
        assert "runs/finetune-mine" in (tmp_path / "mine.yaml").read_text()
        code, _, error = bertlab("fit", "poems/small", "--print_config")
        assert code == 0, error
        assert "did you mean 'poems/small'" in bertlab("fit", "poems/smal")[2]
    finally:
        index.forget_installed()
        shipped_configs.cache_clear()


@pytest.mark.first_slow
@pytest.mark.parametrize(
    "kind",
    [
        "classification",
        *(pytest.param(each, marks=pytest.mark.slow) for each in FILES if each != "classification"),
    ],
)
def test_a_config_runs_with_the_users_file(
    kind: str, tiny_run: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output, error = bertlab("init", kind, "mine.yaml")
    assert code == 0, error
    config = tmp_path / "mine.yaml"
    text = config.read_text("utf-8")
    lines = text.splitlines()
    marked = output.splitlines()[1].partition("line")[2].partition(" ")[2].partition(", marked")[0]
    for number in marked.split(", "):
        assert "# <<<" in lines[int(number) - 1]
    assert "bertlab fit mine.yaml" in output
    assert "my.yaml" not in text
    assert "finetune-mine" in text
    # as a user would: the paths alone, and what a tiny model needs
    name, content = FILES[kind]
    assert f"source: {name} " in text
    (tmp_path / name).write_text(content, "utf-8")
    (model,) = (line for line in lines if line.lstrip().startswith("init_from:"))
    config.write_text(text.replace(model, f"  init_from: {tiny_run}"), "utf-8")
    code, output, error = bertlab(
        "fit", "mine.yaml", "--data.max_seq_length", "32", "--data.batch_size", "8",
        "--trainer.max_steps", "2", "--trainer.accelerator", "cpu",
        *(["--model.head.max_query_length", "8"] if kind == "qa" else []),
    )  # fmt: skip
    assert code == 0, error
    measure, _, key = HEADS[kind]
    assert measure.replace("/", " │ ") in " ".join(output.split())
    assert "left out of the loss" not in output  # of answers that are not found
    code, output, error = bertlab(
        "predict", "--ckpt_path", "runs/finetune-mine", "--data.input", name
    )
    assert code == 0, error
    predictions = [yaml.safe_load(line) for line in output.splitlines()]
    assert len(predictions) == len(ROWS)
    assert key in predictions[0]


@pytest.mark.slow
def test_a_pre_training_of_ones_own(
    corpus_file: Path,
    cache_dir: Path,
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert bertlab("init", "pretraining", "sub/own.yaml")[0] == 0
    config = tmp_path / "sub" / "own.yaml"
    text = config.read_text("utf-8")
    assert "corpus: my-text/ " in text
    assert "bertlab predict runs/own --text" in text
    config.write_text(text.replace("my-text/", str(corpus_file)), "utf-8")
    code, output, error = bertlab(
        "fit", config, "--model.encoder.preset", "tiny", "--data.vocab_size", "300",
        "--data.max_seq_length", "32", "--data.batch_size", "8", "--data.cache_dir", cache_dir,
        "--data.validation_fraction", "0.2", "--data.corpus_format", "sentences",
        "--data.validation_sequences", "20", "--trainer.max_steps", "2",
        "--trainer.accelerator", "cpu",
    )  # fmt: skip
    assert code == 0, error
    assert "runs/own: step 2" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nerr", "my.yaml"], "no kind is called 'nerr'; did you mean 'ner'?"),
        (["ner"], "expected KIND FILE, as in bertlab init ner my.yaml"),
        (["sentence_pair", "my.yaml"], "'sentence_pair'; did you mean 'pair'?"),
        (["token-classification", "my.yaml"], "did you mean 'ner'?"),
        (
            ["ner", "nowhere/my.csv"],
            "expected a config to write, as nowhere/my.yaml",
        ),
        (["ner", "--output", "x"], "expected KIND FILE"),
    ],
)
def test_mistakes(bertlab: Command, arguments: list[str], words: str) -> None:
    code, _, error = bertlab("init", *arguments)
    assert code == 2
    assert words in error


def test_nothing_is_overwritten(bertlab: Command, tmp_path: Path) -> None:
    (tmp_path / "my.yaml").write_text("mine")
    code, _, error = bertlab("init", "ner", tmp_path / "my.yaml")
    assert (code, (tmp_path / "my.yaml").read_text()) == (2, "mine")
    assert f"{tmp_path}/my.yaml: exists, expected a new file" in error
    code, _, error = bertlab("init", "ner", tmp_path / "my.yaml" / "below.yaml")
    assert code == 2
    assert "cannot be written" in error
