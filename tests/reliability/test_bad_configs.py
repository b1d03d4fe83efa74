"""Generated mistakes in configs and on the command line: one message, nothing left."""

import itertools
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from bertlab.cli.main import command_names
from tests.reliability import bad_values
from tests.reliability.bad_values import BadValue
from tests.reliability.commands import check_answered, check_refused, contents, run_command
from tests.reliability.conftest import Search


@pytest.mark.first_fast
@pytest.mark.parametrize("kind", ["wrong_types", "out_of_range", "unknown_keys"])
def test_a_value(kind: str, search: Search, folder: Path, tiny_config: Path) -> None:
    base = yaml.safe_load(tiny_config.read_text("utf-8"))
    config = folder / "config.yaml"
    runs = itertools.count()

    def check(case: BadValue) -> None:
        content = yaml.safe_load(yaml.safe_dump(base))
        more = []
        if case.in_file:
            section = content
            *sections, name = case.key.split(".")
            for each in sections:
                if each == "objectives":
                    section["objectives"] = {"mlm": {}, "nsp": {}}
                section = section.setdefault(each, {})
            section[name] = case.value
        else:
            more = case.arguments()
        config.write_text(yaml.safe_dump(content), "utf-8")
        before = contents(folder)
        answer = run_command(
            ["fit", "--config", str(config), "--run_dir", f"run-{next(runs)}", *more]
        )
        check_refused(answer, (case.key, case.key.rpartition(".")[2]))
        assert contents(folder) == before

    search(getattr(bad_values, kind)(), check)


def damaged(text: str) -> st.SearchStrategy[bytes]:
    """Return a YAML file with a part cut out, repeated, or replaced."""
    data = text.encode()
    odd = [
        b"\t",
        b"\x00",
        b"\xff",
        b"{",
        b"[",
        b"'",
        b'"',
        b": ",
        b"- ",
        b"&a ",
        b"*a ",
        b"!!python/x ",
        b"#",
    ]
    place = st.integers(0, len(data))
    inserted = st.builds(lambda at, what: data[:at] + what + data[at:], place, st.sampled_from(odd))
    cut = st.builds(lambda at, length: data[:at] + data[at + length :], place, st.integers(1, 40))
    doubled = st.builds(
        lambda at, length: data[: at + length] + data[at:], place, st.integers(1, 40)
    )
    return st.one_of(inserted, cut, doubled)


def test_a_damaged_file(search: Search, folder: Path, tiny_config: Path) -> None:
    """Where the rest is a whole config, its plan is printed."""
    config = folder / "config.yaml"
    study = folder / "study.yaml"
    study.write_text("{base: config.yaml, variants: {a: {}, b: {seed_everything: 5}}, seeds: 1}")
    places = (
        "config.yaml",
        "data.",
        "model.",
        "trainer.",
        "checkpoint.",
        "base",
        "seed_everything",
    )

    def check(content: bytes) -> None:
        config.write_bytes(content)
        check_answered(run_command(["study", "plan", str(study)]), places)

    search(damaged(tiny_config.read_text("utf-8")), check)


def command_lines() -> st.SearchStrategy[list[str]]:
    """Return words after a command that make no sense."""
    word = st.one_of(
        st.sampled_from(
            [
                "--config",
                "--run_dir",
                "--ckpt_path",
                "--",
                "-",
                "",
                "--model.head",
                "--seeds",
                "=",
                "--=",
            ]
        ),
        st.text(min_size=0, max_size=8).filter(lambda text: "\x00" not in text),
        st.integers(-5, 5).map(str),
        bad_values.WORDS.map(lambda word: f"--{word}"),
    )
    trains = ("fit", "new-plugin")  # could begin in earnest, or write
    commands = st.sampled_from(sorted(set(command_names()) - set(trains)))
    return st.builds(lambda command, words: [command, *words], commands, st.lists(word, max_size=4))


def test_a_command_line(search: Search, folder: Path) -> None:
    def check(arguments: list[str]) -> None:
        answer = run_command(arguments)
        check_answered(answer, ("",))
        assert not list(folder.iterdir()), answer

    search(command_lines(), check)


# ten of ten of ten …
BELOW = {"a": "1", "b": "*a", "c": "*b", "d": "*c", "e": "*d"}
LEVELS = [f"{name}: &{name} [{', '.join([below] * 10)}]" for name, below in BELOW.items()]
BOMB = "{" + ", ".join(LEVELS) + "}"
CALLBACKS = "lightning.pytorch.callbacks"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (f"--trainer.max_steps={BOMB}", "stands for over 100,000 values"),
        (f"--model.optimizer={BOMB}", "model.optimizer: cannot read"),
        ("--data.batch_size=" + "[" * 2000, "over 50 brackets"),
        ("--trainer.max_steps=!!timestamp x", "trainer.max_steps: found '!!timestamp x'"),
        ("--trainer.fast_dev_run=!!timestamp x", "trainer.fast_dev_run"),
        ("--trainer.max_steps=" + "9" * 5000, "trainer.max_steps"),
        ("--model.encoder.pad_token_id=" + "1" * 40, "a number of 40 digits, expected at most 64"),
        ("--data.num_workers=1000000", "data.num_workers: found 1000000, expected at most"),
        ("--data.corpus=a\0b", "NUL character"),
        ("--data.tokenizer=\ud800", "half a character"),
        ("--evaluate_every=-3", "evaluate_every: found -3, expected 1 or more"),
        ("--trainer.val_check_interval=soon", "trainer.val_check_interval: found soon"),
        ("--checkpoint.filename={0}", "checkpoint.filename: found '{0}'"),
        ("--checkpoint.filename={step:d" + "0" * 300 + "}", "checkpoint.filename"),
        ("--checkpoint.filename=../x", "checkpoint.filename: found '../x'"),
        (
            f"--trainer.callbacks={{class_path: {CALLBACKS}.EarlyStopping, init_args: "
            "{monitor: a, mode: up}}",
            "`mode` can be min, max, got up",
        ),
        (
            f"--trainer.callbacks={{class_path: {CALLBACKS}.Timer, init_args: {{duration: soon}}}}",
            "trainer",
        ),
        ("--trainer.logger={class_path: lightning.pytorch.loggers.WandbLogger}", "wandb"),
    ],
)
def test_what_a_grammar_has_found(
    arguments: str, words: str, folder: Path, tiny_config: Path
) -> None:
    """Classes of mistakes, each refused where it comes in."""
    answer = run_command(["fit", "--config", str(tiny_config), "--run_dir", "run", arguments])
    check_refused(answer, (words,))
    assert not list(folder.iterdir())


def test_arguments_have_the_bounds_and_the_numbers_of_yaml() -> None:
    answer = run_command(["predict", "--ckpt_path", "none", "--text", "!!timestamp [a: {b"])
    check_refused(answer, ("none",))  # a text is a text
