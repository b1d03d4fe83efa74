"""Objectives with one bug each; ``expects`` names the check that is made for it."""

from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from bertlab.api.batch import EncoderOutput, PackedBatch, PackedSequences
from bertlab.api.rng import CounterRNG
from bertlab.api.task import TaskContext, TaskLoss
from bertlab.objectives.classification import classification_loss
from good_plugins import GoodObjective


class Broken(GoodObjective):
    """Has a bug."""

    expects: ClassVar[tuple[str, str]]  # the check, and words of its message


class AbstractOne(Broken):
    """Has no way to predict."""

    expects = ("is_complete", "does not define decode")
    decode = property(fget=GoodObjective.decode)


AbstractOne.__abstractmethods__ = frozenset({"decode"})  # as if decode were not there


class MeanLoss(Broken):
    """Divides by the number of predictions."""

    expects = ("loss_is_a_sum", "that is a mean")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.sum = loss.sum / max(1, loss.count)
        return loss


class CountsSequences(Broken):
    """Counts sequences instead of predictions."""

    expects = ("count_is_as_announced", "count of the loss is 8, prepare() returned")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.count = len(batch)
        return loss


class DrawsByPlace(Broken):
    """Keys its draws by the place in the batch."""

    expects = ("prepare_does_not_depend_on_the_batch", "packed against one by one")

    def draw(self, sequences: PackedSequences, rng: CounterRNG) -> Any:
        return rng.uniform(np.arange(len(sequences.input_ids)))


class DrawsFromNumPy(Broken):
    """Draws from NumPy's global generator."""

    expects = ("prepare_leaves_global_random_numbers_alone", "draws from np.random")

    def draw(self, sequences: PackedSequences, rng: CounterRNG) -> Any:
        return np.random.random(len(sequences.input_ids))  # noqa: NPY002


class DrawsOnAndOn(Broken):
    """Has a generator of its own, which goes on."""

    expects = ("prepare_repeats", "the second time")

    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def draw(self, sequences: PackedSequences, rng: CounterRNG) -> Any:
        return self.generator.random(len(sequences.input_ids))


class UnusedLayer(Broken):
    """Makes a layer that no loss sees."""

    expects = ("gradient_reaches_every_parameter", "no gradient reaches forgotten.weight")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        self.forgotten = nn.Linear(2, 2)


class LateLayer(Broken):
    """Makes a layer when it is first used."""

    expects = ("state_is_complete_after_build", "late.bias, late.weight")

    def logits(self, states: Tensor) -> Tensor:
        if not hasattr(self, "late"):
            self.late = nn.Linear(self.classes, self.classes)
            nn.init.eye_(self.late.weight)
        return self.late(super().logits(states))


class LayersInInit(Broken):
    """Guesses the encoder's width."""

    expects = ("init_makes_no_layers", "__init__ makes the parameters guess.weight")

    def __init__(self) -> None:
        super().__init__()
        self.guess = nn.Linear(16, 3)

    def logits(self, states: Tensor) -> Tensor:
        return super().logits(states) + self.guess(states)


class OverwritesInput(Broken):
    """Masks tokens without saying so."""

    expects = ("corrupts_input_is_true", "but corrupts_input is False")

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        count = super().prepare(sequences, rng, training)
        sequences.input_ids[sequences.fields["remainder_positions"]] = 4
        return count


class ClaimsToOverwrite(Broken):
    """Says that it overwrites the input, and does not."""

    expects = ("corrupts_input_is_true", "no id of")
    corrupts_input = True


class OverwritesSeparators(Broken):
    """Masks special tokens too."""

    expects = ("prepare_leaves_the_layout_alone", "[CLS] and [SEP]")
    corrupts_input = True

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        count = super().prepare(sequences, rng, training)
        sequences.input_ids[sequences.position_ids % 5 == 0] = 4
        return count


class HasLambda(Broken):
    """Keeps a function that cannot be pickled."""

    expects = ("pickles", "pickle refuses the task")

    def __init__(self) -> None:
        super().__init__()
        self.is_chosen = lambda draw: draw < 0.4


class LoopsOverTokens(Broken):
    """Draws for one token at a time."""

    expects = ("prepare_is_fast", "ms for")

    def draw(self, sequences: PackedSequences, rng: CounterRNG) -> Any:
        owner = sequences.sequence_of_token
        keys = (1000 * sequences.epochs + sequences.indices)[owner] * 64 + sequences.position_ids
        return np.array([rng.uniform(key) for key in keys])


class LoopsOverPredictions(Broken):
    """Computes the loss of one prediction at a time."""

    expects = ("loss_has_no_loop", "calls to torch for a batch")

    def logits(self, states: Tensor) -> Tensor:
        rows = [super(LoopsOverPredictions, self).logits(state) for state in states]
        return torch.stack(rows) if rows else super().logits(states)


class SeesTheBatch(Broken):
    """Subtracts the mean of all tokens of the batch."""

    expects = ("loss_does_not_leak", "packed and")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        centered = (output.tokens - output.tokens.mean(0)) * 3
        logits = self.logits(centered[batch.fields["remainder_positions"]])
        return classification_loss(logits, batch.fields["remainder_labels"])


class PredictsFromTheBatch(Broken):
    """Compares predictions with those of the other sequences."""

    expects = ("predictions_do_not_leak", "packed against alone")

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        scores = self.logits(output.cls)[:, 0]
        return [{"above_mean": above} for above in (scores > scores.mean()).tolist()]


class Prints(Broken):
    """Reports its loss."""

    expects = ("prints_nothing", "it prints 'loss ")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        print("loss", loss.sum.item())
        return loss


class CannotHalf(Broken):
    """Mixes dtypes."""

    expects = ("bfloat16_is_close", "RuntimeError")

    def logits(self, states: Tensor) -> Tensor:
        scores = self.classifier(states)
        rows = torch.arange(len(scores), device=scores.device)
        return torch.zeros(scores.shape, device=scores.device).index_add(0, rows, scores)


class UntypedArgument(Broken):
    """Has an argument of no type.

    Args:
        margin: of something.
    """

    expects = ("arguments_have_types", "margin has no type")

    def __init__(self, margin=1.0) -> None:
        super().__init__()
        self.margin = margin


class SecretArgument(Broken):
    """Has an argument that nobody explains."""

    expects = ("arguments_have_help", "margin is not explained")

    def __init__(self, margin: float = 1.0) -> None:
        super().__init__()
        self.margin = margin


class AnyArgument(Broken):
    """Takes anything."""

    expects = ("arguments_have_names", "**settings")

    def __init__(self, **settings: float) -> None:
        super().__init__()
        self.settings = settings


class SharedDefault(Broken):
    """Has a list for a default.

    Args:
        layers: that are read.
    """

    expects = ("defaults_do_not_change", "the default of layers is [1]")

    def __init__(self, layers: list[int] = [1]) -> None:  # noqa: B006
        super().__init__()
        self.layers = layers


class MeanOfNothing(Broken):
    """Multiplies a mean by the count."""

    expects = ("nothing_to_predict_is_zero", "sum is nan")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.sum = loss.sum / loss.count * loss.count
        return loss

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        sequences.corpus_offsets = np.where(sequences.input_ids == 1, -1, sequences.corpus_offsets)
        offsets = sequences.corpus_offsets.copy()
        count = super().prepare(sequences, rng, training)
        sequences.corpus_offsets = offsets
        return count


class MisspeltSetting(Broken):
    """Says what it needs in a word that nobody reads."""

    expects = ("names_are_those_of_the_contract", "requires_pairs is")
    require_pairs = True


class OwnsTheEmbedding(Broken):
    """Registers the encoder's embedding as its own."""

    expects = ("does_not_own_the_encoder", "the optimiser and checkpoints would have it twice")

    def build(self, context: TaskContext) -> None:
        super().build(context)
        self.table = context.encoder.token_embedding

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.sum = loss.sum + 0.01 * (self.table(batch.input_ids) ** 2).sum()
        return loss


class PoolerIsFrozen(Broken):
    """Reads the pooled output and denies it."""

    expects = ("uses_pooled_is_true", "uses_pooled is False, but loss() reads")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        loss.sum = loss.sum + (output.pooled**2).sum()
        return loss


class LearnsAlone(Broken):
    """Cuts the gradient."""

    expects = ("gradient_reaches_the_encoder", "of the encoder")

    def logits(self, states: Tensor) -> Tensor:
        return super().logits(states.detach())


class RunningMean(Broken):
    """Keeps a running mean outside the state_dict."""

    expects = ("saved_and_restored_is_the_same", "after the state was restored")

    def __init__(self) -> None:
        super().__init__()
        self.seen = 1.0

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        if self.training:
            self.seen = 0.9 * self.seen + 0.1 * (loss.sum / max(1, loss.count)).item()
        loss.sum = loss.sum * self.seen
        return loss


class OtherFields(Broken):
    """Replaces what the sampler wrote."""

    expects = ("prepare_leaves_other_fields_alone", "fields['next_sentence_label']")

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        sequences.fields["next_sentence_label"] = np.zeros(len(sequences.indices), np.int64)
        return super().prepare(sequences, rng, training)


class WrongDirection(Broken):
    """Climbs instead of descending."""

    expects = ("learns", "after 100 steps")

    def loss(self, output: EncoderOutput, batch: PackedBatch) -> TaskLoss:
        loss = super().loss(output, batch)
        backwards = 2 * loss.sum.detach() - loss.sum
        loss.sum = backwards
        return loss


class NeedsTwoSequences(Broken):
    """Squeezes away a batch of one."""

    expects = ("one_sequence_works", "IndexError")

    def decode(self, output: EncoderOutput, batch: PackedBatch) -> list[dict[str, Any]]:
        best = self.logits(output.cls).squeeze(0).argmax(-1)
        return [{"remainder": best[place].item()} for place in range(len(batch))]


class StaysOnTheCPU(Broken):
    """Names no device."""

    expects = ("keeps_to_the_device", "what torch.ones(…) made")

    def logits(self, states: Tensor) -> Tensor:
        return super().logits(states) * torch.ones(3).cumsum(0)


class WrongSignature(Broken):
    """Takes its arguments in a form of its own."""

    expects = ("methods_take_what_they_are_given", "prepare(self, sequences)")

    def prepare(self, sequences: PackedSequences) -> int:
        return 0


class DropsFields(Broken):
    """Leaves others without their labels where it rewrites the input."""

    expects = ("works_beside_other_objectives", "KeyError: 'next_sentence_label'")
    corrupts_input = True

    def rewrite_input(self, batch: PackedBatch) -> PackedBatch:
        ids = batch.input_ids.masked_fill(batch.position_ids == 1, 5)
        own = {name: value for name, value in batch.fields.items() if name.startswith("remainder")}
        return replace(batch, input_ids=ids, fields=own)


class ComparesNothing(Broken):
    """Refuses accumulation for no reason."""

    expects = ("compares_sequences_is_true", "but compares_sequences is True")
    compares_sequences = True


class AsksNobody(Broken):
    """Writes directions that most encoders do not read."""

    expects = ("directions_are_asked_for", "which most encoders do not read")

    def prepare(self, sequences: PackedSequences, rng: CounterRNG, training: bool) -> int:
        sequences.fields["causal"] = sequences.indices % 2 == 0
        return super().prepare(sequences, rng, training)
