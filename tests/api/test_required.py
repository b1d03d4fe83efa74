"""Objectives that build on one another: order, errors, weights, and a second pass."""

from typing import Any

import pytest
import torch
from torch import nn

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences, pack
from bertlab.api.rng import CounterRNG
from bertlab.api.task import (
    Objective,
    TaskContext,
    TaskLoss,
)
from bertlab.data.loader import preparation_order
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import ConfigError, PluginError
from bertlab.model.build import build_layers, check_tasks
from bertlab.model.module import BertModule
from bertlab.model.optimizer import check_whole_steps
from bertlab.model.optimizer_config import OptimizerConfig
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.tokenizer.files import WordPieceTokenizer

TOKENIZER = WordPieceTokenizer.from_vocabulary(
    ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{number}" for number in range(40))]
)


class Follower(Objective):
    """Needs ``mlm``; remembers whether that was there when it was built."""

    requires = ("mlm",)

    def build(self, context: TaskContext) -> None:
        self.scores_of_mlm = self.required["mlm"].bias.shape  # which mlm's own build() makes
        self.layer = nn.Linear(context.encoder.hidden_size, 2)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        return len(sequences.token_labels("mlm").positions)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        raise NotImplementedError

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        return [{} for _ in range(len(batch))]


class Second(Follower):
    """Needs one that needs another."""

    requires = ("follower",)

    def build(self, context: TaskContext) -> None:
        assert isinstance(self.required["follower"], Follower)


class First(Second):
    """Goes round in a circle with the one that it needs."""

    requires = ("second",)


class Mover(Follower):
    """Moves text."""

    requires = ()
    rearranges_input = True


def encoder(**more: Any) -> BertEncoder:
    torch.manual_seed(0)
    return BertEncoder(TOKENIZER.vocab_size, "tiny", hidden_size=16, num_attention_heads=2, **more)


def test_each_is_built_and_prepared_after_what_it_requires() -> None:
    tasks: dict[str, Objective] = {
        "second": Second(),
        "follower": Follower(),
        "mover": Mover(),
        "mlm": MaskedLM(),
        "nsp": NextSentencePrediction(),
    }
    # nsp sees the words of the corpus; follower and second see what mlm has masked
    assert preparation_order(tasks) == ["mover", "nsp", "mlm", "follower", "second"]
    del tasks["mover"]
    build_layers(tasks, TaskContext(encoder(), TOKENIZER))
    follower = tasks["follower"]
    assert follower.required["mlm"] is tasks["mlm"]
    assert isinstance(follower, Follower)
    assert follower.scores_of_mlm == (TOKENIZER.vocab_size,)
    # no weight of mlm is saved, or trained, a second time
    assert set(follower.state_dict()) == {"layer.weight", "layer.bias"}


def test_what_is_built_in_the_order_of_the_config_has_the_weights_that_it_had() -> None:
    def weights(build: Any) -> list[torch.Tensor]:
        tasks = {"nsp": NextSentencePrediction(), "mlm": MaskedLM()}
        context = TaskContext(encoder(), TOKENIZER)
        build(tasks, context)
        return [value for task in tasks.values() for value in task.state_dict().values()]

    def one_by_one(tasks: dict[str, Objective], context: TaskContext) -> None:
        for task in tasks.values():
            task.build(context)

    for ours, theirs in zip(weights(build_layers), weights(one_by_one), strict=True):
        assert torch.equal(ours, theirs)


def test_an_objective_that_is_missing_is_an_error_before_any_work() -> None:
    with pytest.raises(ConfigError) as caught:
        check_tasks({"follower": Follower()}, encoder())
    expected = (
        "model.objectives.follower builds on mlm, but found [follower]; expected [follower, mlm]"
    )
    assert str(caught.value) == expected


def test_a_circle_is_named() -> None:
    with pytest.raises(PluginError, match="first requires second requires first"):
        check_tasks({"first": First(), "second": _requiring("first")}, encoder())


def _requiring(name: str) -> Objective:
    return type("Requiring", (Second,), {"requires": (name,)})()


@pytest.mark.parametrize(
    ("accumulate", "devices", "key"), [(2, 1, "accumulate_grad_batches"), (1, 4, "devices")]
)
def test_a_step_that_a_contrastive_loss_sees_in_parts_is_refused(
    accumulate: int, devices: int, key: str
) -> None:
    contrast = type("Contrast", (Follower,), {"compares_sequences": True})()
    check_whole_steps({"contrast": contrast}, 1, 1)
    check_whole_steps({"mlm": MaskedLM()}, accumulate, devices)
    with pytest.raises(
        ConfigError, match=f"trainer.{key}: found {accumulate * devices}, expected 1: contrast"
    ):
        check_whole_steps({"contrast": contrast}, accumulate, devices)


def test_a_second_pass_draws_its_own_dropout_and_none_in_evaluation() -> None:
    tasks = {"nsp": NextSentencePrediction()}
    bert = encoder()
    module = BertModule(bert, tasks, TaskContext(bert, TOKENIZER), OptimizerConfig())
    batch = pack([[2, 7, 8, 9, 3], [2, 10, 3]])
    first = module.train()(batch)
    second = first.encode(first.batch)
    assert not torch.equal(first.cls, second.cls)
    assert not torch.equal(second.cls, second.encode(second.batch).cls)
    first = module.eval()(batch)
    assert torch.equal(first.cls, first.encode(first.batch).cls)
    other = first.encode(pack([[2, 11, 3]]))
    assert other.cls.shape == (1, 16)


def test_an_output_that_no_run_made_has_no_second_pass() -> None:
    with pytest.raises(PluginError, match="it has no encoder"):
        encoder()(batch := pack([[2, 7, 3]])).encode(batch)
