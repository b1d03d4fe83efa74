"""From one text to another: a decoder over the encoder (Vaswani et al. 2017)."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from torchmetrics import Metric
from torchmetrics.functional.text import char_error_rate

from bertlab import (
    Accuracy,
    Column,
    ConfigError,
    EncoderOutput,
    Example,
    Features,
    Head,
    MajorityAccuracy,
    PackedBatch,
    TaskContext,
    TaskLoss,
    Tokenizer,
    check_at_least,
    check_share,
    initialize,
    sinusoidal_positions,
    text_ids,
)
from bertlab_seq2seq.beam_search import beam_search
from bertlab_seq2seq.decoder import Decoder, DecoderState

_HEAD_SIZE = 64  # Vaswani et al. 2017, sec. 3.2.2


class Seq2Seq(Head):
    """Write a target text for a source text.

    The decoder begins with ``[CLS]`` and ends with ``[SEP]``; it reads and predicts with the
    encoder's token embedding, scaled by the square root of its width, and sinusoidal positions
    (sec. 3.4 and 3.5). In training it reads the true target; predictions are searched.

    Texts come back, and are compared, as the tokenizer has them: in lower case if it is uncased,
    with spaces around punctuation. ``accuracy`` is that of each word piece after the true ones,
    ``exact_match`` that of whole texts; ``char_error_rate`` counts the characters to insert, delete
    and replace, over those of the targets. ``majority_exact_match`` is that of the commonest
    target, ``copy_char_error_rate`` that of the source as it is.

    Args:
        num_hidden_layers: layers of the decoder.
        num_attention_heads: heads of its attention; of size 64 if not given, as the paper's.
        intermediate_size: width of its feed-forward networks; 4 times the hidden size if not given.
        max_target_length: longest target in word pieces, its end included; longer ones are cut.
        label_smoothing: share of the truth that is spread over the vocabulary, in training only.
        dropout: on embeddings and sub-layers; the encoder's ``hidden_dropout_prob`` if not given.
        beam_size: hypotheses that are searched at a time; 1 is greedy, the paper has 4.
        length_penalty: preference for long hypotheses, if there are several.

    Raises:
        ConfigError: if an argument is out of range.
    """

    columns = (Column("source"), Column("target", is_truth=True))
    monitor = ("char_error_rate", "min")
    better: ClassVar[Mapping[str, Literal["min", "max"]]] = {
        "exact_match": "max",
        "perplexity": "min",
    }
    shares = ("accuracy", "exact_match")
    uses_pooled = False
    positions: Tensor

    def __init__(
        self,
        num_hidden_layers: int = 6,
        num_attention_heads: int | None = None,
        intermediate_size: int | None = None,
        max_target_length: int = 64,
        label_smoothing: float = 0.1,  # sec. 5.4
        dropout: float | None = None,
        beam_size: int = 1,
        length_penalty: float = 0.6,  # sec. 6.1
    ) -> None:
        super().__init__()
        sizes = {
            "num_hidden_layers": num_hidden_layers,
            "num_attention_heads": num_attention_heads,
            "intermediate_size": intermediate_size,
            "beam_size": beam_size,
        }
        for name, size in sizes.items():
            check_at_least(f"model.head.{name}", size, 1)
        if max_target_length < 2:
            raise ConfigError(
                f"model.head.max_target_length: found {max_target_length}, expected 2 or more, a "
                "word piece and the end"
            )
        if not 0 <= label_smoothing < 1:
            raise ConfigError(
                f"model.head.label_smoothing: found {label_smoothing}, expected 0 to below 1"
            )
        check_share("model.head.dropout", dropout)
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.intermediate_size = intermediate_size
        self.max_target_length = max_target_length
        self.label_smoothing = label_smoothing
        self.dropout_prob = dropout
        self.beam_size = beam_size
        self.length_penalty = length_penalty

    def add_layers(self, context: TaskContext) -> None:
        """Create the decoder.

        Raises:
            ConfigError: if the heads do not divide the encoder's hidden size.
        """
        encoder, given = context.encoder, self.dropout_prob
        width = encoder.hidden_size
        heads = self.num_attention_heads or max(1, width // _HEAD_SIZE)
        if width % heads:
            raise ConfigError(
                f"model.head.num_attention_heads: {heads} heads do not divide the encoder's "
                f"hidden_size {width}; give another number"
            )
        self.dropout = nn.Dropout(encoder.hidden_dropout_prob if given is None else given)
        self.decoder = Decoder(
            num_hidden_layers=self.num_hidden_layers,
            hidden_size=width,
            num_attention_heads=heads,
            intermediate_size=self.intermediate_size or 4 * width,
            dropout=self.dropout.p,
            layer_norm_eps=encoder.layer_norm_eps,
        )
        initialize(self, encoder.initializer_range)
        table = sinusoidal_positions(self.max_target_length, width)
        self.register_buffer("positions", table, persistent=False)
        self._tied = (encoder.token_embedding,)  # in a tuple, so that it stays the encoder's own
        self.tokenizer = context.tokenizer

    def encode(self, example: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        """Return ``[CLS] source [SEP]``, and the target with its ``[SEP]`` as ``target_ids``.

        Raises:
            DataError: if a text is empty.
            ConfigError: if not even one token of the source fits.
        """
        ids = text_ids(example.values.get("source"), example, "source", tokenizer)
        room = max_seq_length - 2
        if room < 1:
            raise ConfigError(
                f"data.max_seq_length: found {max_seq_length}, expected 3 or more for a text"
            )
        features = Features(*tokenizer.build_inputs(ids[:room]), truncated=max(0, len(ids) - room))
        if "target" in example.values:
            target = text_ids(example.values["target"], example, "target", tokenizer)
            if len(target) >= self.max_target_length:
                self.notes[f"target cut to {self.max_target_length} tokens"] += 1
            if tokenizer.unk_id in target:
                self.notes["target has a word that the vocabulary lacks"] += 1
            kept = [*target[: self.max_target_length - 1], tokenizer.sep_id]
            features.ragged["target_ids"] = np.array(kept, np.int64)
            features.count = len(kept)
        return [features]

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        """Return cross-entropy in nats, summed in float32 over the K tokens of all targets.

        In training with ``label_smoothing`` (sec. 5.4), in evaluation without.
        """
        labels = batch.fields["target_ids"]
        lengths = batch.fields["target_ids_cu_seqlens"].diff()
        targets = pad_sequence([*torch.split(labels, lengths.tolist())], batch_first=True)  # (B, U)
        is_token = torch.arange(targets.shape[1], device=targets.device) < lengths[:, None]
        # to write [7, 8, 9], the decoder reads [CLS] 7 8
        shifted = F.pad(targets[:, :-1], (1, 0), value=self.tokenizer.cls_id)
        logits = self.logits(shifted, self.begin(output))[is_token]  # (B, U, V) -> (K, V)
        return TaskLoss(
            sum=F.cross_entropy(
                logits,
                labels,
                reduction="sum",
                label_smoothing=self.label_smoothing if self.training else 0.0,
            ),
            count=labels.numel(),
            preds=lambda: logits.detach().argmax(-1),
            target=labels,
        )

    def begin(self, output: EncoderOutput) -> DecoderState:
        """Return the decoder's state before the first token of B targets."""
        return self.decoder.start(output.padded(), output.batch.attention_mask)

    def logits(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Return ``(R, U, V)`` float32 scores of what follows each of the next U tokens.

        Args:
            ids: ``(R, U)`` int64 tokens to read.
            state: of the tokens before; takes up these.
        """
        table = self._tied[0].weight
        places = self.positions[state.length : state.length + ids.shape[1]]
        embedded = F.embedding(ids, table) * math.sqrt(table.shape[1]) + places
        hidden = self.decoder(self.dropout(embedded), state)
        return F.linear(hidden, table).float()

    def metrics(self) -> dict[str, Metric]:
        """Return ``accuracy`` of word pieces and ``majority_accuracy``, its baseline."""
        return {"accuracy": Accuracy(), "majority_accuracy": MajorityAccuracy()}

    def derived_metrics(self, values: dict[str, float]) -> dict[str, float]:
        """Return ``perplexity``, the exponential of the loss in nats."""
        return {"perplexity": torch.tensor(values["loss"], dtype=torch.float64).exp().item()}

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        """Return ``{"text": target}`` of each sequence."""
        state = self.begin(output).repeat(self.beam_size)
        device = batch.input_ids.device
        never = torch.from_numpy(self.tokenizer.special_ids).to(device)
        never = never[never != self.tokenizer.sep_id]

        def advance(rows: Tensor, tokens: Tensor) -> Tensor:
            state.reorder(rows)
            scores = self.logits(tokens[:, None], state)[:, -1].log_softmax(-1)  # (R, V)
            return scores.index_fill(1, never, float("-inf"))

        found = beam_search(
            advance,
            texts=len(batch),
            beam_size=self.beam_size,
            max_length=self.max_target_length,
            start_id=self.tokenizer.cls_id,
            end_id=self.tokenizer.sep_id,
            length_penalty=self.length_penalty,
            device=device,
        )
        return [{"text": self.tokenizer.decode(ids)} for ids in found]

    def score_names(self) -> list[str]:
        """Return the names of what :meth:`score` gives."""
        rates = ["char_error_rate", "copy_char_error_rate"]
        return ["exact_match", "majority_exact_match", *rates]

    def score(
        self, examples: Sequence[Example], predictions: Sequence[dict[str, Any]]
    ) -> dict[str, float]:
        """Return the share of texts that are right, the rate of wrong characters, and baselines."""
        found = [prediction["text"] for prediction in predictions]
        sources, targets = (
            [self._as_written(example.values[name]) for example in examples]
            for name in ("source", "target")
        )
        right = sum(text == target for text, target in zip(found, targets, strict=True))
        commonest = Counter(targets).most_common(1)[0][1]
        return {
            "exact_match": right / len(examples),
            "majority_exact_match": commonest / len(examples),
            "char_error_rate": char_error_rate(found, targets).item(),
            "copy_char_error_rate": char_error_rate(sources, targets).item(),
        }

    def _as_written(self, text: str) -> str:
        return self.tokenizer.decode(self.tokenizer.encode(text))
