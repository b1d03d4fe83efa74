"""A plugin of each kind that keeps its contract; the broken ones differ from them in one thing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import AdamW, Optimizer
from torchmetrics import Metric

from bertlab.api import EvaluatedModel, Evaluation, EvaluationResult, ScoreGrid
from bertlab.api.batch import (
    EncoderOutput,
    IntArray,
    PackedBatch,
    PackedSequences,
    last_token,
    pack,
)
from bertlab.api.encoder import Adapter, Encoder
from bertlab.api.examples import Column, DataSource, Example, Features, Labels, RawDocument
from bertlab.api.optimizer import OptimizerRecipe, ParameterGroup, Progress, Schedule
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Head, Objective, TaskContext, TaskLoss
from bertlab.api.tokenizer import Tokenizer, TokenizerKind
from bertlab.encoders.attention import packed_attention
from bertlab.encoders.layers import initialize
from bertlab.errors import DataError, EvaluationError, TokenizerError
from bertlab.objectives.classification import Accuracy, classification_loss
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.objectives.masking import MaskableTokens, MaskingUnit
from bertlab_modern.input_formats import DocSentencesSampler
from bertlab_modern.modes import OptimizerModes
from bertlab_tasks.row_transforms import RowTransform


class GoodObjective(Objective):
    """Predict the remainder of some tokens' ids.

    Args:
        rate: share of the tokens that are predicted.
        classes: what the ids are divided by.
    """

    uses_pooled = False

    def __init__(self, rate: float = 0.4, classes: int = 3) -> None:
        super().__init__()
        self.rate = rate
        self.classes = classes

    def build(self, context: TaskContext) -> None:
        self.classifier = nn.Linear(context.encoder.hidden_size, self.classes)
        initialize(self, context.encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        chosen = self.draw(sequences, rng) < self.rate
        positions = np.flatnonzero(chosen & (sequences.corpus_offsets >= 0))
        sequences.fields["remainder_positions"] = positions
        sequences.fields["remainder_labels"] = sequences.input_ids[positions] % self.classes
        return len(positions)

    def draw(self, sequences: PackedSequences, rng: CounterRNG) -> Any:
        keys = (np.repeat(key, sequences.lengths) for key in (sequences.epochs, sequences.indices))
        return rng.uniform(*keys, sequences.position_ids)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        logits = self.logits(output.tokens[batch.fields["remainder_positions"]])
        return classification_loss(logits, batch.fields["remainder_labels"])

    def logits(self, states: Tensor) -> Tensor:
        return self.classifier(states).float()

    def metrics(self) -> dict[str, Metric]:
        return {"accuracy": Accuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        best = self.logits(output.cls).argmax(-1)
        return [{"remainder": number} for number in best.tolist()]


class GoodHead(Head):
    """Predict the label of a text from its first token.

    Args:
        threshold: least probability of an answer.
    """

    columns = (Column("text"), Column("label", "label", is_truth=True))
    monitor = ("accuracy", "max")
    uses_pooled = False

    def __init__(self, threshold: float = 0.0) -> None:
        super().__init__()
        self.threshold = threshold

    def add_layers(self, context: TaskContext) -> None:
        self.classifier = nn.Linear(context.encoder.hidden_size, len(self.classes))
        initialize(self, context.encoder.initializer_range)

    @property
    def classes(self) -> Labels:
        assert self.labels is not None
        return self.labels

    def labels_of(self, row: Example) -> Iterable[str]:
        return [str(row.values["label"])]

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        ids = tokenizer.encode(row.values["text"])
        if not ids:
            raise DataError(f"{row.where}: text: is empty")
        features = Features(*tokenizer.build_inputs(ids[: max_seq_length - 2]))
        features.fields |= self.truth(row)
        return [features]

    def truth(self, row: Example) -> dict[str, int]:
        if "label" not in row.values:
            return {}
        return {"label": self.classes.id_of(row.values["label"], row.where)}

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        return classification_loss(self.logits(output), batch.fields["label"])

    def logits(self, output: EncoderOutput) -> Tensor:
        return self.classifier(output.cls).float()

    def metrics(self) -> dict[str, Metric]:
        return {"accuracy": Accuracy()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        scores, ids = self.logits(output).softmax(-1).max(-1)
        return [
            {"label": self.classes.names[number] if score >= self.threshold else None}
            for score, number in zip(scores.tolist(), ids.tolist(), strict=True)
        ]


class GoodMarkingHead(Head):
    """Predict a number of a text in which a part is marked; the readers parse number and part."""

    columns = (
        Column("text"),
        Column("part", "span", of="text"),
        Column("number", "number", is_truth=True),
    )
    special_tokens = ("[E1]", "[/E1]")
    uses_pooled = False

    def add_layers(self, context: TaskContext) -> None:
        self.regressor = nn.Linear(context.encoder.hidden_size, 1)
        initialize(self, context.encoder.initializer_range)

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        (start, end), text = row.values["part"], row.values["text"]
        if not text.strip():
            raise DataError(f"{row.where}: text: is empty")
        ids = tokenizer.encode(f"{text[:start]}[E1]{text[start:end]}[/E1]{text[end:]}")
        features = Features(*tokenizer.build_inputs(ids[: max_seq_length - 2]))
        features.fields |= {k: v for k, v in row.values.items() if k == "number"}
        return [features]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        found, numbers = self.regress(output), batch.fields["number"].float()
        error = F.mse_loss(found, numbers, reduction="sum")
        return TaskLoss(error, len(numbers), found.detach(), numbers)

    def regress(self, output: EncoderOutput) -> Tensor:
        return self.regressor(output.cls).squeeze(-1).float()

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        return [{"number": each} for each in self.regress(output).tolist()]


class GoodScoringHead(GoodHead):
    """Score whole rows, with a threshold that is chosen on development data."""

    monitor = ("coverage", "max")
    chosen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("chosen", torch.tensor(0.0))

    def merge(self, row: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return parts[0] | {"threshold": self.chosen.item()}

    def score_names(self) -> list[str]:
        return ["coverage"]

    def score(
        self, rows: Sequence[Example], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        return {"coverage": sum(p["label"] is not None for p in predictions) / len(predictions)}

    def row_scores(self, metric: str, rows: Sequence[Mapping[str, Any]]) -> list[float] | None:
        if metric == "accuracy":
            return [float(str(row["gold"]["label"]) == row["label"]) for row in rows]
        return [float(row["label"] is not None) for row in rows] if metric == "coverage" else None

    def tune(self, rows: Sequence[Example], predictions: Sequence[dict[str, Any]]) -> None:
        self.chosen.fill_(0.25)


class GoodContrast(Objective):
    """Find each sequence again by a second pass."""

    compares_sequences = True

    def build(self, context: TaskContext) -> None:
        self.projection = nn.Linear(context.encoder.hidden_size, 8)
        initialize(self, context.encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        return len(sequences.lengths)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        views = [self.projection(each.pooled) for each in (output, output.encode(output.batch))]
        one, other = (torch.nn.functional.normalize(each.float()) for each in views)
        return classification_loss(
            one @ other.T / 0.05, torch.arange(len(batch), device=one.device)
        )

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        return [{"norm": norm} for norm in self.projection(output.pooled).norm(dim=-1).tolist()]


class GoodBesideMaskedLM(Objective):
    """Predict the masked tokens from the token before each, with the scores of ``mlm``."""

    requires = ("mlm",)
    uses_pooled = False

    def build(self, context: TaskContext) -> None:
        self.transform = nn.Linear(context.encoder.hidden_size, context.encoder.hidden_size)
        initialize(self, context.encoder.initializer_range)

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        return len(sequences.token_labels("mlm").positions)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        masked, mlm = batch.token_labels("mlm"), self.required["mlm"]
        assert isinstance(mlm, MaskedLM)
        states = self.transform(output.tokens[masked.positions - 1])
        return classification_loss(mlm.logits(states), masked.labels)

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        return [{} for _ in range(len(batch))]


class GoodEncoder(Encoder):
    """One layer of attention over token and position embeddings.

    Args:
        vocab_size: number of ids.
        hidden_size: width of the states.
        causal: see only what is to the left.
    """

    def __init__(self, vocab_size: int, hidden_size: int = 16, causal: bool = False) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = 1
        self.max_position_embeddings = 64
        self.causal = causal
        self.hidden_dropout_prob = 0.1
        self.layer_norm_eps = 1e-12
        self.initializer_range = 0.02
        self.token_embedding = nn.Embedding(vocab_size, hidden_size)
        self.position_embedding = nn.Embedding(64, hidden_size)
        self.qkv = nn.Linear(hidden_size, 3 * hidden_size)
        self.norm = nn.LayerNorm(hidden_size)
        self.dropout = nn.Dropout(0.1)
        self.pooler = nn.Linear(hidden_size, hidden_size)
        initialize(self, 0.02)

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        embedded = self.embed_tokens(batch) + self.embed_places(batch)
        hidden = self.norm(embedded + self.attend(self.dropout(embedded), batch))
        layers = [embedded, hidden] if all_layers else None
        if self.causal:
            return EncoderOutput(hidden, batch, self.pooler, layers, summary=last_token)
        return EncoderOutput(hidden, batch, self.pooler, layers)

    def embed_tokens(self, batch: PackedBatch) -> Tensor:
        return self.token_embedding(batch.input_ids)

    def embed_places(self, batch: PackedBatch) -> Tensor:
        return self.position_embedding(batch.position_ids)

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        return packed_attention(self.qkv(hidden), batch, 1, 0.0, self.causal)


class GoodNarrowEncoder(GoodEncoder):
    """The same, with embeddings that are narrower than its states."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.token_embedding = nn.Embedding(vocab_size, 8)
        self.widen = nn.Linear(8, self.hidden_size)
        initialize(self, 0.02)

    def embed_tokens(self, batch: PackedBatch) -> Tensor:
        return self.widen(self.token_embedding(batch.input_ids))


class GoodAdapter(Adapter):
    """Train biases only."""

    def adapt(self, encoder: Encoder) -> None:
        for name, parameter in encoder.named_parameters():
            parameter.requires_grad_(name.endswith("bias"))


class GoodUnit(MaskingUnit):
    """Pairs of neighbouring words."""

    def starts(self, tokens: MaskableTokens) -> IntArray:
        words = tokens.words
        number = np.arange(len(words))
        begins = tokens.run_starts[words]
        # begins [1, 0, 0, 1, 0] -> since_begin [0, 1, 2, 0, 1] -> units at words 0, 2 and 3
        since_begin = number - np.maximum.accumulate(np.where(begins, number, 0))
        pairs: IntArray = words[since_begin % 2 == 0]
        return pairs


class GoodFormat(DocSentencesSampler):
    """Text of one document."""


class GoodMetric(Metric):
    """Share of predictions that are wrong."""

    full_state_update = False
    is_share = True
    wrong: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("wrong", torch.tensor(0), dist_reduce_fx="sum")
        self.add_state("count", torch.tensor(0), dist_reduce_fx="sum")

    def update(self, preds: Tensor, target: Tensor) -> None:
        self.wrong += (preds != target).sum()
        self.count += target.numel()

    def compute(self) -> Tensor:
        return self.wrong / self.count


class GoodSource(DataSource):
    """Both documents and rows, three of each.

    Args:
        table: the first word of each text.
    """

    def __init__(self, name: str, argument: str, table: str = "This") -> None:
        super().__init__(name, argument)
        self.table = table

    def documents(self) -> Iterator[RawDocument]:
        for number in range(3):
            text = f"{self.table} is text {number}.\nIt has two lines."
            yield RawDocument(text, True, f"text:{number}")

    def examples(self, split: str | None) -> Iterator[Mapping[str, Any]]:
        if split != "train":
            raise DataError(f"{self.name}: found split {split!r}, expected train")
        for number in range(3):
            yield {"text": f"This is row {number}.", "label": number % 2}


class GoodEvaluation(Evaluation):
    """Mean reciprocal rank of the last token of a text."""

    columns = (Column("text"), Column("topic", required=False))
    monitor = ("accuracy", "max")

    def evaluate(self, model: EvaluatedModel, rows: Sequence[Example]) -> EvaluationResult:
        scores = np.array([self.score(model, row) for row in rows], np.float64)
        long = int(np.isnan(scores).sum())
        return EvaluationResult(
            {"accuracy": float(np.nanmean(scores))},
            scores,
            groups={"topic": [str(row.values.get("topic")) for row in rows]},
            details={"length": [len(row.values["text"]) for row in rows]},
            grids=[ScoreGrid("all", ["a"], ["b"], np.zeros((1, 1)))],
            notes=[f"{long} texts are too long"] if long else [],
        )

    def score(self, model: EvaluatedModel, row: Example) -> float:
        if "mlm" not in model.tasks:
            raise EvaluationError(f"{model.source}: has no mlm")
        ids = self.ids(model, row)
        if len(ids) > model.max_seq_length:
            return float("nan")
        masked = [*ids[:-2], model.tokenizer.mask_id, ids[-1]]
        states = model.encoder(pack([masked])).tokens
        scores = self.logits(model, states[-2:-1])
        return 1 / (1 + float((scores > scores[0, ids[-2]]).sum()))  # reciprocal rank

    def logits(self, model: EvaluatedModel, states: Tensor) -> Tensor:
        objective = model.tasks["mlm"]
        assert isinstance(objective, MaskedLM)
        return objective.logits(states)

    def ids(self, model: EvaluatedModel, row: Example) -> list[int]:
        return model.tokenizer.build_inputs(model.tokenizer.encode(row.values["text"]))[0]


class GoodOptimizer(OptimizerRecipe):
    """AdamW."""

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        return AdamW([group.settings() for group in groups], lr=learning_rate, fused=fused)


class Averaging(AdamW):
    """Weights that follow those of AdamW, also at a rate of 0."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:  # Lightning computes loss and gradients in there
            with torch.enable_grad():
                loss = closure()
        moved = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
        kept = [p.clone() for p in moved]
        for p in moved:
            p.copy_(self.state[p].pop("goal", p))
        super().step()
        for p, before in zip(moved, kept, strict=True):
            self.state[p]["goal"] = p.clone()
            p.copy_(before.lerp(p, 0.5))
        return loss

    def train(self) -> None:
        pass

    def eval(self) -> None:
        pass


class GoodAverage(OptimizerRecipe):
    """AdamW with an average of its weights."""

    def build(
        self, groups: Sequence[ParameterGroup], learning_rate: float, fused: bool
    ) -> Optimizer:
        return Averaging([group.settings() for group in groups], lr=learning_rate)

    def callbacks(self) -> Sequence[Any]:
        return [OptimizerModes()]


class GoodSchedule(Schedule):
    """A straight line."""

    def factor(self, progress: Progress) -> float:
        return 1 - progress.share


class GoodMonitor(Schedule):
    """Half while the last score is not the best."""

    needs_end = False
    monitor = "auto"

    def factor(self, progress: Progress) -> float:
        best = max if self.mode == "max" else min
        return 1.0 if not progress.scores or progress.scores[-1] == best(progress.scores) else 0.5


class GoodTokenizer(TokenizerKind):
    """Whole words and their letters: byte-level BPE with few joins.

    Args:
        min_frequency: a pair that occurs less often is not joined.
    """

    def __init__(self, min_frequency: int = 2) -> None:
        self.min_frequency = min_frequency

    def train(self, texts: Iterable[str], vocab_size: int, lowercase: bool) -> Backend:
        """Train."""
        backend = Backend(models.BPE())
        backend.normalizer = normalizers.Sequence([normalizers.Lowercase()] if lowercase else [])
        backend.pre_tokenizer = pre_tokenizers.ByteLevel()
        backend.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=vocab_size,
            min_frequency=self.min_frequency,
            show_progress=False,
            special_tokens=self.special_tokens.names(),
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        )
        words = [word for text in texts for word in text.split()]
        if not words:
            raise TokenizerError("no words to train a vocabulary on: the text is empty")
        backend.train_from_iterator([" ".join(words)], trainer)
        return backend


class GoodTransform(RowTransform):
    """Texts without spaces at their ends; rows with a short text are left out.

    Args:
        least: characters of a text.
    """

    def __init__(self, least: int = 1) -> None:
        self.least = least

    def change(self, values: Mapping[str, Any]) -> Mapping[str, Any] | str:
        if any(isinstance(each, str) and len(each) < self.least for each in values.values()):
            return "a short text"
        texts = {name: each.strip() for name, each in values.items() if isinstance(each, str)}
        return {**values, **texts}
