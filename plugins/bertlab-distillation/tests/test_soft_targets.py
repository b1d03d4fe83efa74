"""SoftTargets: the conformance kit, and what is its own."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from bertlab import (
    BertEncoder,
    ConfigError,
    MaskedLM,
    TaskContext,
    WordPieceTokenizer,
    load,
    main,
    pack,
)
from bertlab.testing import conformance
from bertlab_distillation.soft_targets import SoftTargets

os.environ.setdefault("HF_HUB_OFFLINE", "1")
WORDS = [f"{first}{second}" for first in "bdfgklmnprst" for second in "aeiou"]
ENDINGS = ["##s", "##ed", "##ing", "##er", "##ly"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *ENDINGS]
FOLDER = tempfile.TemporaryDirectory()  # conformance() wants the path before there is a teacher
TEACHER = Path(FOLDER.name) / "teacher"


@pytest.fixture(scope="module", autouse=True)
def teacher() -> Iterator[Path]:
    """Train a masked LM for three steps."""
    text, vocabulary = Path(FOLDER.name) / "text.txt", Path(FOLDER.name) / "vocabulary"
    documents = ["\n".join(" ".join(WORDS[n % 7 :: 5]) for n in range(d, 10 + d)) for d in range(6)]
    text.write_text("\n\n".join(documents), "utf-8")
    vocabulary.mkdir()
    WordPieceTokenizer.from_vocabulary(VOCABULARY).save(vocabulary)
    command = (
        f"fit --data.corpus {text} --data.corpus_format sentences --data.tokenizer {vocabulary} "
        f"--data.cache_dir {FOLDER.name}/cache --run_dir {TEACHER} --model.objectives [mlm] "
        "--model.encoder.preset tiny --model.encoder.hidden_size 16 --data.batch_size 4 "
        "--model.encoder.max_position_embeddings 64 --data.max_seq_length 32 "
        "--data.validation_fraction 0.5 --trainer.max_steps 3 --trainer.val_check_interval 3 "
        "--trainer.accelerator cpu --seed_everything 1"
    )
    assert main(command.split()) == 0
    yield TEACHER
    FOLDER.cleanup()


test_conformance = conformance(
    SoftTargets, arguments={"teacher": str(TEACHER)}, vocabulary=VOCABULARY
)


def objective(encoder: BertEncoder, tokenizer: WordPieceTokenizer, **more: float) -> SoftTargets:
    made = SoftTargets(str(TEACHER), **more)
    mlm = MaskedLM()
    context = TaskContext(encoder, tokenizer, token_counts=torch.ones(len(VOCABULARY)).numpy())
    mlm.build(context)
    made.required = {"mlm": mlm}
    made.build(context)
    return made


def test_the_loss_is_the_divergence_that_torch_computes() -> None:
    tokenizer = WordPieceTokenizer.from_vocabulary(VOCABULARY)
    torch.manual_seed(0)
    encoder = BertEncoder(len(VOCABULARY), "tiny", hidden_size=16, num_attention_heads=2).eval()
    made = objective(encoder, tokenizer, temperature=3.0).eval()
    batch = pack([[2, 9, 4, 11, 3], [2, 4, 3]])
    batch.fields |= {"mlm_positions": torch.tensor([2, 6]), "mlm_labels": torch.tensor([10, 12])}
    found = made.loss(encoder(batch), batch)

    model = load(TEACHER)
    student, teacher = made.required["mlm"], model.tasks["mlm"]
    assert isinstance(student, MaskedLM)
    assert isinstance(teacher, MaskedLM)
    own = student.logits(encoder(batch).tokens[[2, 6]])
    theirs = teacher.logits(model.encoder(batch).tokens[[2, 6]])
    expected = torch.nn.functional.kl_div(
        (own / 3).log_softmax(-1), (theirs / 3).softmax(-1), reduction="sum"
    )
    assert found.sum.item() == pytest.approx(9 * expected.item(), rel=1e-3)
    assert found.target.tolist() == theirs.argmax(-1).tolist()
    assert found.count == 2


def test_a_model_is_its_own_perfect_teacher() -> None:
    model = load(TEACHER)
    made = SoftTargets(str(TEACHER))
    made.required = {"mlm": model.tasks["mlm"]}  # type: ignore[dict-item]
    made.build(TaskContext(model.encoder, model.tokenizer, torch.ones(len(VOCABULARY)).numpy()))
    batch = pack([[2, 9, 4, 11, 3]])
    batch.fields |= {"mlm_positions": torch.tensor([2]), "mlm_labels": torch.tensor([10])}
    found = made.loss(model.encoder(batch), batch)
    assert found.sum.item() == pytest.approx(0, abs=1e-6)
    assert found.preds.tolist() == found.target.tolist()


def test_the_teacher_is_neither_trained_nor_saved() -> None:
    tokenizer = WordPieceTokenizer.from_vocabulary(VOCABULARY)
    made = objective(BertEncoder(len(VOCABULARY), "tiny", hidden_size=16), tokenizer)
    assert not made.state_dict()
    assert not list(made.parameters())


def test_another_vocabulary_is_refused() -> None:
    tokenizer = WordPieceTokenizer.from_vocabulary([*VOCABULARY, "more"])
    with pytest.raises(ConfigError, match="has another vocabulary than this run"):
        objective(BertEncoder(len(VOCABULARY) + 1, "tiny", hidden_size=16), tokenizer)


def test_a_temperature_of_zero_is_refused() -> None:
    with pytest.raises(ConfigError, match="found 0, expected above 0"):
        SoftTargets("teacher", temperature=0)
