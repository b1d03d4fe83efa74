"""The keys of an earlier run: mistakes are told as the parser tells them, before torch is there."""

import json
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from bertlab.checkpoints import pretrained
from bertlab.config.merge import read_request
from bertlab.config.parser import build_parser
from bertlab.config.request import Request
from bertlab.errors import BertlabError
from bertlab_conformance import known_keys
from bertlab_conformance.known_keys import (
    check_known_keys,
    check_plugin_names,
    read_record,
    write_record,
)
from bertlab_conformance.stored_run import HEADS, with_stored_config
from tests.conftest import Command

MISTAKES = [
    "--trainer.max_step=5",
    "--trainer.max_steps=abc",
    "--trainer.max_steps=null",
    "--trainer.precision=15",
    "--trainer.max_steps",
    "--lr=3",
    "--model.encoder.hidden_dropout_prob=[1]",
    "--model.objectives.mlm.rat=0.1",
    "--model.objectives.mlmm.rate=0.1",
    "--data.source=x.csv",
    "--data.batch_size=ten",
    "--data.max_seq_length={from: a, to: 128}",
    "--model.optimizer.betas=[0.9]",
    "--seed_everything=abc",
    "--model.encoder.name=berd",
]
TELLS = """
import contextlib, io, sys
from bertlab.cli.main import main
for mistake in sys.argv[2:]:
    with contextlib.redirect_stderr(io.StringIO()) as error:
        code = main(["fit", "--config", sys.argv[1], mistake])
    print(code, error.getvalue().strip())
print("torch" in sys.modules)
"""

# of commands that use a run
OF_USE = [
    ["predict", "--text=x", "--outptu=x"],
    ["predict", "--text=x", "--data.batch_sise=3"],
    ["predict", "--text=x", "--model.objectives.mlm.rat=0.1"],
    ["predict", "--text=x", "--top_k=0"],
    ["predict", "--text=x", "--top_k=two"],
    ["predict"],
    ["predict", "--text=x", "--input=other.csv"],
    ["predict", "--input=other.csv"],
    ["predict", "--input=nope.csv"],
    ["validate", "--data.validation_sequences=three"],
    ["validate", "--compile=true"],
]
USES = """
import contextlib, io, json, sys
from bertlab.cli.main import main
for argv in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as error:
        code = main(argv)
    print(code, error.getvalue().strip())
print("torch" in sys.modules)
"""


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("BERTLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(known_keys, "write_record", write_record)  # which tests' runs leave out
    return tmp_path / "cache" / "keys"


def asked(*argv: str) -> Request:
    return read_request([*argv])


@pytest.mark.slow
def test_mistakes_are_told_without_torch_in_the_parsers_words(
    cache: Path,
    tiny_config: Path,
    bertlab: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = []
    for mistake in MISTAKES:
        code, _, error = bertlab("fit", "--config", tiny_config, mistake)
        expected.append(f"{code} {error.strip()}")
    assert not cache.exists()  # none of these has begun to train
    monkeypatch.setattr("tests.conftest.are_ours", lambda _: False)  # builds its own parser
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", tmp_path / "run")
    assert code == 0, error
    assert len(list(cache.iterdir())) == 1
    # of the same modules: tests have imported others
    write_record(asked("--config", str(tiny_config)), build_parser("fit", asked()))
    done = subprocess.run(
        [sys.executable, "-c", TELLS, str(tiny_config), *MISTAKES],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [*expected, "False"]


@pytest.mark.slow
def test_after_a_first_mistake_the_next_is_told_without_torch(
    cache: Path, tiny_config: Path
) -> None:
    run = [sys.executable, "-m", "bertlab", "fit", "--config", str(tiny_config)]
    first = subprocess.run([*run, MISTAKES[0]], capture_output=True, text=True, check=False)
    assert (first.returncode, len(list(cache.iterdir()))) == (2, 1)
    again = subprocess.run(
        [sys.executable, "-c", TELLS, str(tiny_config), MISTAKES[0]],
        capture_output=True,
        text=True,
        check=True,
    )
    assert again.stdout.splitlines() == [f"2 {first.stderr.strip()}", "False"]


@pytest.mark.first_fast
@pytest.mark.parametrize(
    "argv",
    [
        ("--config", "quickstart"),
        ("--config", "finetune/sst2"),
        ("--model.head", "sentence_pair", "--data.train", "a.csv"),
        ("--model.heads", "{a: single_sentence, b: sentence_pair}"),
        ("--model.encoder.name", "modern", "--model.optimizer.name", "muon"),
        ("--model.objectives", "[nsp]"),
        ("--data.max_seq_length", "{from: 32, to: 64}", "--trainer.callbacks", "[Timer]"),
        ("--data.batch_size", "null", "--trainer.max_time", "{hours: 1}"),
        ("--trainer.logger", "[csv]", "--trainer.devices", "[0]", "--seeds", "3"),
    ],
)
def test_what_the_parser_takes_is_taken(argv: tuple[str, ...], cache: Path) -> None:
    request = asked(*argv)
    assert read_record(request) is None
    write_record(request, build_parser("fit", request))
    assert read_record(request)
    assert list(cache.iterdir())
    check_known_keys(request)


def test_a_record_of_other_files_or_plugins_is_none(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = asked("--trainer.max_step", "3")
    parser = build_parser("fit", asked())
    module = tmp_path / "module.py"
    module.write_text("")
    monkeypatch.setattr(known_keys, "_files", lambda: iter([module]))
    write_record(asked("--model.head", "sentence_pair"), parser)
    assert not cache.exists()  # the parser is not of this request
    write_record(wrong, parser)
    with pytest.raises(BertlabError, match="max_step: no such key; did you mean"):
        check_known_keys(wrong)
    module.write_text("changed = True")
    check_known_keys(wrong)  # the full parser says it
    write_record(wrong, parser)
    (record,) = cache.iterdir()
    for damaged in ("", "[]", "{}", '{"files": {}, "types": {"a": "os"}}', '{"files": 3}'):
        record.write_text(damaged)
        check_known_keys(wrong)


def test_a_run_that_names_its_plugins_elsewhere_is_not_compared(cache: Path) -> None:
    write_record(asked(), build_parser("fit", asked()))
    assert list(cache.iterdir())
    check_known_keys(asked("--ckpt_path", "last", "--model.head.x", "3"))
    check_known_keys(asked("--model.init_from", "folder", "--model.encoder.x", "3"))


def test_a_source_with_settings_may_have_an_argument() -> None:
    check_plugin_names(asked("--data.corpus.source", "python-english:packages"))
    with pytest.raises(BertlabError, match=r"no source is called 'python-englis'"):
        check_plugin_names(asked("--data.corpus.source", "python-englis:packages"))


@pytest.mark.slow
def test_the_keys_of_a_source_with_settings_are_kept_apart(cache: Path) -> None:
    files = asked("--data.corpus", "my-text")
    source = asked("--data.corpus.source", "python-english")
    write_record(files, build_parser("fit", files))
    assert read_record(source) is None
    write_record(source, build_parser("fit", files))  # of another run since: not kept
    assert read_record(source) is None
    write_record(source, build_parser("fit", source))
    kept = read_record(source)
    assert kept is not None
    assert "data.corpus.source" in kept.types
    check_known_keys(source)
    check_known_keys(files)
    with pytest.raises(BertlabError, match=r"data.corpus.sauce: no such key"):
        check_known_keys(asked("--data.corpus", "{source: python-english, sauce: x}"))


def same_words_without_torch(lines: list[list[str]], bertlab: Command) -> None:
    """Compare what mistakes are told with torch, and without by the records that are kept."""
    late = [bertlab(*line) for line in lines]  # torch is here
    for line in lines:
        command, *argv = line
        heads = [each for each in argv if each.startswith("--head")]
        used = None
        with suppress(BertlabError):  # no head, or another, is named
            used = with_stored_config(asked("--ckpt_path", argv[0], *heads), command)
        if used is not None:
            write_record(used, build_parser(command, used, with_hooks=False), command)
            assert read_record(used, command)
    early = subprocess.run(
        [sys.executable, "-c", USES, json.dumps(lines)], capture_output=True, text=True, check=True
    )
    # which a checkpoint's reading warns of
    expected = [f"{code} {error.strip().splitlines()[-1]}" for code, _, error in late]
    assert all(each.startswith("2 ") for each in expected)
    assert early.stdout.splitlines() == [*expected, "False"]


@pytest.mark.slow
def test_mistakes_in_using_a_run_are_told_without_torch_in_the_same_words(
    cache: Path,
    tiny_run: Path,
    bertlab: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "other.csv").write_text("review,stars\nfine,4\n", "utf-8")
    monkeypatch.chdir(tmp_path)
    # the last stage has the directory
    shutil.copytree(tiny_run, "in-stages")
    shutil.copytree(tiny_run, Path("in-stages", "stages", "first"))
    lines = [[command, str(tiny_run), *rest] for command, *rest in OF_USE]
    in_stages = [["test"], ["predict", "--text=x", "--outptu=x"], ["validate", "--compile=true"]]
    lines += [[command, "in-stages", *rest] for command, *rest in in_stages]
    lines += [["predict", "in-stages/stages/first", "--text=x", "--outptu=x"]]
    same_words_without_torch(lines, bertlab)


@pytest.mark.slow
def test_mistakes_in_using_heads_and_folders_are_told_without_torch_in_the_same_words(
    cache: Path, tiny_run: Path, bertlab: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        f"value {n} is {'red' if n % 2 else 'blue'},{'red' if n % 2 else 'blue'}\n"
        for n in range(40)
    ]
    Path("colors.csv").write_text("".join(["text,label\n", *rows]), "utf-8")
    Path("pairs.csv").write_text(
        "".join(
            ["text_a,text_b,label\n", *(f"the value is {n},{each}" for n, each in enumerate(rows))]
        ),
        "utf-8",
    )
    Path("other.csv").write_text("review,stars\nfine,4\n", "utf-8")
    shared = ["--model.init_from", tiny_run, "--data.max_seq_length=32", "--trainer.max_steps=1"]
    shared += ["--trainer.accelerator=cpu"]
    heads = "{color: single_sentence, near: sentence_pair}"
    data = "{color: {source: colors.csv}, near: {source: pairs.csv}}"
    several = ["--model.heads", heads, "--data.heads", data, "--run_dir=heads"]
    single = ["--model.head=single_sentence", "--data.source=colors.csv", "--run_dir=single"]
    for line in (several, single):
        code, _, error = bertlab("fit", *shared, *line)
        assert code == 0, error
    for model, folder in ((tiny_run, "hf"), ("single", "hf-single")):
        code, _, error = bertlab("export", model, folder)
        assert code == 0, error
    lines = [
        ["test", "single"],
        ["test", "single", "--data.test=nope.csv"],
        ["test", "single", "--data.test=other.csv"],
        ["predict", "single", "--text=x", "--head=color"],
        ["predict", "heads", "--text=x"],
        ["predict", "heads", "--text=x", "--head=colour"],
        ["predict", "heads", "--text=x", "--head=color", "--outptu=x"],
        ["predict", "heads", "--input=other.csv", "--head=near"],
        ["validate", "heads", "--head=colour"],
        ["validate", "heads", "--data.heads.color.validation=nope.csv"],
        ["validate", "heads", "--data.heads.near.validation=other.csv"],
        ["validate", "heads", "--data.heads.color.sauce=nope.csv"],
        ["test", "heads"],
        ["test", "heads", "--head=near"],
        ["test", "heads", "--data.heads.near.test=nope.csv"],
        ["predict", "heads", "short.yaml", "--head=near"],
        ["predict", "hf", "--text=x", "--outptu=x"],
        ["predict", "hf", "--text=x", "--model.objectives.mlm.rat=0.1"],
        ["predict", "hf", "--input=other.csv"],
        ["test", "hf"],
        ["predict", "hf-single", "--text=x", "--model.head.dropuot=0.1"],
        ["predict", "hf-single", "--input=other.csv"],
        ["test", "hf-single"],
        ["predict", "hf-single"],
    ]
    same_words_without_torch(lines, bertlab)


def test_classes_of_transformers_are_of_the_same_heads() -> None:
    assert {f"BertFor{kind}": head for kind, head in HEADS.items()} == pretrained._HEADS


def test_the_config_of_a_run_that_is_not_plain_to_see_is_left(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: {encoder: {name: bert}}\n", "utf-8")
    assert (
        with_stored_config(asked("--ckpt_path", str(tmp_path)), "predict") is None
    )  # it is no whole config
    assert with_stored_config(asked("--ckpt_path", str(tmp_path / "other")), "predict") is None
    assert with_stored_config(asked("--text", "x"), "predict") is None
