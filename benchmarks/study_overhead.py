"""What a study costs beside its trainings: 20 tiny runs, forked from a warm parent or fresh.

    python -m benchmarks.study_overhead                    # on an idle machine
    python -m benchmarks.study_overhead --runs 4 --steps 20 --only forked

Each run trains BERT-tiny on the English of Python's own help topics. A callback notes how long its
training took, from the first step to the last, evaluations and checkpoints included. The study's
own seconds and CPU seconds (of all its processes) are set against the sum of these.
"""

import argparse
import json
import os
import pydoc_data.topics
import resource
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.training_clock import TRAINING
from bertlab.errors import print_table
from bertlab_studies.execute.local import run_local
from bertlab_studies.execute.warm_parent import FRESH
from bertlab_studies.plan.plan import PlannedRun

CONFIG = """
model: {{encoder: {{name: bert, preset: tiny}}, optimizer: {{learning_rate: 1.0e-3}}}}
data: {{corpus: {corpus}, corpus_format: sentences, vocab_size: 2000, max_seq_length: 128,
       batch_size: 16, validation_fraction: 0.1, validation_sequences: 50, cache_dir: {cache}}}
trainer:
  max_steps: {steps}
  val_check_interval: {steps}
  accelerator: cpu
  callbacks: [{{class_path: benchmarks.training_clock.TrainingClock}}]
"""


@dataclass(frozen=True)
class Cost:
    """What a study took, in seconds.

    Attributes:
        wall: of the study.
        cpu: of all its processes.
        training_wall: the sum of its trainings.
        training_cpu: the same, on the CPU.
    """

    wall: float
    cpu: float
    training_wall: float
    training_cpu: float


def main() -> None:
    """Run the study both ways, print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", choices=("forked", "fresh"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="study-overhead-") as directory:
        place = Path(directory)
        config = write_config(place, given.steps)
        first = PlannedRun("first", "base", "v", 0, arguments(config, 0))
        study_cost([first], place / "first", 1, 1)  # prepares the text, which is no run's own
        rows = []
        for way in ("forked", "fresh") if given.only is None else (given.only,):
            os.environ[FRESH] = "1" if way == "fresh" else "0"
            plan = [
                PlannedRun(f"seed-{seed}", "base", "v", seed, arguments(config, seed))
                for seed in range(1, given.runs + 1)
            ]
            cost = study_cost(plan, place / way, given.workers, given.threads)
            rows.append((way, *figures(cost, given.runs, given.workers)))
    headings = ("", "training", "study", "beside it", "share", "CPU: training", "study", "beside")
    title = f"{given.runs} runs of {given.steps} steps, {given.workers} at a time, seconds"
    print_table(title, rows, headings, figures=len(headings) - 1)


def write_config(place: Path, steps: int) -> Path:
    """Write a corpus and a config; return the config."""
    text = "\n\n".join(
        "\n".join(" ".join(part.split()) for part in topic.split("\n\n"))
        for topic in pydoc_data.topics.topics.values()
    )
    (place / "topics.txt").write_text(text, "utf-8")
    config = place / "tiny.yaml"
    config.write_text(
        CONFIG.format(corpus=place / "topics.txt", cache=place / "cache", steps=steps), "utf-8"
    )
    return config


def arguments(config: Path, seed: int) -> tuple[str, ...]:
    """Return the arguments of a run."""
    return ("--config", str(config), f"--seed_everything={seed}")


def study_cost(plan: list[PlannedRun], study: Path, workers: int, threads: int) -> Cost:
    """Run a plan; return what it took."""
    wall, cpu = time.monotonic(), cpu_seconds()
    summary = run_local(
        plan, study, workers=workers, threads=threads, on_change=lambda change: None
    )
    wall, cpu = time.monotonic() - wall, cpu_seconds() - cpu
    if summary.exit_code:
        raise SystemExit("\n".join(summary.lines(study)))
    trainings = [json.loads((run.directory(study) / TRAINING).read_text()) for run in plan]
    return Cost(wall, cpu, sum(each[0] for each in trainings), sum(each[1] for each in trainings))


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def figures(cost: Cost, runs: int, workers: int) -> list[str]:
    """Return the cells of a way: times shared by the workers, CPU beside the training a run."""
    training = cost.training_wall / workers
    beside = cost.wall - training
    return [
        f"{training:.1f}",
        f"{cost.wall:.1f}",
        f"{beside:.1f}",
        f"{beside / training:.1%}",
        f"{cost.training_cpu:.1f}",
        f"{cost.cpu:.1f}",
        f"{(cost.cpu - cost.training_cpu) / runs:.2f}",
    ]


if __name__ == "__main__":
    main()
