"""The config of a pre-training for a laptop, a GPU or a cluster: size, steps, precision."""

import re
import sys
from dataclasses import replace
from pathlib import Path

from bertlab import BertlabError
from bertlab.extend import build_encoder, say

_PRESETS = ("tiny", "mini", "small", "medium", "base", "large")
_HOUR, _PART = 3600.0, 0.95  # seconds, and what of them is planned
_TOKENS = 20  # of training, for each weight of the layers (Hoffmann et al. 2022)
_FEWEST_STEPS = 100
_EVALUATIONS, _HELD_OUT = 10, 2_000  # of a run, and sequences in each

# values of keys for each place; the cluster's are RoBERTa's (Liu et al. 2019, table 9)
PLACES: dict[str, dict[str, str]] = {
    "laptop": {"learning_rate": "1.0e-3", "warmup_steps": "0.1", "batch_size": "64"},
    "gpu": {"preset": "base", "learning_rate": "1.0e-4"},
    "cluster": {
        "preset": "base", "learning_rate": "7.0e-4", "warmup_steps": "0.06",
        "batch_size": "2048", "max_steps": "125000",
    },
}  # fmt: skip
_MORE = {
    "laptop": "",
    "gpu": """  precision: bf16-mixed

compile: true                 # layers are compiled
""",
    "cluster": """  precision: bf16-mixed
  num_nodes: 2                # machines, each with all its GPUs

compile: true                 # layers are compiled
""",
}


def ask_place() -> str | None:
    """Ask a person where the model will be trained; None where nobody can answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    while True:
        given = input("Train on a laptop, a gpu or a cluster? [laptop] ").strip().lower()
        if (given or "laptop") in PLACES:
            return given or "laptop"


def for_place(text: str, template: Path, place: str | None) -> tuple[str, list[str]]:
    """Return the template for a place, and lines about it.

    Args:
        text: of the template.
        template: its file.
        place: a key of :data:`PLACES`; None: the template as it is.
    """
    if place is None:
        return text, []
    values, said = dict(PLACES[place]), []
    if place == "laptop":
        say("timing a few steps on this machine …", to_errors=True)
        try:
            size, steps, line = largest_size(template, int(values["batch_size"]))
        except BertlabError as error:
            said.append(f"nothing was timed: {error}")
        else:
            values |= {"preset": size, "max_steps": str(steps)}
            values["val_check_interval"] = str(steps // _EVALUATIONS)
            said.append(f"{size}, {steps:,} steps: {line}")
    for key, value in values.items():
        text = _with_value(text, key, value)
    return text.rstrip("\n") + "\n" + _MORE[place], said


def _with_value(text: str, key: str, value: str) -> str:
    """Return a config with another value; the remark behind it stays where it is."""
    found = re.search(rf"(?m)^ +{key}: (\S+ *)", text)
    assert found is not None
    old = found[1]
    new = value.ljust(len(old) - 1) + " " if old.endswith(" ") else value
    return text[: found.start(1)] + new + text[found.end(1) :]


def largest_size(template: Path, batch: int) -> tuple[str, int, str]:
    """Return the largest preset that learns something in an hour here, its steps, and their cost.

    That is, it reads 20 tokens for each weight of its layers; tiny, where none does.
    """
    from bertlab import estimate  # noqa: PLC0415  torch

    found: tuple[str, int, str] | None = None
    for preset in _PRESETS:
        cost = estimate(template, {"model.encoder.preset": preset, "data.batch_size": batch})
        evaluations = _EVALUATIONS * _HELD_OUT * cost.step.evaluation
        steps = _rounded((_PART * _HOUR - evaluations) / cost.step.seconds)
        tokens = steps * batch * cost.step.tokens
        if found is not None and tokens < _TOKENS * _weights_of_layers(preset):
            break
        seconds = steps * cost.step.seconds + evaluations
        found = preset, steps, replace(cost, steps=steps, seconds=seconds).line()
    assert found is not None
    return found


def _rounded(steps: float) -> int:
    """Return a number of two figures: 8,234 -> 8,200; at least 100."""
    whole = max(_FEWEST_STEPS, int(steps))
    return round(whole, 2 - len(str(whole)))


def _weights_of_layers(preset: str) -> int:
    encoder = build_encoder({"name": "bert", "preset": preset}, 10)
    return sum(each.numel() for each in encoder.parameters())
