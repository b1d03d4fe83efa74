"""Replayed steps without a GPU: what a graph would replay is computed anew."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from bertlab.api.batch import PackedBatch
from bertlab.data.module import TaskData
from bertlab.model.module import BertModule
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.training import cli
from bertlab_gpu import step_graphs
from bertlab_gpu.filling import Filling
from bertlab_gpu.step_graphs import StepGraphs, _Recorded
from tests.conftest import Command

NO_DROPOUT = (
    "--model.encoder.hidden_dropout_prob", 0, "--model.encoder.attention_probs_dropout_prob", 0
)  # fmt: skip
RECORDED: list[bool] = []


class Recomputing(StepGraphs):
    """A recorded pass is computed anew where a GPU would replay it."""

    def _record(self, batch: PackedBatch, counts: Tensor, adds: bool) -> _Recorded:
        RECORDED.append(adds)
        inputs, numbers = batch.map_tensors(Tensor.clone), counts.clone()
        shares, gradients = self._passes(inputs, numbers)
        if not self._gradients:
            self._gradients = [None if g is None else torch.empty_like(g) for g in gradients]

        def replay() -> None:
            found, news = self._passes(inputs, numbers)
            shares.copy_(found)
            for old, new in zip(self._gradients, news, strict=True):
                if old is not None and new is not None:
                    (old.add_ if adds else old.copy_)(new)

        return _Recorded(inputs, numbers, shares, SimpleNamespace(replay=replay))  # type: ignore[arg-type]


def accelerate(name: str, module: BertModule, data: TaskData, trainer: object) -> None:
    del name, trainer
    data.finish_batch = Filling(module.named_tasks(), data.max_seq_length)
    module.passes = Recomputing()


@pytest.fixture
def without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    RECORDED.clear()
    monkeypatch.setattr(step_graphs.torch.cuda, "graph_pool_handle", lambda: (0, 0))
    monkeypatch.setattr(cli, "hook_results", accelerate)
    for name in ("compile_layers", "compile_losses"):  # takes long
        monkeypatch.setattr(cli, name, lambda part: None)


@pytest.mark.first_slow
@pytest.mark.usefixtures("without_gpu")
@pytest.mark.filterwarnings("ignore:.*CUDA is not available")
@pytest.mark.parametrize("parts", [1, 2])
def test_losses_are_those_of_plain_steps(
    tiny_config: Path, bertlab: Command, tmp_path: Path, parts: int
) -> None:
    found = []
    for name, compiles in (("plain", "false"), ("replayed", "true")):
        code, output, error = bertlab(
            "fit", "--config", tiny_config, "--run_dir", tmp_path / name, *NO_DROPOUT,
            "--compile", compiles, "--trainer.accumulate_grad_batches", parts,
            "--trainer.val_check_interval", 4,
        )  # fmt: skip
        assert code == 0, error
        assert "without CUDA graphs" not in output
        results = json.loads((tmp_path / name / "results.json").read_text("utf-8"))
        found.append({name: value for name, value in results.items() if name.endswith("/loss")})
    assert set(RECORDED) == ({False} if parts == 1 else {False, True})
    assert found[1] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.slow
@pytest.mark.usefixtures("without_gpu")
def test_a_task_that_cannot_fill_up_its_batches_trains_as_usual(
    monkeypatch: pytest.MonkeyPatch, tiny_config: Path, bertlab: Command, tmp_path: Path
) -> None:
    monkeypatch.setattr(NextSentencePrediction, "fill", lambda *_: None, raising=False)
    code, output, error = bertlab(
        "fit", "--config", tiny_config, "--run_dir", tmp_path / "run", "--compile", "true"
    )
    assert code == 0, error
    assert output.count("training continues without CUDA graphs: a task does not fill up") == 1
    assert RECORDED == []
