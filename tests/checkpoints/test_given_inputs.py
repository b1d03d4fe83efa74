"""What ``model.predict`` takes from Python: each form is the same input, any other is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
import torch

from bertlab.checkpoints.pretrained_model import PretrainedModel, load
from bertlab.checkpoints.run_checkpoint import RUN_KEY
from bertlab.errors import BertlabError, DataError
from tests.checkpoints.peers import SIZES
from tests.checkpoints.test_fine_tuned import POLARITY, write_run


def of_head(head: str, folder: Path) -> PretrainedModel:
    write_run(folder / "run.ckpt", {"name": head}, POLARITY)
    return load(folder / "run.ckpt")


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return of_head("single_sentence", tmp_path_factory.mktemp("single"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> PretrainedModel:
    return of_head("sentence_pair", tmp_path_factory.mktemp("pairs"))


TEXTS = ["w1 w2", "w3 w4 w5"]
SECOND = ["w6", "w7 w8"]


@pytest.mark.parametrize(
    "given",
    [
        *(np.array(TEXTS), pandas.Series(TEXTS), iter(TEXTS), [{"text": each} for each in TEXTS]),
        *(pandas.DataFrame({"text": TEXTS}), pandas.DataFrame({"id": [1, 2], "sentence": TEXTS})),
    ],
)
def test_forms_of_several_texts(single: PretrainedModel, given: Any) -> None:
    assert single.predict(given) == single.predict(TEXTS)


@pytest.mark.parametrize(
    "given",
    [
        [list(each) for each in zip(TEXTS, SECOND, strict=True)],
        pandas.DataFrame({"sentence1": TEXTS, "sentence2": SECOND, "label": ["?", "?"]}),
        [{"premise": a, "text_b": b} for a, b in zip(TEXTS, SECOND, strict=True)],
    ],
)
def test_forms_of_pairs(pairs: PretrainedModel, given: Any) -> None:
    assert pairs.predict(given) == pairs.predict(list(zip(TEXTS, SECOND, strict=True)))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        *((each, "expected a text, or several in their order") for each in (None, 3, b"w1")),
        ({"w1", "w2"}, "expected a text, or several in their order"),  # in whichever order
        (pandas.DataFrame({"txt": TEXTS}), "input 0: found txt, expected text"),
        (
            [{"text": "w1"}, {"title": "w1", "body": "w2"}],
            "input 1: found title, body, expected",
        ),
        ([["w1"]], r"input 0: text: found \['w1'\], expected a text"),
    ],
)
def test_what_is_no_text(single: PretrainedModel, given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        single.predict(given)


def test_texts_that_a_head_cuts_are_counted(
    single: PretrainedModel, capsys: pytest.CaptureFixture[str]
) -> None:
    long = " ".join(["w1"] * 14)  # with [CLS] and [SEP] the 16 tokens of the run
    assert len(single.predict([long, f"{long} w1", TEXTS[0]])) == 3
    told = "warning: 1 of 3 rows are longer than 16 tokens (data.max_seq_length)"
    assert told in capsys.readouterr().err
    single.predict([long, *TEXTS])
    assert "longer" not in capsys.readouterr().err


def test_a_run_whose_sequences_are_longer_than_its_position_table_is_not_loaded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "run.ckpt"
    write_run(path, {"name": "single_sentence"}, POLARITY)
    content = torch.load(path, weights_only=True)
    for length in (SIZES["max_position_embeddings"], SIZES["max_position_embeddings"] + 1):
        content[RUN_KEY]["config"]["data"]["max_seq_length"] = length
        torch.save(content, path)
        if length == SIZES["max_position_embeddings"]:
            assert load(path).max_seq_length == length
    with pytest.raises(BertlabError, match=r"max_seq_length: found 49, expected at most .*48"):
        load(path)


def test_objectives_read_texts_and_pairs(tiny_run: Path) -> None:
    model = load(tiny_run)
    text, pair = "One [MASK] here.", ("One [MASK] here.", "Another.")
    both = model.predict([text, pair])
    for found, (expected,) in zip(both, (model.predict(text), model.predict(pair)), strict=True):
        assert found.keys() == expected.keys()
        tops = [[each["token"] for each in one["fillers"][0]] for one in (found, expected)]
        assert tops[0] == tops[1]
    for wrong in (1, ("a", None), ("a", "b", "c"), {"text": "a"}):
        with pytest.raises(DataError, match=r"text 1: found .*, expected a text or a pair"):
            model.predict([text, wrong])
