"""Generated mistakes in configs and on the command line: one message, nothing left."""

import itertools
from pathlib import Path

import pytest
import yaml
from hypothesis import strategies as st

from bertlab.cli.main import COMMANDS
from tests.reliability import bad_values
from tests.reliability.bad_values import BadValue
from tests.reliability.commands import check_answered, check_refused, contents, run_command
from tests.reliability.conftest import Search


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
    commands = st.sampled_from(sorted(set(COMMANDS) - set(trains)))
    return st.builds(lambda command, words: [command, *words], commands, st.lists(word, max_size=4))


def test_a_command_line(search: Search, folder: Path) -> None:
    def check(arguments: list[str]) -> None:
        answer = run_command(arguments)
        check_answered(answer, ("",))
        assert not list(folder.iterdir()), answer

    search(command_lines(), check)
