"""From stateless samples to the batches of each optimiser step, and a report of what they hold."""

import contextlib
import signal
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from dataclasses import asdict, dataclass
from types import FrameType
from typing import Protocol, cast

import numpy as np
from torch.utils.data import Dataset, Sampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from bertlab.api.batch import IntArray, PackedBatch, PackedSequences, TokenLabels
from bertlab.api.rng import CounterRNG
from bertlab.api.task import Objective
from bertlab.data.corpus.store import StoreReport, TokenStore
from bertlab.data.run_length import StepSizes
from bertlab.data.sampler import SegmentPairsSampler, SequenceSampler
from bertlab.errors import CorpusError, LostProcessError, PluginError
from bertlab.files import explain_vanished_folder, write_json
from bertlab.objectives.changing import ChangingNumber, whole_at
from bertlab.objectives.masking import MaskingRecipe, TokenClasses, dynamic_draws, mask_tokens

FinishBatch = Callable[[PackedBatch], PackedBatch]


class Stream(Protocol):
    """An endless stream of sequences; each position always holds the same sequence."""

    def __len__(self) -> int:
        """Positions in an epoch."""

    def batch(self, positions: IntArray) -> tuple[PackedBatch, dict[str, int]]:
        """Return the batch of ``positions`` ``(k,)``, and its number of predictions by task."""

    def describe(self, positions: IntArray) -> str:
        """Return words by which a person finds the sequences at ``positions`` ``(k,)`` again."""


class TrainingSteps(Dataset[list[PackedBatch]]):
    """The micro-batches of each optimiser step of a run, found by its number."""

    @abstractmethod
    def describe(self, step: int) -> str:
        """Return words by which a person finds the data of a step again."""

    @abstractmethod
    def first(self, count: int) -> PackedBatch:
        """Return at most ``count`` sequences of the first step."""


@dataclass
class SequenceStream:
    """An endless stream of labelled sequences; the g-th is a pure function of the seeds and g."""

    sampler: SequenceSampler  # makes text, pairs, layout and lengths
    objectives: Mapping[str, Objective]  # label and corrupt what the sampler made, by config name
    seed: int  # of the objectives' draws
    training: bool  # False freezes the stream at epoch 0 and asks for evaluation labels
    steps: StepSizes | None = None  # which of the positions each step has; None in evaluation
    length: ChangingNumber | None = None  # longest sequence, if it changes over the run

    def __len__(self) -> int:
        """Sequences in an epoch."""
        return len(self.sampler)

    def batch(self, positions: IntArray) -> tuple[PackedBatch, dict[str, int]]:
        """Return the sequences at stream ``positions`` ``(B,)``, and the predictions by task."""
        # of 100 sequences, position 250 -> epoch 2, index 50
        epochs, indices = np.divmod(positions, len(self.sampler))
        # steps of 8 sequences: positions 16 to 23, of whichever device or worker, are step 2
        progress = None if self.steps is None else self.steps.progress(int(positions[0]))
        length = None if self.length is None else whole_at(self.length, progress)
        sequences = self.sampler.sample(epochs, indices, length)
        sequences.progress = progress
        prepare_sequences(sequences, self.objectives, self.seed, self.training)
        return sequences.to_batch(), sequences.counts

    def describe(self, positions: IntArray) -> str:
        """Return the sequences' numbers in their epoch, which with the seeds determine them."""
        epochs, indices = np.divmod(positions, len(self.sampler))
        first, last = f"{indices[0]} (epoch {epochs[0]})", f"{indices[-1]} (epoch {epochs[-1]})"
        order = self.sampler.rng.seed
        masks = "" if self.seed == order else f", masks of seed {self.seed}"
        return f"sequences {first} to {last} of seed {order}{masks}"


def after_required(names: Iterable[str], objectives: Mapping[str, Objective]) -> list[str]:
    """Return the names in their order, but each objective after those that it requires."""
    ordered: dict[str, None] = {}  # as a set that keeps its order

    def add(name: str) -> None:
        for each in objectives[name].requires if name in objectives else ():
            if each in objectives:
                add(each)
        ordered.setdefault(name)

    # [sbo, nsp, mlm], sbo requires mlm -> [mlm, sbo, nsp]
    for name in names:
        add(name)
    return list(ordered)


def preparation_order(objectives: Mapping[str, Objective]) -> list[str]:
    """Return the names in the order in which a batch is prepared, whatever the config's is.

    Text is moved first and overwritten last: all others see the words that the corpus has, but
    for those that require the one which overwrites.
    """

    def rank(name: str) -> int:
        objective = objectives[name]
        own = 2 if objective.corrupts_input else 0 if objective.rearranges_input else 1
        return max([own, *(rank(each) for each in objective.requires if each in objectives)])

    return after_required(sorted(objectives, key=rank), objectives)


def prepare_sequences(
    sequences: PackedSequences, objectives: Mapping[str, Objective], seed: int, training: bool
) -> None:
    """Let objectives, by config name, label (and corrupt) a batch, in ``preparation_order``."""
    writers: dict[str, str] = {}  # of the fields
    for name in preparation_order(objectives):
        objective, before = objectives[name], dict(sequences.fields)
        rng = CounterRNG(seed, f"objective/{name}")
        sequences.counts[name] = objective.prepare(sequences, rng, training)
        for field in (key for key, each in sequences.fields.items() if each is not before.get(key)):
            writer = writers.setdefault(field, name)
            if writer not in (name, *objective.requires):
                told = f"objective {name!r} replaces the field {field!r}, which {writer!r} wrote"
                raise PluginError(f"{told}; a field of its own needs another name")


@dataclass
class StepDataset(TrainingSteps):
    """Maps an optimiser step to the micro-batches that one device accumulates for it."""

    stream: Stream
    steps: StepSizes  # positions of each optimiser step, over all devices and accumulated batches
    accumulate: int = 1  # micro-batches of a device in a step
    rank: int = 0  # this device, below world_size
    world_size: int = 1
    length: int | None = None  # positions to stop after; None for an endless stream
    # None: steps go on into the next epoch; else an epoch has so many, equal but for one position
    steps_per_epoch: int | None = None
    finish: FinishBatch | None = None  # makes of each batch what is handed over

    def __getitem__(self, step: int) -> list[PackedBatch]:
        """Return the micro-batches of an optimiser step; each counts the predictions of all."""
        # positions 0 to 7, 2 devices, accumulate 2 -> parts [0 1] [2 3] | [4 5] [6 7]
        parts = np.array_split(self.positions(step), self.world_size * self.accumulate)
        mine = parts[self.rank * self.accumulate : (self.rank + 1) * self.accumulate]
        made = [self.stream.batch(part) for part in mine if len(part)]
        names = made[0][1] if made else ()
        window = {name: sum(counts[name] for _, counts in made) for name in names}
        for batch, _ in made:
            batch.window_counts = window
        batches = [batch for batch, _ in made]
        return batches if self.finish is None else [self.finish(each) for each in batches]

    def positions(self, step: int) -> IntArray:
        """Return the stream positions of an optimiser step, over all devices."""
        if self.steps_per_epoch is not None:
            epoch, step = divmod(step, self.steps_per_epoch)
            size, steps = len(self.stream), self.steps_per_epoch  # 10, 3 -> steps of 3, 3 and 4
            return epoch * size + np.arange(step * size // steps, (step + 1) * size // steps)
        start, stop = self.steps.span(step)
        return np.arange(start, stop if self.length is None else min(stop, self.length))

    def describe(self, step: int) -> str:
        """Return words by which a person finds the data of a step again."""
        return self.stream.describe(self.positions(step))

    def first(self, count: int) -> PackedBatch:
        """Return at most ``count`` sequences of the first step."""
        batch, counts = self.stream.batch(self.positions(0)[:count])
        batch.window_counts = counts
        return batch


class StepSampler(Sampler[int]):
    """Yields the optimiser steps of the current epoch that are still to be done.

    ``steps_done`` returns those that the run has done. It is asked when an epoch starts, so that a
    resumed run goes on in the middle of an epoch.
    """

    def __init__(
        self, steps_per_epoch: int, steps_done: Callable[[], int], limit: int | None = None
    ) -> None:
        self.steps_per_epoch = steps_per_epoch  # of which Lightning itself takes a share
        self.steps_done = steps_done
        self.limit = limit or steps_per_epoch  # steps after which an epoch ends

    def __iter__(self) -> Iterator[int]:
        done = self.steps_done()
        yield from range(done, (done // self.limit + 1) * self.limit)

    def __len__(self) -> int:
        return self.steps_per_epoch


def outlive_sigterm(worker: int) -> None:
    """Let a data worker go on for half a minute after a SIGTERM.

    Schedulers send it to all processes at once, and the one that trains has a step to finish and a
    checkpoint to write.
    """
    del worker
    if hasattr(signal, "alarm"):
        signal.signal(signal.SIGTERM, _die_later)
        # _sigterm_held blocked it before this worker started
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])


@contextlib.contextmanager
def _sigterm_held() -> Iterator[None]:
    """Hold a SIGTERM back here, and in workers started here until they can outlive it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _die_later(number: int, frame: FrameType | None) -> None:
    del number, frame
    signal.alarm(30)  # seconds to save; then the process ends, as nothing handles SIGALRM


class StepLoader:
    """Iterates over the micro-batches of one epoch, built a whole optimiser step at a time."""

    def __init__(self, loader: Iterable[list[PackedBatch]], batches_per_step: int) -> None:
        self.loader = loader
        self.batches_per_step = batches_per_step

    def __iter__(self) -> Iterator[PackedBatch]:
        with _sigterm_held():
            steps = iter(self.loader)  # starts the workers
        workers = isinstance(steps, _MultiProcessingDataLoaderIter)
        try:
            batches = self._next(steps)
            while batches is not None:
                # who stops at the last batch leaves no workers waiting: they end here
                following = self._next(steps) if workers else None
                yield from batches
                batches = following if workers else self._next(steps)
        finally:  # an error holds on to them; a collector closes their pipes first and waits 10 s
            if isinstance(steps, _MultiProcessingDataLoaderIter):
                steps._shutdown_workers()

    def _next(self, steps: Iterator[list[PackedBatch]]) -> list[PackedBatch] | None:
        """Return the next step's micro-batches, None at the end."""
        try:
            return next(steps, None)
        # a worker went while it handed over a batch; at another moment PyTorch says so itself
        except (ConnectionError, EOFError) as error:
            said = str(error) or "its pipe is closed"
            raised_there = "in DataLoader worker process" in said
            if raised_there or not isinstance(steps, _MultiProcessingDataLoaderIter):
                raise
            raise LostProcessError(f"a data worker is gone ({said})") from error

    def __len__(self) -> int:
        return len(cast("Sized", self.loader)) * self.batches_per_step

    def state_dict(self) -> dict[str, int]:
        """Return nothing: the place in the stream follows from the number of optimiser steps."""
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Do nothing; tells Lightning that this loader resumes in the middle of an epoch."""


REPORT_SEQUENCES = 2000


@dataclass(frozen=True)
class SamplingReport:
    """Figures of the first sequences of the training stream."""

    sequences: int  # that were looked at
    sequences_per_epoch: int  # one pass over the training text
    documents_too_short: int  # the input format leaves them out
    mean_length: float  # in tokens, special tokens included
    padding_avoided: float  # share of tokens if every sequence were padded to max_seq_length
    next_sentence_share: float | None = None  # of pairs whose B follows A (paper: 50 %)
    selected_share: float | None = None  # of the text's tokens, to be predicted (paper: 15 %)
    masked_share: float | None = None  # of these, that became [MASK] (paper: 80 %)
    random_share: float | None = None  # that became another token (paper: 10 %)
    kept_share: float | None = None  # that stayed (paper: 10 %)

    def rows(self) -> list[tuple[str, str]]:
        """Return name and figure of each line to print."""
        lines = [
            ("sequences in an epoch", f"{self.sequences_per_epoch:,}"),
            ("documents too short, left out", f"{self.documents_too_short:,}"),
            ("mean length in tokens", f"{self.mean_length:.1f}"),
            ("padding avoided", f"{self.padding_avoided:.1%}"),
        ]
        if self.next_sentence_share is not None:
            lines.append(("pairs where B follows A", f"{self.next_sentence_share:.1%}"))
        if self.selected_share is not None:
            lines += [
                ("tokens to predict", f"{self.selected_share:.2%}"),
                (
                    "of these [MASK] / random / kept",
                    f"{self.masked_share:.1%} / {self.random_share:.1%} / {self.kept_share:.1%}",
                ),
            ]
        return lines


def report_sampling(
    sampler: SequenceSampler, objectives: Mapping[str, Objective], mask_id: int, seed: int
) -> SamplingReport:
    """Sample the first sequences of epoch 0 as training will, and count."""
    sequences = _first_sequences(sampler)
    prepare_sequences(sequences, objectives, seed, training=True)
    masked = sequences.token_labels("mlm") if "mlm" in objectives else None
    return _count(sequences, sampler, masked, mask_id)


def report_store(store: TokenStore, max_seq_length: int) -> list[tuple[str, str]]:
    """Return the data report of a store: name and figure of each line to print.

    What BERT's sampling makes of the store is written beside it, as ``sampling.json``.
    """
    with explain_vanished_folder(store.path):
        report = StoreReport.read(store.path)
        rows = report.rows()
        try:
            sampling = report_pretraining(store, max_seq_length)
        except CorpusError as error:  # the store is good for other input formats
            return [*rows, ("BERT's sampling", f"not possible: {error}")]
        write_json(store.path / "sampling.json", asdict(sampling))
        return [*rows, *sampling.rows()]


def paper_sampler(store: TokenStore, max_seq_length: int, seed: int) -> SequenceSampler:
    """Return the paper's sampling (app. A.2) over all documents of a store."""
    short = 0.1  # create_pretraining_data.py of google-research/bert
    rng = CounterRNG(seed, "sampler")
    documents = np.arange(len(store))
    return SegmentPairsSampler(store, store.tokenizer, documents, max_seq_length, short, rng)


def report_pretraining(store: TokenStore, max_seq_length: int) -> SamplingReport:
    """Count the results of the paper's sampling and masking on a whole store, with seed 0."""
    tokenizer = store.tokenizer
    sampler = paper_sampler(store, max_seq_length, seed=0)
    sequences = _first_sequences(sampler)
    draws = dynamic_draws(sequences, CounterRNG(0, "objective/mlm"))
    positions, labels = mask_tokens(sequences, MaskingRecipe(), TokenClasses.of(tokenizer), draws)
    return _count(sequences, sampler, TokenLabels(positions, labels), tokenizer.mask_id)


def _first_sequences(sampler: SequenceSampler) -> PackedSequences:
    indices = np.arange(min(REPORT_SEQUENCES, len(sampler)))
    return sampler.sample(np.zeros_like(indices), indices)


def _count(
    sequences: PackedSequences,
    sampler: SequenceSampler,
    masked: TokenLabels[IntArray] | None,
    mask_id: int,
) -> SamplingReport:
    size = len(sequences.indices)
    labels = sequences.fields.get("next_sentence_label")
    shares: dict[str, float] = {}
    if masked is not None and len(masked.positions):
        before, after = masked.labels, sequences.input_ids[masked.positions]
        # a random token that happens to be the original counts as kept
        became_mask, kept = float((after == mask_id).mean()), float((after == before).mean())
        shares = {
            # special tokens have the offset -1
            "selected_share": len(masked.positions) / int((sequences.corpus_offsets >= 0).sum()),
            "masked_share": became_mask,
            "random_share": 1 - became_mask - kept,
            "kept_share": kept,
        }
    return SamplingReport(
        sequences=size,
        sequences_per_epoch=len(sampler),
        documents_too_short=sampler.documents_too_short,
        mean_length=float(sequences.lengths.mean()),
        padding_avoided=1 - len(sequences.input_ids) / (size * sampler.max_seq_length),
        next_sentence_share=None if labels is None else float((labels == 0).mean()),
        **shares,
    )
