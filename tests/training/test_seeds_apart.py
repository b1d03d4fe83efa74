"""Seeds of weights, order, masks and dropout, each given apart."""

import itertools
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from bertlab.checkpoints.run_checkpoint import read_run_checkpoint
from bertlab.config.merge import read_request
from bertlab.config.request import SEED_PARTS, Request
from bertlab.config.run_config import parse_request
from bertlab.data.loader import prepare_sequences
from bertlab.data.pretraining import PretrainingData
from bertlab.encoders.layers import dropout
from bertlab.errors import ConfigError
from bertlab.training.cli import BertlabCLI, open_command
from tests.conftest import Command
from tests.training.test_devices import assert_same_end, fit_by_two, fits_by_two

DROPOUT = ("--model.encoder.hidden_dropout_prob", 0.1)
Found = dict[str, Any]


def weights(run: Path) -> dict[str, torch.Tensor]:
    return read_run_checkpoint(run / "checkpoints" / "last.ckpt").state


def assert_equal_weights(run: Path, other: Path) -> None:
    found, expected = weights(run), weights(other)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def apart(**seeds: int) -> list[object]:
    return [part for name, seed in seeds.items() for part in (f"--seed.{name}", seed)]


def request(*arguments: object) -> Request:
    return read_request([str(each) for each in arguments])


def opened(*arguments: object) -> BertlabCLI:
    return open_command("fit", request(*arguments))


def dropped(session: BertlabCLI) -> list[float]:
    """Return what dropout leaves of ones in the second micro-batch of the third step."""
    session.model.seed_draws(2, 1)
    return dropout(torch.ones(64), 0.5).tolist()


def texts(data: PretrainingData) -> list[list[int]]:
    """Return the text of the first batches before objectives touch it, and its pairs."""
    sequences = data.train_sampler.sample(np.zeros(24, np.int64), np.arange(24))
    return [sequences.input_ids.tolist(), sequences.fields["next_sentence_label"].tolist()]


def masked(data: PretrainingData) -> list[int]:
    """Return how the first held-out sequences, which are the same for all, would be masked."""
    sequences = data.validation_sampler.sample(np.zeros(8, np.int64), np.arange(8))
    stream = data.train_dataloader().loader.dataset.stream
    prepare_sequences(sequences, stream.objectives, stream.seed, training=True)
    return sequences.input_ids.tolist()


def what_a_run_draws(run: Path, *arguments: object) -> Found:
    """Train, and return what each seed should decide, by part; and the weights at the end."""
    session = opened(*arguments, *DROPOUT, "--run_dir", run)
    initial = {key: each.clone() for key, each in session.model.state_dict().items()}
    assert session.run() == 0
    return {
        "weights": {key: each.tolist() for key, each in initial.items()},
        "order": texts(session.datamodule),
        "masks": masked(session.datamodule),
        "dropout": dropped(session),
        "end": {key: each.tolist() for key, each in weights(run).items()},
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("apart")


@pytest.fixture(scope="module")
def draws(tiny_config: Path, folder: Path) -> dict[str, Found]:
    """What runs draw: with one seed, with another of one part, and with another for all."""
    settings: dict[str, list[object]] = {part: apart(**{part: 4}) for part in SEED_PARTS}
    return {
        part: what_a_run_draws(folder / part, "--config", tiny_config, *more)
        for part, more in {"one": [], **settings, "all": ["--seed_everything", 4]}.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize(("given", "part"), list(itertools.product(SEED_PARTS, SEED_PARTS)))
def test_a_seed_changes_its_own_part_and_no_other(
    given: str, part: str, draws: dict[str, Found]
) -> None:
    changed = draws[given][part] != draws["one"][part]
    assert changed == (given == part)


@pytest.mark.slow
@pytest.mark.parametrize("part", SEED_PARTS)
def test_each_part_matters_to_the_weights_at_the_end(part: str, draws: dict[str, Found]) -> None:
    assert draws[part]["end"] != draws["one"]["end"]


@pytest.mark.slow
@pytest.mark.parametrize("part", SEED_PARTS)
def test_a_part_is_what_the_run_with_this_seed_alone_has(
    part: str, draws: dict[str, Found]
) -> None:
    assert draws["all"][part] == draws[part][part]


@pytest.mark.slow
def test_nothing_but_the_parts_depends_on_the_seed_of_the_run(
    tiny_config: Path, folder: Path, tmp_path: Path, draws: dict[str, Found], bertlab: Command
) -> None:
    same = apart(weights=3, order=3, masks=3, dropout=3)
    fit = ("fit", "--config", tiny_config, *DROPOUT, *same, "--seed_everything", 9)
    code, _, error = bertlab(*fit, "--run_dir", tmp_path / "run")
    assert code == 0, error
    assert_equal_weights(tmp_path / "run", folder / "one")


@pytest.mark.slow
def test_a_run_goes_on_exactly_and_records_its_seeds(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    run, again = tmp_path / "run", tmp_path / "again"
    given = apart(weights=7, order=8, dropout=9)
    assert bertlab("fit", "--config", tiny_config, *DROPOUT, *given, "--run_dir", run)[0] == 0
    expected = weights(run)
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["seed"] == 3
    assert manifest["seeds"] == {"weights": 7, "order": 8, "masks": 3, "dropout": 9}
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["seed"] == {"weights": 7, "order": 8, "dropout": 9}
    for later in ("last.ckpt", "step-6.ckpt"):
        (run / "checkpoints" / later).unlink()
    code, _, error = bertlab("fit", "--ckpt_path", run / "checkpoints" / "step-3.ckpt")
    assert code == 0, error
    found = weights(run)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert bertlab("fit", "--config", run / "config.yaml", "--run_dir", again)[0] == 0
    assert_equal_weights(again, run)


@pytest.mark.slow
def test_a_run_does_not_go_on_with_another_seed_of_a_part(
    tiny_config: Path, tiny_run: Path, bertlab: Command
) -> None:
    fit = ("fit", "--config", tiny_config, "--ckpt_path", tiny_run, "--trainer.max_steps", 6)
    code, _, error = bertlab(*fit, "--seed.order", 4)
    assert code == 2
    assert "seed.order: 4 here, None there" in error
    assert "seed.masks" not in error
    assert bertlab(*fit, "--seed.order", 3)[0] == 0  # that of seed_everything


@pytest.mark.slow
def test_workers_see_the_same_order_and_masks(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    fit = ("fit", "--config", tiny_config, *apart(order=5, masks=6), "--trainer.max_steps", 3)
    assert bertlab(*fit, "--run_dir", tmp_path / "none")[0] == 0
    assert bertlab(*fit, "--run_dir", tmp_path / "two", "--data.num_workers", 2)[0] == 0
    assert_equal_weights(tmp_path / "two", tmp_path / "none")


@pytest.mark.nightly
def test_two_processes_equal_one_share_a_drawn_seed_and_drop_out_by_the_seed_given(
    tiny_config: Path, tmp_path: Path, bertlab: Command
) -> None:
    apart_ = ("--config", tiny_config, *apart(weights=5, order=6, masks=7, dropout=8))
    given = ("--config", tiny_config, *DROPOUT)
    parts = apart(weights=3, order=3, dropout=3)
    runs = {
        # the first, as a seed is shared when the second process starts
        tmp_path / "drawn": (*given, "--seed_everything", "true", *parts),
        tmp_path / "apart": apart_,
        tmp_path / "one": given,
        tmp_path / "back": (*given, *parts, "--seed_everything", 9, "--seed.masks", 3),
    }
    fits_by_two("ddp", runs)
    assert bertlab("fit", *apart_, "--run_dir", tmp_path / "alone")[0] == 0
    assert_same_end(tmp_path / "alone", tmp_path / "apart")
    # masks have the drawn seed: two processes that drew different ones would give another end
    drawn = json.loads((tmp_path / "drawn" / "manifest.json").read_text())["seeds"]["masks"]
    assert drawn != 3
    fit_by_two("ddp", tmp_path / "given", *given, *parts, "--seed.masks", drawn)
    assert_equal_weights(tmp_path / "given", tmp_path / "drawn")
    assert_equal_weights(tmp_path / "back", tmp_path / "one")


@pytest.fixture(scope="module")
def fine_tuning(tiny_run: Path, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """Arguments of a short fine-tuning with dropout."""
    rows = tmp_path_factory.mktemp("rows") / "rows.csv"
    lines = [f"the value {number} is {number % 2},{'ab'[number % 2]}" for number in range(40)]
    rows.write_text("\n".join(["text,label", *lines]) + "\n", "utf-8")
    return [
        *("--model.init_from", tiny_run, "--model.head", "single_sentence", *DROPOUT),
        *("--data.source", rows, "--data.batch_size", 8, "--data.max_seq_length", 32),
        *("--trainer.max_epochs", 2, "--trainer.accelerator", "cpu", "--seed_everything", 3),
    ]


def what_a_fine_tuning_draws(run: Path, *arguments: object) -> Found:
    session = opened(*arguments, "--run_dir", run)
    head = {key: each.tolist() for key, each in session.model.tasks.state_dict().items()}
    assert session.run() == 0
    first_step = session.datamodule.train_dataloader().loader.dataset[0]
    rows = [batch.input_ids.tolist() for batch in first_step]
    return {"weights": head, "order": rows, "dropout": dropped(session)}


@pytest.mark.nightly
def test_a_fine_tuning_has_seeds_of_head_rows_and_dropout(
    fine_tuning: list[object], tmp_path: Path
) -> None:
    one = what_a_fine_tuning_draws(tmp_path / "one", *fine_tuning)
    for given in ("weights", "order", "dropout"):
        other = what_a_fine_tuning_draws(tmp_path / given, *fine_tuning, *apart(**{given: 4}))
        assert [part for part in one if one[part] != other[part]] == [given]
    same = [*fine_tuning, *apart(weights=3, order=3, dropout=3), "--seed_everything", 9]
    assert what_a_fine_tuning_draws(tmp_path / "same", *same) == one


def test_a_fine_tuning_has_no_masks(
    fine_tuning: list[object], tmp_path: Path, bertlab: Command
) -> None:
    code, _, error = bertlab("fit", *fine_tuning, "--seed.masks", 1, "--run_dir", tmp_path / "run")
    assert code == 2
    assert "seed.masks: found 1, but a fine-tuning draws no masks" in error


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("seed.weigths", 1, "did you mean 'seed.weights'?"),
        ("seed.order", -1, "seed.order: found -1, expected 0 to 4294967295"),
        ("seed.dropout", 2**32, "seed.dropout: found 4294967296, expected 0 to 4294967295"),
        ("seed.masks", "x", "seed.masks: found 'x', expected a whole number or null"),
    ],
)
def test_a_wrong_seed_of_a_part_is_named(
    key: str, value: object, expected: str, tiny_config: Path, tmp_path: Path
) -> None:
    part = tmp_path / "part.yaml"
    part.write_text(f"seed: {{{key.removeprefix('seed.')}: {value}}}", "utf-8")
    for given in ([f"--{key}={value}"], ["--config", part]):
        with pytest.raises(ConfigError, match=re.escape(expected)):
            parse_request(request("--config", tiny_config, *given), "fit")
