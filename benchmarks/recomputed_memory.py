"""Memory and time of BERT-Base with recomputed layers, at 256 and 512 tokens.

    OMP_NUM_THREADS=1 python benchmarks/recomputed_memory.py --sequences 4

Each arm is a `bertlab fit` in a process of its own: a few steps of masked LM with dropout, on full
sequences. Memory is the peak of the process (``ru_maxrss``) and what bertlab-gpu estimates of a
step. Time is that of the processor, after the first step, so that other programs count little.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time

from lightning.pytorch import Callback, LightningModule, Trainer

from bertlab.cli.main import main as bertlab
from bertlab_gpu import step_memory
from bertlab_gpu.recomputation import chosen_layers

ARMS = ((256, "0"), (512, "0"), (512, "6"), (512, "9"), (512, "all"))
MEBI = 2**20


class Clock(Callback):
    """Keeps the processor's time at the end of each step."""

    times: list[float] = []  # noqa: RUF012  of the one run of a process

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: object, **__: object
    ) -> None:
        """Note the time."""
        self.times.append(time.process_time())


def main() -> None:
    """Print a table; an arm's own process prints its figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", default="base")
    parser.add_argument("--sequences", type=int, default=4)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--arm", nargs=2, help="of a process of its own: tokens, layers")
    given = parser.parse_args()
    if given.arm is not None:
        measure(given, *given.arm)
        return
    found: dict[tuple[int, str], list[dict[str, float]]] = {arm: [] for arm in ARMS}
    for _ in range(given.rounds):
        for arm in ARMS:
            command = [sys.executable, __file__, *sys.argv[1:], "--arm", str(arm[0]), arm[1]]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            found[arm].append(json.loads(done.stdout.splitlines()[-1]))
            sys.stderr.write(f"{arm}: {found[arm][-1]}\n")
    print("| tokens | layers recomputed | peak, MiB | estimate, MiB | CPU seconds a step |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for (length, layers), rows in found.items():
        best = {key: min(row[key] for row in rows) for key in rows[0]}
        sizes = f"{best['peak'] / MEBI:,.0f} | {best['estimate'] / MEBI:,.0f}"
        print(f"| {length} | {layers} | {sizes} | {best['seconds']:.1f} |", flush=True)


def measure(given: argparse.Namespace, length: str, layers: str) -> None:
    """Train an arm; print its bytes and seconds."""
    estimate, choose = 0.0, step_memory.measure

    def measured(*arguments: object) -> step_memory.StepMemory:
        nonlocal estimate
        found: step_memory.StepMemory = choose(*arguments)  # type: ignore[arg-type]
        which = layers if layers == "all" else int(layers)
        chosen = chosen_layers(which, len(found.layers))  # type: ignore[arg-type]
        estimate = found.of(given.sequences * int(length), chosen)
        return found

    step_memory.measure = measured
    # the sample of the estimate must not be the peak
    step_memory._SAMPLE, step_memory._HARMLESS = 1, 0.0
    with tempfile.TemporaryDirectory() as folder:
        code = bertlab(
            [
                *("fit", "quickstart", "--model.objectives", "[mlm]", "--recompute", layers),
                *("--model.encoder.preset", given.preset, "--data.vocab_size", "8000"),
                *("--model.encoder.max_position_embeddings", "512"),
                *("--model.encoder.hidden_dropout_prob", "0.1"),
                *("--model.encoder.attention_probs_dropout_prob", "0.1"),
                *("--data.max_seq_length", length, "--data.batch_size", str(given.sequences)),
                *("--data.short_sequence_probability", "0", "--data.validation_sequences", "1"),
                *("--trainer.max_steps", str(given.steps), "--trainer.limit_val_batches", "0"),
                *("--trainer.enable_checkpointing", "false", "--trainer.accelerator", "cpu"),
                *("--trainer.callbacks", "[{class_path: __main__.Clock}]", "--say_cost", "false"),
                *("--run_dir", f"{folder}/run"),
            ]
        )
    peak = 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    steps = [after - before for before, after in zip(Clock.times, Clock.times[1:], strict=False)]
    found = {"peak": peak, "estimate": estimate, "seconds": min(steps)}
    print(f"\n{json.dumps(found)}", flush=True)  # on a line of its own
    sys.exit(code)


if __name__ == "__main__":
    main()
