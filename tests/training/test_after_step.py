"""Weights that a task moves itself: at each step, exactly, whoever resumes or looks."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertlab.config.merge import read_request
from bertlab.plugins import index
from bertlab.training.cli import open_command
from tests.conftest import Command
from tests.plugins.strange_packages import install

MODULE = "teacher_of_a_stranger"
CODE = '''
import copy
import torch
from bertlab import NextSentencePrediction

class Taught(NextSentencePrediction):
    """Next-sentence prediction that also follows an average of its own layer."""

    def build(self, context):
        super().build(context)
        self.teacher = copy.deepcopy(self.classifier).requires_grad_(False)

    def loss(self, output, batch):
        found = super().loss(output, batch)
        off = self.classifier(output.pooled).float() - self.teacher(output.pooled).float()
        found.sum = found.sum + off.square().sum()
        return found

    def after_step(self, step):
        self.classifier.bias.sub_(self.classifier.bias.mean())  # which the optimiser moves too
        for own, followed in zip(self.teacher.parameters(), self.classifier.parameters()):
            own.lerp_(followed, max(0.1, 1 / step))


class Copied(Taught):
    """Keeps the embeddings that ``build`` sees, and those after the first step."""

    def build(self, context):
        super().build(context)
        self._encoder = (context.encoder,)
        weight = context.encoder.token_embedding.weight.detach()
        self.register_buffer("at_build", weight.clone())
        self.register_buffer("copied", weight.clone())

    def after_step(self, step):
        super().after_step(step)
        if step == 1:
            self.copied.copy_(self._encoder[0].token_embedding.weight)
'''
STUDENT, TEACHER = "tasks.taught.classifier.", "tasks.taught.teacher."


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install the objective."""
    folder = tmp_path / "packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    entries = {"bertlab.objectives": {"taught": f"{MODULE}:Taught", "copied": f"{MODULE}:Copied"}}
    install(folder, "their-teacher", entries, {MODULE: CODE})
    index.forget_installed()
    yield
    monkeypatch.undo()
    index.forget_installed()
    sys.modules.pop(MODULE, None)


def weights(run: Path, name: str = "last") -> dict[str, torch.Tensor]:
    content = torch.load(run / "checkpoints" / f"{name}.ckpt", weights_only=True)
    found: dict[str, torch.Tensor] = content["state_dict"]
    return found


@pytest.mark.slow
def test_a_teacher_follows_its_student(bertlab: Command, tiny_config: Path, tmp_path: Path) -> None:
    runs = {every: tmp_path / f"every-{every}" for every in (0, 1)}
    for every, run in runs.items():
        code, _, message = bertlab(
            *("fit", "--config", tiny_config, "--model.objectives", "[mlm, taught]"),
            *("--trainer.accumulate_grad_batches", 2, "--trainer.val_check_interval", 2),
            *("--run_dir", run, "--check_every", every),
        )
        assert code == 0, message
        assert "not the same twice" not in message
    code, _, message = bertlab(
        *("fit", "--ckpt_path", runs[1] / "checkpoints" / "step-3.ckpt"),
        *("--run_dir", tmp_path / "resumed"),
    )
    assert code == 0, message
    saved = [weights(runs[1], f"step-{step}") for step in range(1, 7)]
    for part in ("weight", "bias"):
        followed = saved[0][f"{STUDENT}{part}"]  # the teacher's after the first step
        for step, each in enumerate(saved, 1):
            followed = followed.lerp(each[f"{STUDENT}{part}"], max(0.1, 1 / step))
            assert torch.equal(each[f"{TEACHER}{part}"], followed)
    assert not torch.equal(saved[0][f"{TEACHER}weight"], saved[5][f"{TEACHER}weight"])
    assert all(abs(float(each[f"{STUDENT}bias"].sum())) < 1e-7 for each in saved)
    last = weights(runs[1])
    for run in (runs[0], tmp_path / "resumed"):
        found = weights(run)
        assert all(torch.equal(found[name], each) for name, each in last.items())


def test_build_sees_new_weights_and_the_first_step_those_of_init_from(
    tiny_config: Path, tiny_run: Path, tmp_path: Path
) -> None:
    given = ("--model.objectives", "[copied]", "--model.init_from", str(tiny_run))
    request = read_request(["--config", str(tiny_config), *given, "--run_dir", str(tmp_path / "a")])
    module = open_command("fit", request).model
    loaded = weights(tiny_run)["encoder.token_embedding.weight"]
    task = module.tasks["copied"]
    assert torch.equal(module.encoder.token_embedding.weight, loaded)
    assert not torch.equal(task.at_build, loaded)
    module.after_step(1)
    assert torch.equal(task.copied, loaded)
