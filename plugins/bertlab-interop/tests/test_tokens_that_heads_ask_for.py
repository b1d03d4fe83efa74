"""A head that asks for special tokens, on a model that was trained without them."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertlab import CommandError, load
from bertlab.plugins import index
from bertlab_interop.extend_vocabulary import extend_vocabulary
from tests.conftest import Command
from tests.plugins.strange_packages import install

MARKED = '''
from bertlab.api import Column, Features
from bertlab.heads.sentences import SingleSentence


class Marked(SingleSentence):
    """Predict a label of a text between two marks."""

    columns = (Column("text"), Column("label", "label", is_truth=True))
    special_tokens = ("[E1]", "[/E1]")

    def encode(self, example, tokenizer, max_seq_length):
        first, last = map(tokenizer.token_id, self.special_tokens)
        inside = tokenizer.encode(example.values["text"])[: tokenizer.room(max_seq_length) - 2]
        ids, types = tokenizer.build_inputs([first, *inside, last])
        return [Features(ids, types, self.truth_of(example))]
'''


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    install(
        tmp_path,
        "marks",
        {"bertlab.heads": {"marked": "marks_of_stranger:Marked"}},
        {"marks_of_stranger": MARKED},
    )
    monkeypatch.syspath_prepend(tmp_path)
    index.forget_installed()
    file = tmp_path / "rows.jsonl"
    lines = [{"text": f"row {'good' if n % 2 else 'bad'} {n}", "label": n % 2} for n in range(8)]
    file.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    yield file
    index.forget_installed()
    sys.modules.pop("marks_of_stranger", None)


@pytest.mark.slow
def test_a_model_without_them_is_refused_and_one_with_them_is_trained_and_exported(
    rows: Path, tiny_run: Path, bertlab: Command
) -> None:
    run, grown = rows.with_name("run"), rows.with_name("grown")
    asked = ("--model.head", "marked", "--data.train", rows, "--data.validation", rows)
    small = ("--data.batch_size", 4, "--data.max_seq_length", 16, "--trainer.max_steps", 2)
    start = ("fit", *asked, *small, "--trainer.logger", "false", "--run_dir", run)
    code, _, error = bertlab(*start, "--model.init_from", tiny_run)
    assert code == 2
    assert "lacks [E1] [/E1], special tokens that marked needs; `bertlab tokenizer --ext" in error
    assert not run.exists()
    told = ("--special_tokens", "[E1] [/E1]", "--output", grown)
    code, said, error = bertlab("tokenizer", "--extend", tiny_run, *told)
    assert code == 0, error
    assert "2 new pieces" in said
    before, after = load(tiny_run), load(grown)
    table = after.encoder.token_embedding.weight.detach()
    old = before.encoder.token_embedding.weight.detach()
    assert torch.equal(table[: len(old)], old)
    new = after.tokenizer.token_id("[E1]")
    mean = old[before.tokenizer.encode("[E1]")].double().mean(0)
    torch.testing.assert_close(table[new].double(), mean)
    assert bertlab(*start, "--model.init_from", grown)[0] == 0
    tokenizer = load(run).tokenizer
    assert tokenizer.token_id("[E1]") == new
    assert tokenizer.special_mask[new]
    code, _, error = bertlab("export", run, rows.with_name("hf"))
    assert code == 0, error
    assert load(rows.with_name("hf")).tokenizer.encode("[E1]") == [new]


def test_something_has_to_be_added(tiny_run: Path, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="--add, --words, --special_tokens: expected one"):
        extend_vocabulary(tiny_run, tmp_path / "new")
