"""More bugs, one class each; some break further checks as well. ``expects`` as elsewhere."""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences, pack
from bertlab.api.examples import Column, DataSource, Example, Features, Labels
from bertlab.api.rng import CounterRNG
from bertlab.api.task import TaskContext, TaskLoss
from bertlab.api.tokenizer import Tokenizer
from bertlab.encoders.bert import BertEncoder
from bertlab.encoders.bert_form import BertForm
from bertlab.errors import DataError
from bertlab.objectives.language_model import CausalLM
from broken_objectives import Broken
from broken_others import Expects
from good_plugins import (
    GoodEncoder,
    GoodHead,
    GoodMetric,
    GoodObjective,
    GoodSource,
)


class NoSummary(GoodObjective):
    expects: Expects = ("has_a_summary", "NoSummary has no docstring")


def local() -> type:
    class Local(Broken):
        """Stands in a function."""

        expects = ("can_be_imported_by_name", "has no local.<locals>.Local")

    return Local


Local = local()


class WordForTrue(Broken):
    """Says yes instead of True."""

    expects = ("class_attributes_have_their_types", "corrupts_input is 'yes'")
    corrupts_input = "yes"


class HigherForMax(Broken):
    """Says higher instead of max."""

    expects = ("class_attributes_have_their_types", "better is {'loss': 'higher'}")
    better = {"loss": "higher"}  # noqa: RUF012


class LossAsShare(Broken):
    """Takes its loss for a share."""

    expects = ("shares_are_from_0_to_1", "and declared in shares, accuracy, loss")
    shares = ("accuracy", "loss")


class TextForShares(Broken):
    """Gives a name where names are asked for."""

    expects = ("class_attributes_have_their_types", "shares is 'accuracy'")
    shares = "accuracy"


class NeedsArgument(Broken):
    """Has no default.

    Args:
        margin: of something.
    """

    expects = ("arguments_have_defaults", "margin has no default")

    def __init__(self, margin: float) -> None:
        super().__init__()


class NoNumber(Broken):
    """Has a default that JSON lacks.

    Args:
        margin: of something.
    """

    expects = ("config_comes_back", "the config is not plain data")

    def __init__(self, margin: float = float("inf")) -> None:
        super().__init__()


class NeedsCounts(Broken):
    """Cannot do without the training text."""

    expects = ("builds_without_the_data", "AttributeError: 'NoneType'")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        self.most = int(context.token_counts.max())


class OwnSeed(Broken):
    """Draws initial weights elsewhere."""

    expects = ("builds_the_same_from_a_seed", "classifier.bias differs")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        nn.init.constant_(self.classifier.bias, np.random.default_rng().random())


class ResetsTheEncoder(Broken):
    """Writes into the encoder."""

    expects = ("build_leaves_the_encoder_alone", "the encoder's token_embedding.weight")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        nn.init.zeros_(context.encoder.token_embedding.weight)


class ListOfLayers(Broken):
    """Keeps layers in a list."""

    expects = ("layers_are_registered", "heads is a list with a Linear in it")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        self.heads = [nn.Linear(2, 2)]


class PlainTensor(Broken):
    """Keeps a tensor that does not move to the GPU."""

    expects = ("tensors_are_buffers", "table: a tensor as a plain attribute")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        self.table = torch.ones(3)


class ArrayCount(Broken):
    """Returns a NumPy number."""

    expects = ("prepare_returns_a_count", "returns")

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        return np.int64(super().prepare(sequences, rng, training))


class ListField(Broken):
    """Writes a list."""

    expects = ("prepare_writes_arrays", "fields['mine'] is list")

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        sequences.fields["mine"] = [1, 2]
        return super().prepare(sequences, rng, training)


class MovesTextAway(Broken):
    """Moves text from one sequence to another."""

    expects = ("rearranged_text_is_the_same_text", "has other tokens afterwards")
    rearranges_input = True

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        sequences.input_ids[:] = sequences.input_ids[::-1].copy()
        return super().prepare(sequences, rng, training)


class VectorLoss(Broken):
    """Does not sum."""

    expects = ("loss_is_a_finite_scalar", "sum is (1,)")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.sum = loss.sum[None]
        return loss


class KeepsTheGraph(Broken):
    """Gives its logits as predictions."""

    expects = ("predictions_have_targets", "preds has a gradient")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.preds = self.logits(output.tokens[batch.fields["remainder_positions"]])
        return loss


class WritesIntoTheBatch(Broken):
    """Marks what it has seen."""

    expects = ("loss_leaves_the_batch_alone", "input_ids of the batch is changed")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        batch.input_ids.zero_()
        return loss


class CountsItsCalls(Broken):
    """Numbers its predictions."""

    expects = ("decoding_repeats", "differs the second time")

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        self.calls += 1
        return [{"call": self.calls} for _ in range(len(batch))]


class StepsUncounted(Broken):
    """Counts its training steps where no checkpoint finds them."""

    expects = ("resumes_exactly", "is not the same when a run goes on")

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        if self.training:
            self.steps += 1
            loss.sum = loss.sum + loss.sum * self.steps + (output.tokens**2).sum()
        return loss


class Pair(GoodMetric):
    """Gives two numbers."""

    def compute(self) -> Tensor:
        return torch.stack([self.wrong, self.count])


class NotReset(GoodMetric):
    """Counts in a plain attribute."""

    seen = 0

    def update(self, preds: Tensor, target: Tensor) -> None:
        super().update(preds, target)
        self.seen += len(preds)

    def compute(self) -> Tensor:
        return torch.tensor(float(self.seen))


class TwoNumbers(Broken):
    """Has a metric of two numbers."""

    expects = ("metrics_take_the_predictions", "both computes tensor")

    def metrics(self) -> dict[str, Metric]:
        return {"both": Pair()}


class NeverReset(Broken):
    """Has a metric that does not begin anew."""

    expects = ("metrics_begin_anew", "['seen']")

    def metrics(self) -> dict[str, Metric]:
        return {"seen": NotReset()}


class DerivesText(Broken):
    """Derives a word."""

    expects = ("derived_metrics_are_numbers", "derived_metrics()['verdict'] is a str")

    def derived_metrics(self, values: dict[str, float]) -> dict[str, float]:
        return {"verdict": "good"}


class DerivesSometimes(Broken):
    """Derives a metric where it likes."""

    expects = ("evaluates", "the metrics announced are")

    def derived_metrics(self, values: dict[str, float]) -> dict[str, float]:
        return {"odd": 1.0} if values["loss"] != 1.0 else {}


class LooksForMasks(Broken):
    """Takes the masks of another objective for its own."""

    expects = ("works_beside_other_objectives", "beside nsp and mlm, count is")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.count += int((batch.input_ids == 4).sum())
        return loss


class NeedsPairs(Broken):
    """Needs pairs and does not say so."""

    expects = ("every_input_format_works", "KeyError: 'next_sentence_label'")

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        _ = sequences.fields["next_sentence_label"]
        return super().prepare(sequences, rng, training)


class NeedsFourTokens(Broken):
    """Reads the fourth token of every sequence."""

    expects = ("shortest_sequences_work", "IndexError")

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        parts = output.tokens.split(batch.lengths.tolist())
        return [{"fourth": float(part[3].sum())} for part in parts]


class FortyPlaces(Broken):
    """Knows forty positions."""

    expects = ("longest_sequences_work", "IndexError")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        self.places = nn.Embedding(40, context.encoder.hidden_size)

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        output.tokens = output.tokens + self.places(batch.position_ids)
        return super().loss(output, batch)


class MaskAgain(GoodHead):
    """Asks for a token that is there by its role."""

    expects: Expects = ("special_tokens_can_be_added", "special_tokens has '[MASK]'")
    special_tokens = ("[E1]", "[MASK]")


class NoTruth(GoodHead):
    """Declares nothing to predict."""

    expects: Expects = ("columns_are_declared", "none of the columns ['text'] is the truth")
    columns = (Column("text"),)


class OtherLabels(GoodHead):
    """Forgets the labels of the data."""

    expects: Expects = ("keeps_its_labels", "labels is Labels(names=('a',)")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        self.labels = Labels(("a",), (1,))


class NoTypes(GoodHead):
    """Gives too few segment ids."""

    expects: Expects = ("encode_fits_the_encoder", "1 token_type_ids for")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        made = super().encode(row, tokenizer, max_seq_length)
        made[0].token_type_ids = [0]
        return made


class SomeFields(GoodHead):
    """Has a field for some rows."""

    expects: Expects = ("fields_fit_the_batch", "some sequences have the fields ['label']")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        made = super().encode(row, tokenizer, max_seq_length)
        if len(made[0].input_ids) > 8:
            made[0].fields["long"] = 1
        return made


class NumberedLabels(GoodHead):
    """Counts numbers."""

    expects: Expects = ("labels_are_names", "labels_of() gives 0")

    def labels_of(self, row: Example) -> Iterable[str]:
        return [int(row.values["label"])]

    def truth(self, row: Example) -> dict[str, int]:
        return {"label": int(row.values["label"])} if "label" in row.values else {}


class ListPrediction(GoodHead):
    """Makes a list of a row's predictions."""

    expects: Expects = ("merges_to_rows", "merge() returns [")

    def merge(self, row: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return list(parts)


class ComparesWithTruth(GoodHead):
    """Says whether it was right."""

    expects: Expects = ("merges_without_truth", "KeyError: 'label'")

    def merge(self, row: Example, parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        return {"right": parts[0]["label"] == row.values["label"]}


class NumbersOnly(GoodHead):
    """Takes every label for a number."""

    expects: Expects = ("wrong_truth_is_no_traceback", "label = '' raises ValueError")

    def truth(self, row: Example) -> dict[str, int]:
        if "label" not in row.values:
            return {}
        return {"label": int(row.values["label"]) % len(self.classes)}


class ShortWords(GoodHead):
    """Expects no long words."""

    expects: Expects = ("odd_text_is_read", "text = a word of 300 letters raises AssertionError")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        assert all(len(word) < 100 for word in row.values["text"].split())
        return super().encode(row, tokenizer, max_seq_length)


class NeedsTwoClasses(GoodHead):
    """Divides by the number of other classes."""

    expects: Expects = ("one_class_is_no_traceback", "ZeroDivisionError")

    def add_layers(self, context: TaskContext) -> None:
        super().add_layers(context)
        self.share = 1 / (len(self.classes) - 1)


class NamesNoRow(GoodHead):
    """Does not say which row is empty."""

    expects: Expects = ("messages_name_the_row", "is refused with 'text: is empty'")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        if not tokenizer.encode(row.values["text"]):
            raise DataError("text: is empty")
        return super().encode(row, tokenizer, max_seq_length)


class NeedsTwoWords(GoodHead):
    """Looks at the second word."""

    expects: Expects = ("shortest_rows_work", "IndexError")

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        parts = output.tokens.split(batch.lengths.tolist())
        return [{"fourth": float(part[3].sum())} for part in parts]


class FortyPlacesOfHead(GoodHead):
    """Knows forty positions."""

    expects: Expects = ("longest_rows_work", "IndexError")

    def add_layers(self, context: TaskContext) -> None:
        super().add_layers(context)
        self.places = nn.Embedding(40, context.encoder.hidden_size)

    def logits(self, output: EncoderOutput) -> Tensor:
        places = self.places(output.batch.position_ids).mean()
        return super().logits(output) + 0 * places


class SlowEncoding(GoodHead):
    """Takes its time."""

    expects: Expects = ("encode_is_fast", "µs a token, single_sentence's")

    def encode(self, row: Example, tokenizer: Tokenizer, max_seq_length: int) -> list[Features]:
        sum(range(400_000))
        return super().encode(row, tokenizer, max_seq_length)


class CountsDirections(Broken):
    """Writes numbers in place of directions."""

    expects: Expects = ("directions_are_asked_for", "int64")
    requires_encoder: ClassVar[dict[str, Any]] = {"reads_directions": True}

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        sequences.fields["causal"] = sequences.indices % 2
        return super().prepare(sequences, rng, training)


class ForgetsDirections(GoodEncoder):
    """Says that it reads directions, and does not."""

    expects: Expects = ("directions_are_read", "where batch.causal is True, words to the right")
    reads_directions = True

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        return super().attend(hidden, replace(batch, fields={}))


class SumsUpTheFirst(GoodEncoder):
    """Sums up by the first token what is read from the left."""

    expects: Expects = ("directions_are_read", "the last words do not change cls")
    reads_directions = True


class VocabularyLast(GoodEncoder):
    """Takes the vocabulary's size as an option.

    Args:
        hidden_size: width.
        vocab_size: number of ids.
    """

    expects: Expects = ("vocab_size_is_its_first_argument", "['hidden_size', 'vocab_size']")

    def __init__(self, hidden_size: int = 16, vocab_size: int = 300) -> None:
        super().__init__(vocab_size, hidden_size)


class MoreRows(GoodEncoder):
    """Has room for more ids."""

    expects: Expects = ("token_embedding_fits", "token_embedding is (")

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size + 10)


class AlwaysSeedZero(GoodEncoder):
    """Seeds torch."""

    expects: Expects = ("initial_weights_follow_the_seed", "another seed gives the same")

    def __init__(self, vocab_size: int) -> None:
        torch.manual_seed(0)
        super().__init__(vocab_size)


class DoubleStates(GoodEncoder):
    """Computes in float64."""

    expects: Expects = ("shapes_are_right", "torch.float64, expected")

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        output = super().forward(batch, all_layers)
        output.tokens = output.tokens.double()
        return output


class PoolerInside(GoodEncoder):
    """Uses the pooler for all tokens."""

    expects: Expects = ("pooler_is_apart", "tokens depend on pooler.")

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        output = super().forward(batch, all_layers)
        output.tokens = self.pooler(output.tokens)
        return output


class EatsTheBatch(GoodEncoder):
    """Writes into the batch."""

    expects: Expects = ("forward_leaves_the_batch_alone", "input_ids of the batch is changed")

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        output = super().forward(batch, all_layers)
        batch.input_ids.fill_(7)
        return output


class HalfTheLength(GoodEncoder):
    """Promises more positions than it has."""

    expects: Expects = ("every_length_works", "IndexError")

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size)
        self.max_position_embeddings = 128


class LateEncoder(GoodEncoder):
    """Makes a layer when it is first used."""

    expects: Expects = ("state_is_complete_after_init", "late.bias, late.weight")

    def attend(self, hidden: Tensor, batch: PackedBatch) -> Tensor:
        self.late = nn.Linear(16, 16)
        nn.init.eye_(self.late.weight)
        nn.init.zeros_(self.late.bias)
        return self.late(super().attend(hidden, batch))


class AnySize(GoodEncoder):
    """Is wider every time."""

    expects: Expects = ("config_can_make_it_anew", "have different parameters")
    widths: ClassVar[Iterator[int]] = itertools.count(16)

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, next(self.widths))


class Slow(GoodEncoder):
    """Takes its time."""

    expects: Expects = ("forward_is_fast", "for 64 sequences of 24 tokens")

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        sum(range(50_000 if len(batch) < 64 else 20_000_000))
        return super().forward(batch, all_layers)


class Huge(GoodEncoder):
    """Is too large for a test."""

    expects: Expects = ("builds", "million parameters")

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, hidden_size=2000)


class OwnArguments(GoodSource):
    """Takes a folder."""

    expects: Expects = ("is_made_of_name_and_argument", "__init__ takes folder")

    def __init__(self, folder: str) -> None:
        super().__init__(folder, "")


class SourceSetting(GoodSource):
    """Has a setting with the name of the key that names it.

    Args:
        source: a folder.
    """

    expects: Expects = ("is_made_of_name_and_argument", "a setting called source")

    def __init__(self, name: str, argument: str, source: str = "") -> None:
        super().__init__(name, argument, source)


class UntypedSetting(GoodSource):
    """Has a setting of no type."""

    expects: Expects = ("arguments_have_types", "__init__: table has no type")

    def __init__(self, name: str, argument: str, table="texts") -> None:  # type: ignore[no-untyped-def]
        super().__init__(name, argument, table)


class SharedSetting(GoodSource):
    """Keeps its setting on the class.

    Args:
        table: the first word of each text.
    """

    expects: Expects = ("settings_are_those_of_the_object", "changes what this one reads")

    def __init__(self, name: str, argument: str, table: str = "This") -> None:
        DataSource.__init__(self, name, argument)
        type(self).table = table


class Nothing(DataSource):
    """Has neither text nor rows."""

    expects: Expects = ("gives_documents_or_rows", "it gives neither")


class ArrayValues(GoodSource):
    """Gives NumPy numbers."""

    expects: Expects = ("rows_have_columns", "row 1: 'label' is a int64")

    def examples(self, split: str | None) -> Iterator[Mapping[str, Any]]:
        for row in super().examples(split):
            yield {**row, "label": np.int64(1)}


class ShrinkingRows(GoodSource):
    """Gives each row once."""

    expects: Expects = ("rows_repeat", "are others the second time")

    def examples(self, split: str | None) -> Iterator[Mapping[str, Any]]:
        seen = vars(self).setdefault("seen", [])
        for row in super().examples(split):
            if row["text"] not in seen or row["label"] == 0:
                seen.append(row["text"])
                yield row


class NumberedSource(GoodSource):
    """Takes its argument for a number."""

    expects: Expects = ("wrong_argument_is_no_traceback", "raises ValueError")

    def examples(self, split: str | None) -> Iterator[Mapping[str, Any]]:
        _ = int(self.argument or 0)
        return super().examples(split)


class TwoValues(Pair):
    """Gives two numbers."""

    expects: Expects = ("takes_predictions", "compute() gives tensor")


class DividesByZero(GoodMetric):
    """Divides in Python."""

    expects: Expects = ("nothing_seen_is_no_error", "ZeroDivisionError")

    def compute(self) -> Tensor:
        return torch.tensor(int(self.wrong) / int(self.count))


class Shifts(GoodMetric):
    """Shifts what it is given."""

    expects: Expects = ("leaves_its_input_alone", "update() changes its input")

    def update(self, preds: Tensor, target: Tensor) -> None:
        preds += 1
        super().update(preds, target + 1)


class OneTask(GoodMetric):
    """Names its task without a tuple."""

    expects: Expects = ("tasks_are_names", "tasks is 'mlm'")
    tasks = "mlm"


class ReadsMoreThanItSays(GoodObjective):
    """Names half of what its loss reads."""

    expects: Expects = ("tokens_read_are_enough", "loss() without the states")

    def tokens_read(self, batch: PackedBatch) -> Tensor | None:
        return batch.fields["remainder_positions"][::2] if batch.fields else None


class DecodesMoreThanItSays(GoodHead):
    """Reads a token, and says that it reads the summary only."""

    expects: Expects = ("tokens_read_are_enough", "decode() without the states")

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        return batch.input_ids[:0]

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        predictions = super().decode(output, batch)
        seconds = output.tokens[batch.cu_seqlens[:-1].long() + 1, 0].tolist()
        return [{**one, "second": two} for one, two in zip(predictions, seconds, strict=True)]


class MasksWhatItReads(GoodObjective):
    """Gives a mask in place of places."""

    expects: Expects = ("tokens_read_are_enough", "torch.bool")

    def tokens_read(self, batch: PackedBatch) -> Tensor:
        return batch.input_ids > 3


class LeavesOutTooMuch(GoodEncoder):
    """Computes no states but those of the first sequence, where some are named."""

    expects: Expects = ("states_that_are_read_are_right", "where tokens_read is given")

    def forward(self, batch: PackedBatch, all_layers: bool = False) -> EncoderOutput:
        output = super().forward(batch, all_layers)
        if batch.tokens_read is not None:
            output.tokens = output.tokens * (torch.arange(len(output.tokens)) < 12)[:, None]
        return output


class LongerInput(GoodObjective):
    expects: Expects = ("rewritten_input_has_the_same_layout", "makes 16 sequences of")

    def rewrite_input(self, batch: PackedBatch) -> PackedBatch:
        ids = [
            batch.input_ids[a:b].tolist() for a, b in itertools.pairwise(batch.cu_seqlens.tolist())
        ]
        return replace(pack([*ids, *ids]), fields=batch.fields, counts=batch.counts)


class MovesItsWeights(Broken):
    """Changes its layer in the loss, so that a step is never the same twice."""

    expects = ("works_in_a_run", "classifier.weight is moved by more than the")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        if self.training:
            self.classifier.weight.data.mul_(1.01)
        return super().loss(output, batch)


class CountsStepsItself(Broken):
    """Moves its layer by how often it was called, which no checkpoint keeps."""

    expects = ("run_goes_on_without_its_config", "is another after steps 7 to 12")
    calls = 0

    def after_step(self, step: int) -> None:
        self.calls += 1
        self.classifier.weight.mul_(1 + 0.01 * self.calls)


class ShowsTheAnswer(CausalLM):
    """Predicts the tokens that it reads."""

    expects = ("the_answer_is_hidden", "in training, 100% of ")
    requires_causal = None

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        positions = np.flatnonzero(self.classes.countable(sequences))
        return self.write_labels(sequences, positions, sequences.input_ids[positions])


class WrongForm(BertForm):
    """Writes another eps than the encoder's."""

    def config(self, encoder: Any, architecture: str) -> dict[str, Any]:
        return super().config(encoder, architecture) | {"layer_norm_eps": 0.1}


class WrongEps(BertEncoder):
    """Is exported wrongly."""

    expects = ("transformers_gives_the_same", "states of 3 tokens are off by")
    huggingface = (WrongForm(),)

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, "tiny", hidden_size=32, max_position_embeddings=64)


class OtherGelu(BertEncoder):
    """Lets its masked-LM head compute the approximate activation, and exports it as the exact one.

    Near 0, where new weights keep all states, both are the same.
    """

    expects = ("transformers_gives_the_same", "logits of 3 tokens are off by")

    def __init__(self, vocab_size: int) -> None:
        super().__init__(vocab_size, "tiny", hidden_size=32, max_position_embeddings=64)
        self.activation = nn.GELU(approximate="tanh")
