"""A flipped bit is found where steps are computed again; looking changes nothing."""

import copy
import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from lightning.pytorch import Callback

from bertlab import NextSentencePrediction, hookimpl
from bertlab.model.module import BertModule
from bertlab.plugins import hooks
from bertlab_guard import corruption
from bertlab_guard import loss_watch as watch
from bertlab_guard.corruption import StepAudit, Steps, bit_sums
from tests.conftest import Command

DROPOUT = ("--model.encoder.hidden_dropout_prob", "0.1")


def weights(run: Path) -> dict[str, torch.Tensor]:
    return torch.load(run / "checkpoints/last.ckpt", weights_only=True)["state_dict"]


def flip(tensor: torch.Tensor, bit: int, place: int = 0) -> None:
    tensor.view(-1).numpy().view(np.uint32)[place] ^= np.uint32(1 << bit)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The steps that were computed again, from and to."""
    seen = []
    compare = StepAudit._compare

    def spy(self, copy, step):
        seen.append((copy.step, step))
        compare(self, copy, step)

    monkeypatch.setattr(StepAudit, "_compare", spy)
    return seen


@pytest.mark.first_slow
@pytest.mark.parametrize(
    "more",
    [
        (),
        ("--trainer.accumulate_grad_batches", "2", "--trainer.val_check_interval", "6"),
        ("--trainer.gradient_clip_algorithm", "value"),
        ("--trainer.gradient_clip_val", "null"),
        ("--model.optimizer", "muon"),
        ("--model.optimizer", "{name: schedule_free, schedule: constant}"),
        ("--data.num_workers", "1"),
        ("--trainer.precision", "bf16-mixed"),
    ],
    ids=["plain", "accumulated", "by value", "unclipped", "muon", "counts", "worker", "bf16"],
)
def test_looking_changes_nothing(
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    compared: list[tuple[int, int]],
    more: tuple[str, ...],
) -> None:
    ends = []
    for every in (0, 2):
        run = tmp_path / str(every)
        arguments = ("--run_dir", run, "--check_every", every, *DROPOUT, *more)
        code, _, error = bertlab("fit", "--config", tiny_config, *arguments)
        assert code == 0, error
        assert "not the same twice" not in error
        ends.append(weights(run))
    assert compared == [(2, 2), (4, 4)]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


@pytest.mark.slow
def test_resuming_with_it(
    tiny_config: Path, tmp_path: Path, bertlab: Command, compared: list[tuple[int, int]]
) -> None:
    run, last = tmp_path / "run", "checkpoints/last.ckpt"
    assert bertlab("fit", "--config", tiny_config, "--run_dir", run, *DROPOUT)[0] == 0
    final = weights(run)
    (run / last).write_bytes((run / "checkpoints/step-3.ckpt").read_bytes())
    assert bertlab("fit", "--ckpt_path", run, "--check_every", 2)[0] == 0
    assert compared == [(4, 4)]
    assert all(torch.equal(final[name], value) for name, value in weights(run).items())


@pytest.mark.first_fast
@pytest.mark.parametrize("bit", [6, 31])  # lower ones may be lost in rounding
def test_a_gradient(
    tiny_config: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch, bit: int
) -> None:
    """In the step that is looked at."""
    configure, struck = BertModule.configure_gradient_clipping, []

    def strike(self, *arguments, **named):
        if self.trainer.global_step == 4 and not struck:
            struck.append(True)
            gradient = self.tasks["mlm"].dense.weight.grad
            flip(gradient, bit, int(gradient.abs().argmax()))
        configure(self, *arguments, **named)

    monkeypatch.setattr(BertModule, "configure_gradient_clipping", strike)
    arguments = ("--run_dir", tmp_path / "run", "--check_every", 2)
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments)
    assert struck
    assert code == 2
    assert "error E603: step 5: computed again, other bits came out" in error
    assert "tasks.mlm.dense.weight" in error


def in_training(monkeypatch: pytest.MonkeyPatch, step: int, strike) -> None:
    """Let ``strike`` change the module once, as a step begins."""
    training_step, struck = BertModule.training_step, []

    def disturbed(self, batch, batch_idx):
        if self.trainer.global_step == step and not struck:
            struck.append(True)
            strike(self)
        return training_step(self, batch, batch_idx)

    monkeypatch.setattr(BertModule, "training_step", disturbed)


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    ("what", "bit"),
    [("weight", 0), ("weight", 31), ("exp_avg", 12), ("exp_avg_sq", 0), ("exp_avg_sq", 25)],
)
def test_what_lies_in_memory(
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
    what: str,
    bit: int,
) -> None:
    def strike(module: BertModule) -> None:
        weight = module.tasks["mlm"].dense.weight
        state = module.optimizers().optimizer.state[weight]
        flip(weight.data if what == "weight" else state[what], bit, 7)

    in_training(monkeypatch, 3, strike)
    monkeypatch.setattr(corruption, "_WATCH_SHARE", 1e9)  # looks at each step
    code, _, error = bertlab("fit", "--config", tiny_config, "--run_dir", tmp_path / "run")
    assert code == 2
    name = "tasks.mlm.dense.weight" + ("" if what == "weight" else f", {what}")
    assert f"error E603: step 4: changed in memory since the step before: {name}" in error


@pytest.mark.nightly
@pytest.mark.parametrize("share", [1e-12, 1e9], ids=["jump", "leap"])
def test_what_was_not_looked_at(
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    monkeypatch: pytest.MonkeyPatch,
    share: float,
) -> None:
    """All since the copy is computed again where the loss jumps, or a weight leaps."""

    def strike(module: BertModule) -> None:
        flip(module.encoder.embedding_norm.weight.data, 30)

    in_training(monkeypatch, 15, strike)
    monkeypatch.setattr(corruption, "_WATCH_SHARE", share)
    monkeypatch.setattr(corruption, "bit_sums", lambda steps: {})
    monkeypatch.setattr(watch, "_NATS", 0.05)
    arguments = ("--run_dir", tmp_path / "run", "--check_every", 12, "--trainer.max_steps", 20)
    more = ("--trainer.gradient_clip_val", "1.0", "--on_nonfinite", "skip")
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments, *more)
    assert code == 2
    assert "error E603: steps 13-" in error


@pytest.mark.slow
def test_steps_that_are_never_the_same(
    tiny_config: Path, tmp_path: Path, bertlab: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin may draw from a generator of its own: that is no corruption."""
    losses = BertModule.losses

    def noisy(self, batch):
        scale = 1 + int.from_bytes(os.urandom(2), "little") / 2**18
        found = losses(self, batch)
        for each in found:
            each.sum = each.sum * scale
        return found

    monkeypatch.setattr(BertModule, "losses", noisy)
    arguments = ("--run_dir", tmp_path / "run", "--check_every", 2)
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments)
    assert code == 0, error
    assert error.count("steps are not the same twice over") == 1


@pytest.mark.slow
def test_callbacks_may_change_weights(
    tiny_config: Path, tmp_path: Path, bertlab: Command, compared: list[tuple[int, int]]
) -> None:
    callback = "[{class_path: lightning.pytorch.callbacks.LambdaCallback}]"
    arguments = ("--run_dir", tmp_path / "run", "--check_every", 2, "--trainer.callbacks", callback)
    code, _, error = bertlab("fit", "--config", tiny_config, *arguments)
    assert code == 0, error
    assert compared == []


@pytest.mark.slow
def test_weights_that_a_plugin_moves_itself_are_its_own(
    tiny_config: Path,
    tmp_path: Path,
    bertlab: Command,
    compared: list[tuple[int, int]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An EMA teacher follows its student at each loss, however often a step is computed."""
    build, loss = NextSentencePrediction.build, NextSentencePrediction.loss

    def with_teacher(self, context):
        build(self, context)
        self.teacher = copy.deepcopy(self.classifier).requires_grad_(False)
        self.register_buffer("center", torch.zeros(2))

    def following(self, output, batch):
        with torch.no_grad():
            if self.training:
                for its, own in zip(
                    self.teacher.parameters(), self.classifier.parameters(), strict=True
                ):
                    its.lerp_(own, 0.1)
                self.center.mul_(0.9).add_(self.teacher.weight.mean(1))
            target = self.teacher(output.pooled).float() - self.center
        found = loss(self, output, batch)
        found.sum = found.sum + (self.classifier(output.pooled).float() - target).square().sum()
        return found

    monkeypatch.setattr(NextSentencePrediction, "build", with_teacher)
    monkeypatch.setattr(NextSentencePrediction, "loss", following)
    ends = []
    for every in (0, 2):
        arguments = ("--run_dir", tmp_path / str(every), "--check_every", every)
        code, _, error = bertlab("fit", "--config", tiny_config, *arguments)
        assert code == 0, error
        assert "not the same twice" not in error
        ends.append(weights(tmp_path / str(every)))
    assert compared == [(2, 2), (4, 4)]
    assert "tasks.nsp.teacher.weight" in ends[0]
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in ends[0])


class Swap(Callback):
    """Trains with other weights than it keeps, as a schedule-free optimiser does."""

    def on_train_batch_start(self, trainer, module, *_):
        for each in module.parameters():
            each.data.mul_(2)

    def on_train_batch_end(self, trainer, module, *_):
        for each in module.parameters():
            each.data.div_(2)


@pytest.mark.slow
def test_callbacks_of_another_package_may_change_weights(
    tiny_config: Path, tmp_path: Path, bertlab: Command, compared: list[tuple[int, int]]
) -> None:
    class Hooks:
        @hookimpl
        def bertlab_callbacks(self):
            return [Swap()]

    manager = hooks.hook_modules().manager
    manager.register(Hooks(), "swap")
    arguments = ("--run_dir", tmp_path / "run", "--check_every", 2)
    try:
        code, _, error = bertlab("fit", "--config", tiny_config, *arguments)
    finally:
        manager.unregister(name="swap")
    assert code == 0, error
    assert compared == []


class Counting(torch.optim.SGD):
    """Keeps numbers that are no tensors: of a group, and of each weight from its first step on."""

    def step(self, closure=None):
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1
            for each in group["params"]:
                if each.grad is not None:
                    state = self.state[each]
                    state.setdefault("mean", torch.zeros_like(each))
                    state["mean"].add_(each.grad)
                    state.setdefault("norms", []).append(float(each.grad.norm()))
                    each.grad.mul_(1 / group["steps"] + len(state["norms"]))
        return super().step(closure)


@pytest.mark.parametrize("late", [False, True], ids=["all steps", "a weight from step 3 on"])
def test_an_optimiser_keeps_its_numbers(late: bool) -> None:
    def train(every: int) -> Counting:
        torch.manual_seed(1)
        module = torch.nn.Linear(3, 1)
        optimizer = Counting(module.parameters(), lr=0.1)

        def losses(step: int):
            bias = module.bias if not late or step >= 2 else 0
            yield (module.weight * (step + 1)).pow(2).sum() + (bias * module.weight.sum()).sum()

        audit = StepAudit(Steps(module, optimizer, losses, lambda: True, id), every)
        for step in range(6):
            audit.begin(step)
            optimizer.zero_grad()
            next(losses(step)).backward()
            audit.before_update(step)
            optimizer.step()
            audit.end(step, 1.0)
            assert audit.is_deterministic
        return optimizer

    plain, audited = train(100), train(2)
    assert plain.param_groups[0]["steps"] == 6
    for group, other in zip(plain.param_groups, audited.param_groups, strict=True):
        assert {**group, "params": []} == {**other, "params": []}
        for one, its in zip(group["params"], other["params"], strict=True):
            assert torch.equal(one, its)
            assert plain.state[one]["norms"] == audited.state[its]["norms"]
            assert torch.equal(plain.state[one]["mean"], audited.state[its]["mean"])


class Following(NextSentencePrediction):
    """Pulls a weight after each step, by a pace that a schedule changes."""

    scheduled = ("pace",)
    pace = 0.0

    def __init__(self, weight: torch.nn.Parameter) -> None:
        super().__init__()
        self.pulled = weight

    def after_step(self, step: int) -> None:
        self.pulled.data.mul_(1 - self.pace)


@pytest.mark.parametrize("jumps", [False, True], ids=["one step", "all since the copy"])
def test_steps_are_computed_again_with_what_schedules_set(jumps: bool) -> None:
    torch.manual_seed(1)
    module = torch.nn.Linear(3, 1)
    module.task = Following(module.weight)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)

    def losses(step: int):
        yield (module.weight * (step + 1)).pow(2).sum() + module.bias.sum()

    audit = StepAudit(Steps(module, optimizer, losses, lambda: True, module.task.after_step), 4)
    for step in range(7):
        audit.begin(step)  # which comes before the values of the step are set
        optimizer.param_groups[0].update(
            weight_decay=0.5 - 0.05 * step, betas=(0.9 - 0.1 * step, 0.9)
        )
        module.task.pace = 0.1 * step
        optimizer.zero_grad()
        next(losses(step)).backward()
        audit.before_update(step)
        optimizer.step()
        module.task.after_step(step + 1)
        audit.end(step, math.inf if jumps and step == 6 else 1.0)
        assert audit.is_deterministic
    assert optimizer.param_groups[0]["weight_decay"] == 0.5 - 0.05 * 6
    assert module.task.pace == 0.1 * 6


def test_a_sum_sees_every_bit() -> None:
    module = torch.nn.Linear(3, 5)  # 15 weights: not a whole number of 8 bytes
    steps = Steps(module, torch.optim.SGD(module.parameters()), iter, bool, id)
    before = bit_sums(steps)
    for place in range(15):
        for bit in range(32):
            flip(module.weight.data, bit, place)
            assert bit_sums(steps)["weight"] != before["weight"]
            flip(module.weight.data, bit, place)
    assert bit_sums(steps) == before
