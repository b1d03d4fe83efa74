"""The page for those who come from another program: their names are theirs, and ours are ours."""

import dataclasses
import re
from pathlib import Path

import pytest
import sentence_transformers
import transformers

from bertlab.cli.main import command_names, find_command
from bertlab.config.merge import read_request
from bertlab.config.parse import explain_unknown_key
from bertlab.config.parser import build_parser
from bertlab.config.yaml_files import keys_of
from bertlab.errors import ConfigError

PAGE = (Path(__file__).parents[2] / "docs" / "coming-from.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## From (\S+)[^\n]*\n(.*?)(?=^## |\Z)", PAGE, re.M | re.S))
# runs of which each key is one of
RUNS = (
    ["--config", "quickstart", "--config", "recipes/modern"],
    ["--config", "finetune/mrpc", "--model.init_from", "x"],
)


def rows(section: str) -> list[list[list[str]]]:
    """Return the words in backticks of each cell of each row."""
    lines = [line for line in SECTIONS[section].splitlines() if line.startswith("| `")][1:]
    return [[re.findall(r"`([^`]+)`", cell) for cell in line.split("|")[1:-1]] for line in lines]


@pytest.fixture(scope="module")
def keys() -> set[str]:
    """Return the keys of a pre-training and of a fine-tuning, sections included."""
    found: set[str] = set()
    for arguments in RUNS:
        found |= keys_of(build_parser("fit", read_request(arguments)))
    sections = {key[: key.rindex(".")] for key in found if "." in key}
    return found | sections | {"model.optimizer.schedule"}


def test_there_are_three_tables() -> None:
    assert list(SECTIONS) == ["Trainer", "sentence-transformers", "ModernBERT's"]
    assert all(len(rows(section)) > 4 for section in SECTIONS)


@pytest.mark.first_fast
@pytest.mark.parametrize("section", SECTIONS)
def test_our_names_are_those_of_the_parser(section: str, keys: set[str]) -> None:
    commands = []
    for _, ours, note in rows(section):
        for name in [*ours, *(each for each in note if each.startswith(("model.", "trainer.")))]:
            if name.startswith("bertlab "):
                commands.append(name)
            elif not name.startswith(("bertlab.", "Trainer")):
                assert name.partition(":")[0] in keys, name
    in_text = re.findall(r"`((?:model|data|trainer|checkpoint)\.[\w.]+\w)", SECTIONS[section])
    theirs = {"model.model_config"}
    assert set(in_text) - theirs <= keys
    for command in [*commands, *re.findall(r"`(bertlab [a-z]+[^`]*)`", SECTIONS[section])]:
        _, name, *options = command.split()
        assert name in command_names()
        for option in (each[2:] for each in options if each.startswith("--")):
            assert any(option in keys_of(each) for each in find_command(name).parsers().values())


def test_names_of_trainer_are_its_arguments() -> None:
    fields = {each.name for each in dataclasses.fields(transformers.TrainingArguments)}
    for theirs, _, _ in rows("Trainer"):
        assert set(theirs) <= fields


@pytest.mark.parametrize("section", ["Trainer", "ModernBERT's"])
def test_a_name_that_is_typed_is_answered_with_ours(section: str) -> None:
    parsers = [build_parser("fit", read_request(arguments)) for arguments in RUNS]
    for theirs, ours, _ in rows(section):
        for place, name in enumerate(theirs):
            if name == "seed":  # a section of ours
                continue
            answers = [explain_unknown_key(name, parser) for parser in parsers]
            # `optim`, `adam_beta1` | `model.optimizer.name`, `model.optimizer.betas`
            meant = [ours[place]] if len(ours) == len(theirs) else ours
            rest = "|".join(rf"(did you mean|here it is) '{each}(\.name)?'" for each in meant)
            expected = re.compile(rest or r"see --help$")
            assert all(expected.search(each) for each in answers), (name, answers)
            assert not meant or any("did you mean" in each for each in answers), (name, answers)
    with pytest.raises(ConfigError, match="did you mean 'seed_everything'"):
        read_request(["--seed", "3"])


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("eval_strategy", "; did you mean 'trainer.val_check_interval'?"),
        ("group_by_length", "; here it is 'data.group_by_length', which this run does not have"),
        ("project", "; see --help"),  # and not recompute
    ],
)
def test_an_answer_is_of_this_run_or_says_that_it_is_not(name: str, end: str) -> None:
    parser = build_parser("fit", read_request(RUNS[0]))
    assert explain_unknown_key(name, parser) == f"{name}: no such key{end}"


def test_names_of_sentence_transformers_are_its_own() -> None:
    for theirs, _, _ in rows("sentence-transformers"):
        for name in theirs:
            found: object = sentence_transformers
            for part in name.split("."):
                found = getattr(found, part)
