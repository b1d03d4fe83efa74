"""A small BERT in transformers' hands, and the same batch in both layouts."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor
from transformers import BertConfig, BertPreTrainedModel

from bertlab.api import ExportReport
from bertlab.api.batch import PackedBatch, pack
from bertlab.api.encoder import Encoder
from bertlab.api.task import Task, TaskContext
from bertlab.api.tokenizer import Tokenizer
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.tensor_files import load_matching
from bertlab.encoders.bert import BertEncoder
from bertlab.model.build import build_encoder
from bertlab.objectives.classification import NextSentencePrediction
from bertlab.objectives.language_model import CausalLM
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.tokenizer.files import WordPieceTokenizer
from bertlab_interop.export import export_folder
from bertlab_interop.padded import padded_form
from bertlab_interop.transformers_folder import write_huggingface

Model = TypeVar("Model", bound=torch.nn.Module)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENIZER = WordPieceTokenizer.from_vocabulary([*SPECIAL, *(f"w{n}" for n in range(92))])
SIZES: dict[str, int] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 48,
}


def export_huggingface(
    encoder: Encoder,
    tasks: Mapping[str, Mapping[str, Tensor]],
    tokenizer: Tokenizer,
    output: Path,
    overwrite: bool = False,
    **more: Any,
) -> ExportReport:
    """Write a folder for transformers of what is in memory."""
    with export_folder(output, overwrite) as folder:
        report = write_huggingface(folder, str(output), encoder, tasks, tokenizer, **more)
    report.output = output
    return report


def randomized(model: Model, seed: int = 0) -> Model:
    """Move every parameter away from its initial value, so that each one matters."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.1)
    return model.eval()


def peer(model_class: type[BertPreTrainedModel], **changes: object) -> BertPreTrainedModel:
    torch.manual_seed(0)
    return randomized(model_class(BertConfig(**(SIZES | changes))))


def tasks_for(encoder: BertEncoder, vocabulary_size: int | None = None) -> dict[str, Task]:
    """Fresh heads that go with the encoder."""
    tokenizer = TOKENIZER
    if vocabulary_size is not None:
        words = [f"w{n}" for n in range(vocabulary_size - len(SPECIAL))]
        tokenizer = WordPieceTokenizer.from_vocabulary([*SPECIAL, *words])
    tasks: dict[str, Task] = {"nsp": NextSentencePrediction()}
    tasks["clm" if encoder.causal else "mlm"] = CausalLM() if encoder.causal else MaskedLM()
    for task in tasks.values():
        task.build(TaskContext(encoder, tokenizer))
    return {name: randomized(task, seed=1) for name, task in tasks.items()}


def built(checkpoint: Pretrained) -> tuple[BertEncoder, dict[str, Task]]:
    """The encoder and heads of a checkpoint that has all of them."""
    encoder = build_encoder(checkpoint.encoder_config, checkpoint.vocab_size).eval()
    load_matching(encoder, checkpoint.encoder_state, checkpoint.source)
    tasks = tasks_for(encoder, encoder.vocab_size)
    for name, state in checkpoint.task_states.items():
        load_matching(tasks[name], state, checkpoint.source)
    return encoder, tasks


def batch_of(lengths: list[int], vocab_size: int = 97) -> PackedBatch:
    generator = torch.Generator().manual_seed(3)
    ids = [torch.randint(1, vocab_size, (n,), generator=generator).tolist() for n in lengths]
    return pack(ids, [[0] * (n // 2) + [1] * (n - n // 2) for n in lengths])


def padded_inputs(batch: PackedBatch) -> dict[str, Tensor]:
    """The batch as transformers reads it."""
    return {
        "input_ids": batch.pad(batch.input_ids),
        "token_type_ids": batch.pad(batch.token_type_ids),
        "attention_mask": batch.attention_mask.long(),
    }


def unpadded(batch: PackedBatch, padded: Tensor) -> Tensor:
    return padded.flatten(0, 1)[batch.padded_index]


def assert_bit_equal(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


def check_padded_form(kind: type[Encoder], changes: dict[str, object]) -> None:
    torch.manual_seed(0)
    encoder = randomized(kind(**(SIZES | changes)))
    batch = batch_of([7, 48, 1, 20])
    with torch.no_grad():
        expected = encoder(batch)
        states, pooled = padded_form(encoder)(**padded_inputs(batch))
    close = {"atol": 2e-5, "rtol": 1e-5}
    torch.testing.assert_close(unpadded(batch, states), expected.tokens, **close)
    torch.testing.assert_close(pooled, expected.pooled, **close)
    assert states.isfinite().all()  # in the padding, too
