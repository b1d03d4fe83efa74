"""``model.adapter: lora``: what is trained, what a checkpoint holds, and what others load."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import bertlab
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import BertlabError
from bertlab_modern.lora import LoRA
from bertlab_modern.modes import OptimizerModes
from bertlab_modern.schedule_free import ScheduleFreeAdamW

SIZES: dict[str, Any] = {
    "num_hidden_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 32,
}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("lora") / "text.txt"
    documents = [
        f"One house is old.\nThe {n}th one is new, and it is {n} miles away." for n in range(40)
    ]
    file.write_text("\n\n".join(documents) + "\n")
    return file


def config(corpus: Path, **model: Any) -> dict[str, Any]:
    return {
        "seed_everything": 1,
        "model": {"objectives": ["mlm"], "optimizer": {"learning_rate": 0.01}, **model},
        "data": {
            "corpus": str(corpus),
            "corpus_format": "sentences",
            "vocab_size": 120,
            "max_seq_length": 32,
            "batch_size": 8,
            "cache_dir": str(corpus.parent / "cache"),
        },
        "trainer": {"max_steps": 6, "val_check_interval": 3, "accelerator": "cpu", "logger": False},
        "checkpoint": {"save_top_k": -1},
        "check_every": 1,
        "run_dir": str(corpus.parent / "base"),
    }


@pytest.fixture(scope="module")
def base(corpus: Path) -> bertlab.Run:
    encoder = {"name": "bert", **SIZES, "hidden_dropout_prob": 0.0}
    return bertlab.fit(config(corpus, encoder=encoder))


@pytest.fixture(scope="module")
def run(corpus: Path, base: bertlab.Run) -> bertlab.Run:
    given = config(corpus, init_from=str(base.directory), adapter={"name": "lora", "rank": 4})
    return bertlab.fit(given | {"run_dir": str(corpus.parent / "run")})


def weights(run: bertlab.Run, name: str = "last") -> dict[str, torch.Tensor]:
    file = run.directory / "checkpoints" / f"{name}.ckpt"
    state: dict[str, torch.Tensor] = torch.load(file, weights_only=True)["state_dict"]
    return state


@pytest.mark.slow
def test_only_adapters_and_tasks_are_trained(base: bertlab.Run, run: bertlab.Run) -> None:
    before, after = weights(base), weights(run)
    changed = {n for n in before if not torch.equal(before[n], after[n])}
    inside = {name for name in changed if name.startswith("encoder.")}
    linear = ("attention.qkv", "attention.output", "intermediate", "output")
    assert inside == {f"encoder.layers.{n}.{part}.weight" for n in range(2) for part in linear}
    assert {name.split(".")[0] for name in changed - inside} == {"tasks"}
    bases = {name for name in after if name.endswith(".lora_base")}
    assert all(torch.equal(after[n], before[n.replace("lora_base", "weight")]) for n in bases)
    assert run.config["model"]["adapter"] == {
        "name": "lora",
        "rank": 4,
        "alpha": 16.0,
        "targets": None,
    }
    # of 2 layers, A and B of 4 x (32 + 96), (32 + 32), (32 + 64), (64 + 32); the rest is of mlm
    tasks = sum(each.numel() for name, each in after.items() if name.startswith("tasks."))
    assert run.manifest["parameters"] == 2 * 4 * (128 + 64 + 96 + 96) + tasks


def test_merged_equals_unmerged() -> None:
    torch.manual_seed(0)
    plain, adapted = (
        BertEncoder(50, "tiny", **SIZES).eval(),
        BertEncoder(50, "tiny", **SIZES).eval(),
    )
    LoRA(rank=3, targets=["attention"]).adapt(adapted)
    batch = bertlab.pack([[1, 7, 9, 2], [1, 30, 2]])
    before = adapted(batch).tokens
    with torch.no_grad():
        for name, each in adapted.named_parameters():
            if name.endswith(".b"):
                each.normal_()
    loss = adapted(batch).tokens.square().sum()
    loss.backward()
    got = {name for name, each in adapted.named_parameters() if each.grad is not None}
    assert got == {n for n, _ in adapted.named_parameters() if n.endswith((".0.a", ".0.b"))}
    assert not torch.allclose(before, adapted(batch).tokens)
    state = adapted.state_dict()
    assert plain.state_dict().keys() <= state.keys()
    plain.load_state_dict(state, strict=False)
    assert (plain(batch).tokens - adapted(batch).tokens).abs().max() < 1e-6
    again = BertEncoder(50, "tiny", **SIZES)
    LoRA(rank=3, targets=["attention"]).adapt(again)
    again.load_state_dict(state)  # every name is known
    assert torch.equal(again.eval()(batch).tokens, adapted(batch).tokens)


def test_the_merged_weights_are_those_that_are_evaluated() -> None:
    torch.manual_seed(0)
    encoder = BertEncoder(50, "tiny", **SIZES)
    LoRA(rank=3, targets=["attention"]).adapt(encoder)
    moved = [each for each in encoder.parameters() if each.requires_grad]
    optimizer = ScheduleFreeAdamW([{"params": moved}], lr=0.1)
    batch = bertlab.pack([[1, 7, 9, 2], [1, 30, 2]])
    for _ in range(3):
        optimizer.zero_grad()
        encoder(batch).tokens.square().sum().backward()
        optimizer.step()
    trained = [each.detach().clone() for each in moved]
    trainer: Any = SimpleNamespace(
        optimizers=[optimizer],
        strategy=SimpleNamespace(lightning_module_state_dict=encoder.state_dict),
    )
    # Lightning takes the state while the weights are those that are trained
    checkpoint: dict[str, Any] = {"state_dict": encoder.state_dict()}
    OptimizerModes().on_save_checkpoint(trainer, encoder, checkpoint)  # type: ignore[arg-type]
    assert all(torch.equal(one, other) for one, other in zip(moved, trained, strict=True))
    state = checkpoint["state_dict"]
    bases = [name for name in state if name.endswith("lora_base")]
    assert len(bases) == 4
    for start in (name.removesuffix("lora_base") for name in bases):
        merged = (
            state[f"{start}lora_base"] + 16 / 3 * state[f"{start}lora_b"] @ state[f"{start}lora_a"]
        )
        torch.testing.assert_close(state[f"{start}weight"], merged)
        kept = checkpoint["trained_weights"][f"{start}parametrizations.weight.0.b"]
        assert not torch.equal(state[f"{start}lora_b"], kept)


@pytest.mark.slow
def test_a_run_goes_on_exactly(run: bertlab.Run, tmp_path: Path) -> None:
    middle = run.directory / "checkpoints" / "step-3.ckpt"
    keys = {"ckpt_path": str(middle), "run_dir": str(tmp_path / "resumed")}
    resumed = bertlab.fit(overrides=keys)
    one, other = weights(run), weights(resumed)
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.slow
def test_it_is_a_plain_model_for_all_others(
    run: bertlab.Run, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = bertlab.load(run.directory)
    assert not any("lora" in name for name in model.encoder.state_dict())
    assert run.predict(["One house is [MASK]."])[0]["fillers"]
    transformers = pytest.importorskip("transformers")
    run.export(tmp_path / "exported")
    theirs = transformers.BertModel.from_pretrained(tmp_path / "exported").eval()
    ids = model.tokenizer.build_inputs(model.tokenizer.encode("One house is old."))[0]
    with torch.no_grad():
        found = theirs(torch.tensor([ids])).last_hidden_state[0]
        assert (model.encoder(bertlab.pack([ids])).tokens - found).abs().max() < 1e-5
    # the next run starts from the merged weights, without an adapter
    given = config(corpus, init_from=str(run.directory))
    given["trainer"]["max_steps"] = 1
    bertlab.fit(given | {"run_dir": str(tmp_path / "next")})
    assert f"{len(model.encoder.state_dict())}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_head_that_keeps_the_encoder_fixed_is_refused(base: bertlab.Run, tmp_path: Path) -> None:
    rows = tmp_path / "rows.jsonl"
    row = '{"words": ["house", "%d"], "tags": ["O", "B-PER"]}\n'
    rows.write_text("".join(row % number for number in range(20)))
    given = {
        "model": {
            "head": {"name": "feature_tagging", "layers": [-1]},
            "init_from": str(base.directory),
            "adapter": {"name": "lora"},
        },
        "data": {"source": str(rows), "max_seq_length": 16},
        "trainer": {"max_steps": 1, "accelerator": "cpu"},
        "run_dir": str(tmp_path / "run"),
    }
    words = "model.adapter: found lora, expected none: feature_tagging keeps the encoder fixed"
    with pytest.raises(bertlab.ConfigError, match=words):
        bertlab.fit(given)


@pytest.mark.parametrize(
    ("targets", "found", "words"),
    [
        (["query", "value", "output"], "['query', 'value']", "expected parts of attention.qkv, "),
        (["attention", "intermdiate"], "['intermdiate']", "did you mean 'intermediate'"),
        ([], "[]", "attention.qkv, attention.output, intermediate, output"),
        (["layers.0"], "['layers.0']", "that is trained"),
    ],
)
def test_each_target_is_part_of_a_name(targets: list[str], found: str, words: str) -> None:
    encoder = BertEncoder(50, "tiny", **SIZES)
    encoder.layers[0].requires_grad_(False)
    with pytest.raises(bertlab.ConfigError) as raised:
        LoRA(targets=targets).adapt(encoder)
    assert f"model.adapter.targets: found {found}, but" in str(raised.value)
    assert words in str(raised.value)


def test_a_text_in_place_of_targets_is_refused() -> None:
    targets: Any = "attention"  # whose letters are parts of every name
    with pytest.raises(bertlab.ConfigError, match=r"model.adapter.targets: found 'attention', exp"):
        LoRA(targets=targets)


@pytest.mark.slow
def test_targets_that_are_not_there_are_refused(corpus: Path, tmp_path: Path) -> None:
    encoder = {"name": "bert", **SIZES}
    for settings, words in (
        ({"targets": ["atention"]}, "of the encoder that is trained has such a name"),
        ({"rank": 0}, "model.adapter.rank: found 0, expected"),
    ):
        given = config(corpus, encoder=encoder, adapter={"name": "lora", **settings})
        with pytest.raises(BertlabError) as raised:
            bertlab.fit(given | {"run_dir": str(tmp_path / "refused")})
        assert words in str(raised.value)
