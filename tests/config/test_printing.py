"""``--print_config`` prints a config that repeats the run: over random valid configs."""

import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import pytest
import yaml

from bertlab.cli.main import main
from bertlab.config.checkpoint_config import read_stored_config
from bertlab.config.merge import read_request
from bertlab.config.parser import build_parser
from bertlab.config.request import Request, to_arguments
from bertlab.config.run_config import parse_request, resolve_request
from bertlab.config.yaml_files import Config, keys_of, names_below, value_at
from bertlab.errors import ConfigError
from bertlab_conformance.printing import printed_config

FORMS: dict[str, tuple[str, ...]] = {
    "": (),
    "skip_default": ("skip_default",),
    "skip_unset": ("skip_unset",),
    "skip_default,skip_unset": ("skip_default", "skip_unset"),
}
BASES = (
    *(
        [],
        ["quickstart"],
        ["quickstart", "recipes/modern"],
        ["pretrain/bert-mini"],
        ["babylm/strict-small"],
    ),
    *(
        ["finetune/mrpc"],
        ["finetune/cola"],
        ["finetune/squad-v1.1"],
        ["finetune/conll2003"],
        ["finetune/quickstart-heads"],
    ),
)
# texts that YAML, or jsonargparse, might take for something else
TEXTS = ("null", "~", "true", "1", "1e5", "0x1f", "", " x ", "a: b", "[1, 2]", "{a: 1}", "x #y")
TEXTS += ("é", "日本", "no\u00a0break", "two\nlines", "a\tb", "'", '"', "2026-11-25", "1:30", "- x")
NUMBERS = (0.0, 1.0, 0.1, 1e-5, 1e-12, 3e5, 1e22, 1 / 3, float("inf"))
# plugins by key
NAMED: dict[str, tuple[Any, ...]] = {
    "model.encoder": ("bert", {"name": "bert"}, "modern", {"name": "modern", "preset": "mini"}),
    "model.objectives": (["mlm"], ["nsp", "mlm"], ["clm"], {"nsp": {}, "mlm": {"rate": 0.2}}),
    "model.head": ("single_sentence", {"name": "multi_label"}, "span"),
    "model.optimizer.name": ("adamw", "lamb", "SGD", "muon"),
    "model.optimizer.schedule": ("linear", "cosine", {"name": "wsd", "decay_share": 0.5}),
    "data.tokenizer_kind": ("bpe", "wordpiece", {"name": "unigram"}),
}
# keys whose values are more than their types
GIVEN: dict[str, tuple[Any, ...]] = {
    "seed_everything": (True, 0, 1, 17),
    "seed.weights": (1, 2),
    "trainer.logger": (False, "csv", ["wandb", "mlflow"]),
    "trainer.strategy": ("auto", "ddp"),
    "trainer.callbacks": (
        [{"class_path": "lightning.pytorch.callbacks.LearningRateMonitor"}],
        [
            {
                "class_path": "EarlyStopping",
                "init_args": {"monitor": "val/loss", "stopping_threshold": None, "patience": 3},
            }
        ],
    ),
    "evaluations": ({"blimp": {"evaluation": "minimal_pairs", "data": "a.jsonl"}},),
    "stages": (
        {"short": {"share": "1/3", "data.max_seq_length": 32}, "long": {"share": "2/3"}},
        [{"name": "b", "share": 0.5}, {"name": "a", "share": 0.5, "trainer.precision": None}],
    ),
}
NO_VALUE = object()
NOT_GIVEN = ("config", "ckpt_path", "model.init_from", "model.init_optimizer", "seed")


def value_of(hint: Any, rng: random.Random) -> Any:
    """Return a random value of a type; NO_VALUE if only a class is one."""
    origin, below = get_origin(hint), [each for each in get_args(hint) if each is not Ellipsis]
    plain = {bool: (True, False), int: (-1, 0, 1, 2, 7, 1000), float: NUMBERS, str: TEXTS}
    plain[timedelta] = ("00:01:30:00", "2:00:00", {"hours": 3, "seconds": 1})
    if hint in plain:
        return rng.choice(plain[hint])
    if hint is NoneType:
        return None
    if origin is Literal:
        return rng.choice(below)
    if origin in (Union, UnionType):
        found = [value_of(each, rng) for each in below]
        return rng.choice([each for each in found if each is not NO_VALUE] or [NO_VALUE])
    if origin in (list, tuple):
        kinds = below if origin is tuple else below[:1] * rng.randrange(3)
        items = [value_of(each, rng) for each in kinds]
        return NO_VALUE if NO_VALUE in items else items
    return NO_VALUE


def draw_request(rng: random.Random) -> Request:
    """Draw what ``bertlab fit`` is asked for: files by name, plugins, and values of their keys."""
    files = [part for name in rng.choice(BASES) for part in ("--config", name)]
    named = rng.sample(sorted(NAMED), rng.randrange(4))
    argv = [*files, *to_arguments({key: rng.choice(NAMED[key]) for key in named})]
    parser = build_parser("fit", read_request(argv))
    known = keys_of(parser)
    hints = {
        action.dest: getattr(action, "_typehint", None) or action.type for action in parser._actions
    }
    usable = sorted(
        key
        for key, hint in hints.items()
        if key in known and not names_below(key, known) and not key.endswith(".name")
        if key in GIVEN or (key not in NOT_GIVEN and hint is not None)
    )
    base: Config = {}
    for key in rng.sample(usable, 8):
        value = rng.choice(GIVEN[key]) if key in GIVEN else value_of(hints[key], rng)
        if value is NO_VALUE:
            continue
        if rng.random() < 0.5:
            argv += to_arguments({key: value})
        else:
            *above, name = key.split(".")
            section = base
            for part in above:
                section = section.setdefault(part, {})
            section[name] = value
    return read_request(argv, base, "drawn")


def valid_request(seed: int) -> tuple[Request, Config]:
    """Return a random request that is a valid one, and what it resolves to."""
    rng = random.Random(seed)
    while True:
        try:
            request = draw_request(rng)
            return request, resolve_request(request)
        except ConfigError:  # a head beside objectives, seeds of masks beside a head, …
            continue


def check_repeats(seed: int, form: Sequence[str], file: Path) -> None:
    """Print a random config, read the file, and compare what would be run."""
    request, expected = valid_request(seed)
    file.write_text(printed_config(request, form), encoding="utf-8")
    again = read_request(["--config", str(file)])
    assert repr(resolve_request(again)) == repr(expected)  # 1 is no True, and keys are in order
    # what does not change the computation, too: where it is kept, how often it is repeated
    assert printed_config(again, ()) == printed_config(request, ())


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(each, marks=pytest.mark.slow) for each in range(4, 12))]
)
def test_a_printed_config_repeats_its_run(tmp_path: Path, seed: int) -> None:
    check_repeats(seed, list(FORMS.values())[seed % len(FORMS)], tmp_path / "printed.yaml")


@pytest.mark.nightly
@pytest.mark.parametrize("block", range(10))
def test_200_printed_configs_repeat_their_runs(tmp_path: Path, block: int) -> None:
    forms = list(FORMS.values())  # in turn; the fast test has others
    for seed in range(20 * block, 20 * block + 20):
        check_repeats(seed, forms[(seed + 1) % len(forms)], tmp_path / "printed.yaml")


def test_plugins_and_a_seed_at_their_defaults_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What jsonargparse's own ``skip_default`` leaves out: True equals 1 there."""
    arguments = ["quickstart", "--seed_everything", "1", "--model.objectives", "[mlm]"]
    assert main(["fit", *arguments, "--print_config=skip_default"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "seed_everything: 1" in lines
    assert "    mlm: {}" in lines
    assert "    name: bert" in lines
    assert not [line for line in lines if "nsp" in line or "accelerator" in line]


@pytest.mark.parametrize("typed", [["quickstart"], ["fit", "-c", "quickstart"]])
def test_the_command_is_fits_option(typed: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["print-config", *typed, "--trainer.max_steps", "7"]) == 0
    shown = capsys.readouterr().out
    assert main(["fit", "quickstart", "--trainer.max_steps", "7", "--print_config"]) == 0
    assert capsys.readouterr().out == shown
    assert "max_steps: 7" in shown


def test_a_null_whose_default_is_none_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--config", "quickstart", "--trainer.gradient_clip_val", "null"]
    assert main(["fit", *arguments, "--print_config=skip_null"]) == 0
    out = capsys.readouterr().out
    assert "  gradient_clip_val: null" in out
    assert "max_time" not in out


@pytest.mark.parametrize("key", ["trainer.max_time", "checkpoint.train_time_interval"])
@pytest.mark.parametrize(
    ("given", "printed"),
    [
        ("{hours: 8, minutes: 30}", "00:08:30:00"),
        ("{minutes: 90}", "00:01:30:00"),
        ("00:00:01:30", "00:00:01:30"),  # jsonargparse's own form takes this for one second
        ("8:30:00", "00:08:30:00"),
        ("1 day, 2:03:04", "01:02:03:04"),
    ],
)
def test_a_time_has_one_form_which_a_checkpoint_may_bring(
    key: str, given: str, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "quickstart", f"--{key}", given, "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    stored, left_out = read_stored_config({**config, "seed_everything": 1}, "last.ckpt")
    assert not left_out
    request = read_request([], stored, "last.ckpt", Path("last.ckpt"))
    for found in (config, stored, parse_request(request, "fit").plain):
        assert value_at(found, key) == printed


@pytest.mark.slow
def test_sizes_of_given_weights_are_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tiny_run: Path
) -> None:
    arguments = ["--model.init_from", str(tiny_run), "--model.objectives", "[mlm]"]
    assert main(["fit", *arguments, "--print_config"]) == 0
    file = tmp_path / "printed.yaml"
    file.write_text(capsys.readouterr().out)
    sizes = resolve_request(read_request(["--config", str(file)]))["model"]["encoder"]
    assert sizes["hidden_size"] is not None or sizes["preset"] is not None


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["fit", "quickstart", "--print_config=comments"], ["'comments'", "--help all"]),
        (["fit", "quickstart", "--print_config=skip_defualt"], ["did you mean 'skip_default'"]),
        (["fit", "quickstart", "--print_config=skip_default,x"], ["'x'", "skip_unset"]),
        (["fit", "--ckpt_path", "runs/a", "--print_config"], ["--ckpt_path", "config.yaml"]),
        (["validate", "--ckpt_path", "runs/a", "--print_config"], ["bertlab fit", "config.yaml"]),
    ],
)
def test_what_cannot_be_printed_is_refused(
    arguments: list[str], words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert "--print_config" in message
    assert all(each in message for each in words), message


def test_a_checkpoint_in_a_config_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was ignored: a printed config had the key, and began a new run."""
    file = tmp_path / "mine.yaml"
    file.write_text("ckpt_path: runs/a\n")
    assert main(["fit", "--config", str(file)]) == 2
    assert f"{file}: ckpt_path" in capsys.readouterr().err


@pytest.mark.slow
def test_keys_that_fall_away_with_their_encoder_are_said(
    tmp_path: Path, tiny_config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "rms.yaml"
    base.write_text("model: {encoder: {name: modern, norm: rms, hidden_dropout_prob: 0.0}}\n")
    line = f"{base}: model.encoder.norm: set for modern, not for bert"
    files = ["--config", str(base), "--config", str(tiny_config)]
    assert main(["fit", *files, "--run_dir", str(tmp_path / "run")]) == 0
    assert f"bertlab: warning: {line}\n" in capsys.readouterr().err
    study = tmp_path / "study.yaml"
    study.write_text(
        f"base: {base}\nsettings: {{data.corpus: python-english, trainer.max_steps: 2}}\n"
        "variants: {modern: {}, bert: {encoder.name: bert}}\nseeds: 1\n"
    )
    plan = ["study", "plan", str(study), "--study_dir", str(tmp_path / "study")]
    assert main([*plan, "--say_cost", "false"]) == 0  # of a BERT-base, whose steps take seconds
    assert f"bert: {line}" in capsys.readouterr().out
