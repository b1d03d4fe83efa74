"""``batch.causal``: each sequence is read in its own direction, as if it were encoded alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bertlab.api.batch import pack
from bertlab.cli.main import main
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import ConfigError
from bertlab.model.build import check_tasks
from bertlab.objectives.language_model import CausalLM
from tests.encoders.test_bert import SMALL, random_batch


class Hybrid(CausalLM):
    """Reads every second sequence from the left, and predicts the next token in all."""

    requires_causal = None
    requires_encoder = {"reads_directions": True}  # noqa: RUF012


def twins(**changes: Any) -> tuple[BertEncoder, BertEncoder]:
    """The same weights with attention to both sides, and to the left."""
    torch.manual_seed(0)
    both = BertEncoder(**SMALL | changes).eval()
    left = BertEncoder(**SMALL | changes, causal=True).eval()
    for parameter in both.parameters():  # away from the init, so that every term matters
        parameter.data += 0.1 * torch.randn_like(parameter)
    left.load_state_dict(both.state_dict())
    return both, left


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(
    sequences=st.lists(st.tuples(st.integers(1, 60), st.booleans()), min_size=1, max_size=5),
    reads_all=st.booleans(),
)
def test_states_and_gradients_are_those_of_each_sequence_alone(
    sequences: list[tuple[int, bool]], reads_all: bool
) -> None:
    lengths, directions = (list(each) for each in zip(*sequences, strict=True))
    both, left = twins()
    batch = random_batch(lengths)
    batch.fields["causal"] = torch.tensor(directions)
    read = torch.arange(sum(lengths)) if reads_all else torch.arange(0, sum(lengths), 7)
    batch.tokens_read = None if reads_all else read
    found = both(batch)
    (found.tokens[read].square().sum() + found.pooled.square().sum()).backward()

    parts = zip(
        batch.input_ids.split(lengths), batch.token_type_ids.split(lengths), directions, strict=True
    )
    expected = [
        (left if causal else both)(pack([ids.tolist()], [types.tolist()]))
        for ids, types, causal in parts
    ]
    tokens, pooled = (
        torch.cat([getattr(each, name) for each in expected]) for name in ("tokens", "pooled")
    )
    gradients = {name: each.grad for name, each in both.named_parameters()}
    both.zero_grad(set_to_none=True)
    (tokens[read].square().sum() + pooled.square().sum()).backward()
    torch.testing.assert_close(found.tokens[read], tokens[read], atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(found.pooled, pooled, atol=2e-5, rtol=1e-4)
    of_left = dict(left.named_parameters())
    for name, each in both.named_parameters():
        summed = sum(part.grad for part in (each, of_left[name]) if part.grad is not None)
        torch.testing.assert_close(gradients[name], summed, atol=1e-3, rtol=1e-3)


def test_the_batch_decides_over_the_encoder() -> None:
    both, left = twins()
    batch = random_batch([9, 4])
    plain = both(batch), left(batch)
    for causal, expected in zip((False, True), plain, strict=True):
        batch.fields["causal"] = torch.tensor([causal] * 2)
        for encoder in (both, left):
            found = encoder(batch)
            torch.testing.assert_close(found.tokens, expected.tokens, atol=2e-6, rtol=1e-5)
            torch.testing.assert_close(found.cls, expected.cls, atol=2e-6, rtol=1e-5)


def test_an_encoder_that_does_not_read_directions_is_refused() -> None:
    check_tasks({"hybrid": Hybrid()}, twins()[0])
    with pytest.raises(ConfigError) as told:
        check_tasks({"hybrid": Hybrid()}, BertEncoder(**SMALL, bilstm_layers=1))
    assert str(told.value) == (
        "model.objectives.hybrid needs an encoder whose reads_directions is True, but "
        "model.encoder.reads_directions is false with these settings"
    )


@pytest.mark.slow
def test_the_encoder_is_refused_before_any_data_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus, run = tmp_path / "text.txt", tmp_path / "run"
    corpus.write_bytes(b"\xff\xfe\x00 no text at all")  # which is refused as soon as it is read
    arguments = ["--data.corpus", str(corpus), "--run_dir", str(run), "--data.num_workers", "0"]
    fit = ["fit", "quickstart", *arguments]
    assert main([*fit, "--model.encoder.causal", "true"]) == 2
    assert "mlm needs a bidirectional encoder" in capsys.readouterr().err
    assert main(fit) == 2
    assert str(corpus) in capsys.readouterr().err
    assert not run.exists()
