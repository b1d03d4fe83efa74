"""ModernBERT and RoBERTa in Hugging Face's form."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    ModernBertConfig,
    ModernBertForMaskedLM,
    ModernBertForSequenceClassification,
    ModernBertModel,
    PreTrainedModel,
    RobertaConfig,
    RobertaForMaskedLM,
    RobertaForMultipleChoice,
    RobertaForQuestionAnswering,
    RobertaForSequenceClassification,
    RobertaForTokenClassification,
    RobertaModel,
)

from bertlab.api.batch import PackedBatch
from bertlab.api.encoder import Encoder
from bertlab.api.task import TaskContext
from bertlab.checkpoints.huggingface import read_huggingface
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.tensor_files import load_matching
from bertlab.encoders.bert import BertEncoder
from bertlab.errors import CheckpointError
from bertlab.model.build import build_encoder
from bertlab.objectives.masked_lm import MaskedLM
from bertlab_interop.export import export_model
from bertlab_modern.modern import ModernEncoder
from subword_samples import as_transformers, tokenizer_called
from tests.checkpoints.peers import TOKENIZER, export_huggingface, randomized
from tests.conftest import Command
from tests.encoders.test_bert import pad, random_batch
from tests.tokenizer.samples import TEXT

SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "pad_token_id": 0,
}
LENGTHS = [200, 3, 64, 9]


def modern_peer(kind: type[PreTrainedModel] = ModernBertForMaskedLM, **changes: Any) -> Any:
    torch.manual_seed(0)
    config = ModernBertConfig(**(SIZES | {"local_attention": 16} | changes))
    return randomized(kind(config))


def saved(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    TOKENIZER.save(folder)
    return folder


def restored(found: Pretrained) -> tuple[Encoder, MaskedLM | None]:
    encoder = build_encoder(found.encoder_config, found.vocab_size).eval()
    load_matching(encoder, found.encoder_state, found.source, ("pooler.",))
    if "mlm" not in found.task_states:
        return encoder, None
    mlm = MaskedLM()
    mlm.build(TaskContext(encoder, TOKENIZER))
    load_matching(mlm, found.task_states["mlm"], found.source)
    return encoder, mlm


def peer_states(model: Any, batch: PackedBatch) -> Tensor:
    found = model(input_ids=pad(batch, batch.input_ids), attention_mask=batch.attention_mask.long())
    return found[0][batch.attention_mask]


@pytest.mark.first_fast
@pytest.mark.first_slow
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"attention_bias": True, "mlp_bias": True, "norm_bias": True, "classifier_bias": True},
        {"norm_bias": True, "decoder_bias": False},
        {"classifier_bias": True, "hidden_activation": "silu"},
        {"layer_types": ["full_attention", "sliding_attention"] * 2},
        {"layer_types": ["full_attention"] * 4},
        {"layer_types": ["full_attention"] + ["sliding_attention"] * 3},
        {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 77.0}}},
    ],
    ids=str,
)
def test_a_modernbert_gives_the_same_states_and_logits_and_goes_back(
    options: dict[str, Any], tmp_path: Path
) -> None:
    peer = modern_peer(**options)
    found = read_huggingface(saved(peer, tmp_path / "given"))
    assert not found.unused
    encoder, mlm = restored(found)
    assert isinstance(encoder, ModernEncoder)
    assert mlm is not None
    batch = random_batch(LENGTHS)
    with torch.no_grad():
        states, expected = encoder(batch).tokens, peer_states(peer.model, batch)
        assert torch.allclose(states, expected, atol=1e-5, rtol=0)
        logits, wanted = mlm.logits(states), peer_states(peer, batch)
        assert torch.allclose(logits, wanted, atol=1e-4, rtol=1e-5)
        report = export_model(str(tmp_path / "given"), tmp_path / "made")
        assert report.architecture == "ModernBertForMaskedLM"
        again, loading = ModernBertForMaskedLM.from_pretrained(
            tmp_path / "made", output_loading_info=True
        )
        assert not any(loading[key] for key in ("missing_keys", "unexpected_keys"))
        assert torch.allclose(peer_states(again.eval(), batch), wanted, atol=1e-6, rtol=0)


@pytest.mark.parametrize("lengths", [[1], [5, 5], [40, 90, 2]])
@pytest.mark.parametrize("window", [4, 60, 128])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_a_bare_modernbert_is_read_for_all_lengths(
    lengths: list[int], window: int, attention: str, tmp_path: Path
) -> None:
    peer = modern_peer(ModernBertModel, local_attention=window, attn_implementation=attention)
    encoder, mlm = restored(read_huggingface(saved(peer, tmp_path)))
    assert mlm is None
    batch = random_batch(lengths)
    with torch.no_grad():
        found, expected = encoder(batch).tokens, peer_states(peer, batch)
    assert torch.allclose(found, expected, atol=1e-5, rtol=0)


def test_a_trained_encoder_with_biases_in_its_head_is_written_exactly(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = randomized(ModernEncoder(97, "tiny", local_window=16))
    mlm = MaskedLM()
    mlm.build(TaskContext(encoder, TOKENIZER))
    randomized(mlm)
    report = export_huggingface(encoder, {"mlm": mlm.state_dict()}, TOKENIZER, tmp_path / "out")
    peer = ModernBertForMaskedLM.from_pretrained(report.output).eval()
    batch = random_batch(LENGTHS)
    with torch.no_grad():
        logits = mlm.logits(encoder(batch).tokens)
        assert torch.allclose(logits, peer_states(peer, batch), atol=1e-4, rtol=1e-5)
    again, head = restored(read_huggingface(report.output))
    assert head is not None
    assert all(torch.equal(head.state_dict()[n], t) for n, t in mlm.state_dict().items())
    with torch.no_grad():
        assert torch.allclose(again(batch).tokens, encoder(batch).tokens, atol=1e-6)


def test_an_encoder_with_segments_is_written_for_a_text_alone(tmp_path: Path) -> None:
    torch.manual_seed(0)
    encoder = randomized(ModernEncoder(97, "tiny", local_window=16, type_vocab_size=2))
    mlm = MaskedLM()
    mlm.build(TaskContext(encoder, TOKENIZER))
    randomized(mlm)
    report = export_huggingface(encoder, {"mlm": mlm.state_dict()}, TOKENIZER, tmp_path / "out")
    assert any("a text alone" in note for note in report.notes)
    peer = ModernBertForMaskedLM.from_pretrained(report.output).eval()
    both = random_batch(LENGTHS)
    alone = replace(both, token_type_ids=torch.zeros_like(both.token_type_ids))
    assert both.token_type_ids.any()
    with torch.no_grad():
        # the first segment's embedding is in the tied table: all logits are larger by one number
        wanted = mlm.logits(encoder(alone).tokens).log_softmax(-1)
        found = peer_states(peer, alone).log_softmax(-1)
        assert torch.allclose(found, wanted, atol=1e-4)
        states = peer_states(peer.model, alone)
        assert torch.allclose(states, encoder(alone).tokens, atol=1e-5)
        assert not torch.allclose(states, encoder(both).tokens, atol=1e-2)


@pytest.mark.slow
def test_a_fine_tuned_modernbert_goes_both_ways(tmp_path: Path) -> None:
    labels = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    peer = modern_peer(ModernBertForSequenceClassification, **labels)
    found = read_huggingface(saved(peer, tmp_path / "given"))
    assert found.head is not None
    assert found.labels is not None
    assert found.labels.names == ("no", "yes")
    encoder, _ = restored(found)
    batch = random_batch(LENGTHS)
    with torch.no_grad():
        weight, bias = (found.head.state[name] for name in found.head.layout.names)
        logits = torch.nn.functional.linear(encoder(batch).pooled, weight, bias)
        mask = batch.attention_mask.long()
        wanted = peer(input_ids=pad(batch, batch.input_ids), attention_mask=mask).logits
        assert torch.allclose(logits, wanted, atol=1e-5)
        report = export_model(str(tmp_path / "given"), tmp_path / "made")
        assert report.architecture == "ModernBertForSequenceClassification"
        again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "made").eval()
        made = again(input_ids=pad(batch, batch.input_ids), attention_mask=mask).logits
        assert torch.allclose(made, wanted, atol=1e-5)
        assert again.config.id2label == {0: "no", 1: "yes"}


def test_a_classifier_of_the_mean_is_left_out(tmp_path: Path) -> None:
    peer = modern_peer(ModernBertForSequenceClassification, classifier_pooling="mean")
    found = read_huggingface(saved(peer, tmp_path))
    assert found.head is None
    assert {"classifier.weight", "classifier.bias"} <= set(found.unused)


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hidden_activation", "relu", "hidden_activation 'relu', expected 'gelu' or 'silu'"),
        ("classifier_activation", "tanh", "classifier_activation 'tanh', expected 'gelu'"),
        ("attention_bias", "yes", "attention_bias 'yes', expected False or True"),
        ("attention_bias", 1, "attention_bias 1, expected False or True"),
        ("tie_word_embeddings", False, "tie_word_embeddings False, expected True"),
        ("num_attention_heads", 5, "5 heads do not divide hidden_size 32"),
        ("hidden_size", 10**18, "config.json: "),
        ("num_hidden_layers", 10**12, "expected num_hidden_layers (1000000000000) of them"),
        ("local_attention", 0, "local_attention 0, expected a whole number of at least 1"),
        ("norm_eps", float("nan"), "norm_eps nan"),
        ("layer_types", ["sliding_attention"] * 4, "layer_types"),
        ("layer_types", 7, "layer_types 7"),
        ("rope_parameters", [], "rope_parameters []"),
        (
            "rope_parameters",
            {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}},
            "rope_parameters.full_attention.rope_type 'yarn', expected 'default'",
        ),
        ("rope_scaling", {"type": "linear"}, "rope_scaling"),
        ("model_type", "modernbart", "did you mean 'modernbert'"),
        ("model_type", ["os.system"], "model_type"),
    ],
)
def test_an_option_that_is_not_known_is_named(
    key: str, value: object, words: str, tmp_path: Path
) -> None:
    path = saved(modern_peer(), tmp_path) / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))
    with pytest.raises(CheckpointError) as error:
        read_huggingface(tmp_path)
    message = str(error.value)
    assert words in message
    assert str(tmp_path) in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"norm": "rms"}, "model.encoder.norm rms, expected layer"),
        ({"norm_position": "post"}, "norm_position post"),
        ({"feed_forward": "plain"}, "feed_forward plain, expected geglu or swiglu"),
        ({"position_embedding": "learned"}, "position_embedding learned"),
        ({"causal": True}, "causal True"),
    ],
)
def test_an_encoder_that_modernbert_cannot_be_is_not_written(
    change: dict[str, Any], words: str, tmp_path: Path
) -> None:
    encoder = ModernEncoder(97, "tiny", **change)
    with pytest.raises(CheckpointError, match=words):
        export_huggingface(encoder, {}, TOKENIZER, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.first_fast
@pytest.mark.parametrize("name", ["modernbert", "roberta"])
def test_a_byte_level_tokenizer_is_read_and_written(name: str, tmp_path: Path) -> None:
    ours = tokenizer_called(name)
    sizes = {"vocab_size": ours.vocab_size, "pad_token_id": ours.pad_id}
    if name == "modernbert":
        peer = modern_peer(ModernBertModel, **sizes)
    else:
        rows = {"max_position_embeddings": 130, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
        peer = randomized(RobertaModel(RobertaConfig(**(SIZES | sizes | rows))))
    peer.save_pretrained(tmp_path / "given")
    # the files as transformers writes them
    as_transformers(ours, tmp_path / "files").save_pretrained(tmp_path / "given")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "given")
    found = read_huggingface(tmp_path / "given").tokenizer
    assert found is not None
    export_model(str(tmp_path / "given"), tmp_path / "made")
    again = AutoTokenizer.from_pretrained(tmp_path / "made")
    model = AutoModel.from_pretrained(tmp_path / "made")
    for text in TEXT[1:]:
        expected = theirs(text, return_tensors="pt")
        ids = expected["input_ids"][0].tolist()
        assert found.build_inputs(found.encode(text))[0] == ids
        written = again(text, return_tensors="pt")
        assert written["input_ids"][0].tolist() == ids
        with torch.no_grad():
            assert torch.allclose(model(**written)[0], peer(**expected)[0], atol=1e-5, rtol=0)
    pair = found.build_inputs(*map(found.encode, TEXT[1:3]))[0]
    assert theirs(*TEXT[1:3])["input_ids"] == again(*TEXT[1:3])["input_ids"] == pair


@pytest.mark.parametrize("kind", [RobertaModel, RobertaForMaskedLM])
def test_a_roberta_is_read(kind: type[PreTrainedModel], tmp_path: Path) -> None:
    torch.manual_seed(0)
    sizes = SIZES | {"pad_token_id": 1, "max_position_embeddings": 52, "type_vocab_size": 1}
    peer = randomized(kind(RobertaConfig(**sizes, layer_norm_eps=1e-5)))
    found = read_huggingface(saved(peer, tmp_path))
    assert not found.unused
    assert found.encoder_config["max_position_embeddings"] == 50
    encoder, mlm = restored(found)
    assert isinstance(encoder, BertEncoder)
    batch = random_batch([50, 7, 21], seed=3)
    batch.input_ids.clamp_(min=2)  # transformers numbers positions by what is no padding
    padded = pad(batch, batch.input_ids - 1) + 1  # padding is 1
    mask = batch.attention_mask
    with torch.no_grad():
        states = encoder(batch).tokens
        model = peer.roberta if mlm else peer
        expected = model(input_ids=padded, attention_mask=mask.long())[0][mask]
        assert torch.allclose(states, expected, atol=1e-5, rtol=0)
        if mlm:
            wanted = peer(input_ids=padded, attention_mask=mask.long()).logits[mask]
            assert torch.allclose(mlm.logits(states), wanted, atol=1e-4, rtol=1e-5)


@pytest.mark.first_fast
@pytest.mark.parametrize(
    "kind",
    [
        *(RobertaModel, RobertaForMaskedLM, RobertaForSequenceClassification),
        *(RobertaForTokenClassification, RobertaForQuestionAnswering, RobertaForMultipleChoice),
    ],
)
def test_a_roberta_goes_back(kind: type[PreTrainedModel], tmp_path: Path) -> None:
    torch.manual_seed(0)
    tokenizer = tokenizer_called("roberta")
    sizes = SIZES | {"max_position_embeddings": 52, "type_vocab_size": 1}
    sizes |= {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id}
    peer = randomized(kind(RobertaConfig(**sizes, layer_norm_eps=1e-5)))
    peer.save_pretrained(tmp_path / "given")
    tokenizer.save(tmp_path / "given")
    found = read_huggingface(tmp_path / "given")
    assert not found.unused
    assert (found.head is None) == (kind in (RobertaModel, RobertaForMaskedLM))
    report = export_model(str(tmp_path / "given"), tmp_path / "made")
    assert report.architecture == kind.__name__
    again, loading = kind.from_pretrained(tmp_path / "made", output_loading_info=True)
    assert not any(loading[key] for key in ("missing_keys", "unexpected_keys"))
    ids = torch.randint(5, tokenizer.vocab_size, (2, 3, 30))
    ids = ids if kind is RobertaForMultipleChoice else ids[0]
    with torch.no_grad():
        for ours, theirs in zip(again.eval()(ids)[:2], peer(ids)[:2], strict=True):
            assert torch.allclose(ours, theirs, atol=1e-6, rtol=0)
    called = AutoTokenizer.from_pretrained(tmp_path / "made")
    assert called.model_input_names == ["input_ids", "attention_mask"]


@pytest.mark.slow
def test_a_fine_tuned_roberta_predicts_what_transformers_does(
    tmp_path: Path, bertlab: Command
) -> None:
    torch.manual_seed(0)
    tokenizer = tokenizer_called("roberta")
    sizes = SIZES | {"max_position_embeddings": 52, "type_vocab_size": 1}
    sizes |= {"vocab_size": tokenizer.vocab_size, "pad_token_id": tokenizer.pad_id}
    names = {"id2label": {0: "no", 1: "perhaps", 2: "yes"}}
    peer = randomized(RobertaForSequenceClassification(RobertaConfig(**sizes, **names)))
    peer.save_pretrained(tmp_path / "given")
    tokenizer.save(tmp_path / "given")
    text = TEXT[1][:40]
    code, output, error = bertlab("predict", "--ckpt_path", tmp_path / "given", "--text", text)
    assert code == 0, error
    theirs = AutoTokenizer.from_pretrained(tmp_path / "given")
    with torch.no_grad():
        expected = peer.eval()(**theirs(text, return_tensors="pt")).logits.softmax(-1)[0].tolist()
    found = json.loads(output)["scores"]
    assert found == pytest.approx(dict(zip(found, expected, strict=True)), abs=1e-6)
    assert list(found) == ["no", "perhaps", "yes"]
