"""Flip bits in weights, gradients and moments of a small pre-training; count what is found.

Each flip is of a random bit of a random number at a random step, of a run that has done 500 steps.
60 steps later the run's loss on held-out text is compared with that of the undisturbed run. A flip
that was not found is harmless if the loss differs by less than two deviations of what another
seed of dropout makes of it.

    python benchmarks/bit_flips.py --flips 1000 --watch 50
    python benchmarks/bit_flips.py --cost -- --model.encoder.hidden_size 128 --data.batch_size 32

``--cost`` measures what looking takes of a process' time, instead; arguments of ``fit`` follow.
"""

import argparse
import collections
import contextlib
import math
import pydoc_data.topics
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch

from bertlab.api.batch import PackedBatch
from bertlab.api.rng import CounterRNG
from bertlab.config.merge import read_request
from bertlab.training.cli import open_command
from bertlab_guard.corruption import StepAudit, Steps, _Copy, bit_sums
from bertlab_guard.errors import CorruptionError

BEGIN, AFTER, SEEDS = 500, 60, 12
CONFIG = """
seed_everything: 3
model:
  encoder: {name: bert, preset: tiny, hidden_size: 32, num_attention_heads: 2,
            max_position_embeddings: 64}
  objectives: [mlm, nsp]
  optimizer: {learning_rate: 1.0e-3}
data: {corpus: CORPUS, corpus_format: sentences, vocab_size: 300, max_seq_length: 32, batch_size: 8,
       validation_fraction: 0.2, validation_sequences: 20}
trainer: {max_steps: 2000, accelerator: cpu, enable_progress_bar: false}
"""


Kept = dict[str, torch.Tensor]


class Run:
    """A run whose steps are taken here, one by one, as the Trainer takes them."""

    def __init__(self, folder: Path, more: list[str]) -> None:
        topics = pydoc_data.topics.topics
        documents = [
            "\n".join(" ".join(part.split()) for part in topics[name].split("\n\n") if part.strip())
            for name in sorted(topics)[:40]
        ]
        (folder / "corpus.txt").write_text("\n\n".join(documents), "utf-8")
        text = CONFIG.replace("CORPUS", str(folder / "corpus.txt"))
        (folder / "config.yaml").write_text(text, "utf-8")
        arguments = ["--config", str(folder / "config.yaml"), "--run_dir", str(folder / "run")]
        arguments += more
        session = open_command("fit", read_request(arguments))
        self.module, self.data, trainer = session.model, session.datamodule, session.trainer
        self.module.trainer = self.data.trainer = trainer
        self.data.train_dataloader()
        self.optimizer = torch.optim.AdamW(self.module.parameters(), lr=1e-3, fused=True)
        self.steps = Steps(self.module, self.optimizer, self.losses, self.clip)
        self.held_out = [batch for step in self.data.val_dataloader().loader for batch in step]
        self.module.train()
        self.undisturbed: tuple[Kept, float] | None = None  # after the last flip's step, at the end

    def loss(self, batch: PackedBatch) -> torch.Tensor:
        """Return the loss of a micro-batch."""
        return self.module.scaled_loss(self.module.shares(batch))

    def losses(self, step: int) -> Iterator[torch.Tensor]:
        """Yield the loss of each micro-batch of a step, with its dropout."""
        for part, batch in enumerate(self.data.training_steps[step]):
            self.module.seed_draws(step, part)
            yield self.loss(batch)

    def clip(self) -> bool:
        """Clip as the module does."""
        return bool(self.module.clip(self.optimizer, 1.0, None).isfinite())

    def take(self, step: int, audit: StepAudit | None, flip: "Flip | None" = None) -> float:
        """Take a step; ``flip`` disturbs it at the moment for which it is made."""
        if audit is not None:
            audit.begin(step)
        self.optimizer.zero_grad()
        if flip is not None and flip.kind != "gradient":
            flip.strike(self)
        total = 0.0
        for loss in self.losses(step):
            loss.backward()
            total += float(loss.detach())
        if flip is not None and flip.kind == "gradient":
            flip.strike(self)
        if audit is not None:
            audit.before_update(step)
        if not self.clip():
            raise FloatingPointError("a gradient that is not finite: error E601")
        self.optimizer.step()
        if audit is not None:
            audit.end(step, total)
        return total

    def score(self) -> float:
        """Return the loss on held-out text."""
        self.module.eval()
        with torch.no_grad():
            found = statistics.fmean(float(self.loss(each)) for each in self.held_out)
        self.module.train()
        return found

    def keep(self) -> Kept:
        """Return copies of weights and moments."""
        return {name: each.clone() for name, each in self.steps.tensors()}

    def put_back(self, kept: Kept) -> None:
        """Go back to what was kept."""
        for name, each in self.steps.tensors():
            each.copy_(kept[name])


class Flip:
    """One bit of one number."""

    def __init__(self, run: Run, rng: random.Random) -> None:
        self.kind = rng.choice(["weight", "gradient", "first moment", "second moment"])
        self.bit, self.at = rng.randrange(32), rng.uniform(0, 1)
        self.step = BEGIN + 1 + rng.randrange(12)

    def strike(self, run: Run) -> None:
        """Flip it."""
        tensors = []
        for weight in run.module.parameters():
            state = run.optimizer.state.get(weight, {})
            tensor = {
                "weight": weight.data,
                "gradient": weight.grad,
                "first moment": state.get("exp_avg"),
                "second moment": state.get("exp_avg_sq"),
            }[self.kind]
            tensors += [] if tensor is None else [tensor]
        place = int(self.at * sum(each.numel() for each in tensors))
        for each in tensors:
            if place < each.numel():
                words = each.view(-1).numpy().view(np.uint32)
                words[place] ^= np.uint32(1 << self.bit)
                return
            place -= each.numel()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--flips", type=int, default=1000)
    parser.add_argument("--every", type=int, default=500, help="check_every")
    parser.add_argument("--watch", type=int, default=None, help="steps between two sums; adaptive")
    parser.add_argument("--cost", action="store_true", help="measure time")
    parser.add_argument("more", nargs="*", help="arguments of bertlab fit")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Run(Path(folder), given.more)
        (cost if given.cost else measure)(run, given)


def cost(run: Run, given: argparse.Namespace) -> None:
    """Print the time of a step, of computing one again, and of sums and leaps."""
    audit = StepAudit(run.steps, given.every)
    for step in range(10):
        run.take(step, None)
    run.optimizer.zero_grad()
    plain, again, sums = [], [], []
    for step in range(given.every, given.every + 15):
        started = time.process_time()
        run.take(step, None)
        plain.append(time.process_time() - started)
        started = time.process_time()
        tensors = {name: each.clone() for name, each in run.steps.tensors()}
        audit._copy = _Copy(step, tensors)
        audit._rates = {step: [1e-3]}
        again.append(time.process_time() - started)
        run.take(step, None)  # what is computed again, from the state that was copied
        started = time.process_time()
        audit.is_deterministic = True
        with contextlib.suppress(CorruptionError):
            audit._compare(audit._copy, step)
        again[-1] += time.process_time() - started
        started = time.process_time()
        bit_sums(run.steps)
        bit_sums(run.steps)
        sums.append(time.process_time() - started)
    step, one, two = (statistics.median(each) * 1e3 for each in (plain, again, sums))
    weights = sum(each.numel() for each in run.module.parameters())
    watch = math.ceil(two / step / 0.005)
    share = 100 * (one / given.every + two / watch) / step
    print(
        f"{weights:,} weights: a step {step:.1f} ms; a copy, the step once more and comparing "
        f"{one:.1f} ms every {given.every} steps; sums {two:.2f} ms every {watch} steps: "
        f"{share:.2f} % of the time"
    )


def measure(run: Run, given: argparse.Namespace) -> None:
    """Flip, count and print."""
    warm = StepAudit(run.steps, 10**9)
    for step in range(BEGIN):
        run.take(step, warm)
    start = run.keep()
    clean = _end(run, None, start, None)
    others, draws = [], run.module.draws
    for seed in range(SEEDS):
        run.module.draws = CounterRNG(100 + seed, "draws")
        others.append(_end(run, None, start, None))
    run.module.draws = draws
    tolerance = 2 * statistics.stdev(others)
    print(f"held-out loss {clean:.4f}; harmless: within {tolerance:.4f} of it")
    print(f"sums over bits every {given.watch or warm.watch_every} steps")
    rng = random.Random(5)  # noqa: S311  which bits, no secret
    counts: dict[str, collections.Counter] = collections.defaultdict(collections.Counter)
    worst: list[tuple[float, str, int]] = []
    for _ in range(given.flips):
        flip = Flip(run, rng)
        audit = StepAudit(run.steps, given.every)
        audit._losses.extend(warm._losses)
        audit.watch_every = given.watch or warm.watch_every
        fixed = given.watch is not None
        outcome = _outcome(run, audit, start, flip, (clean, tolerance), worst, fixed)
        counts[flip.kind][outcome] += 1
    for kind, found in sorted(counts.items()):
        print(kind, dict(found.most_common()))
    total = sum(counts.values(), collections.Counter())
    print("all", dict(total.most_common()))
    for line in sorted(worst, reverse=True)[:12]:
        print("not found, loss differs by", *line)


def _outcome(
    run: Run,
    audit: StepAudit,
    start: Kept,
    flip: Flip,
    clean: tuple[float, float],
    worst: list[tuple[float, str, int]],
    fixed: bool,
) -> str:
    try:
        found = _end(run, audit, start, flip, fixed)
    except CorruptionError as error:
        return "found by sums" if "changed in memory" in str(error) else "found by computing again"
    except FloatingPointError:
        return "found by E601"
    difference = abs(found - clean[0])
    if difference < clean[1]:
        return "harmless, to the bit" if difference == 0 else "harmless"
    worst.append((difference if math.isfinite(difference) else math.inf, flip.kind, flip.bit))
    return "not found, not harmless"


def _is_clean(run: Run, kept: Kept) -> bool:
    """Whether weights and moments are those of the undisturbed run."""
    return all(torch.equal(each, kept[name]) for name, each in run.steps.tensors())


def _end(
    run: Run, audit: StepAudit | None, start: Kept, flip: Flip | None, fixed: bool = False
) -> float:
    run.put_back(start)
    for step in range(BEGIN, BEGIN + AFTER):
        watch = None if audit is None else audit.watch_every
        run.take(step, audit, flip if flip is not None and flip.step == step else None)
        if fixed and audit is not None:
            audit.watch_every = watch
        if step == BEGIN + 13:  # every flip is before
            if flip is None and audit is None and run.undisturbed is None:
                run.undisturbed = run.keep(), math.nan
            elif flip is not None and run.undisturbed and _is_clean(run, run.undisturbed[0]):
                return run.undisturbed[1]
    if run.undisturbed is not None and math.isnan(run.undisturbed[1]):
        run.undisturbed = run.undisturbed[0], run.score()
    return run.score()


if __name__ == "__main__":
    main()
