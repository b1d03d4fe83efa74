"""Lightning's part of a checkpoint (loops, optimiser, schedule): is it what a run writes?

A checkpoint may be damaged, or a stranger's. What torch and Lightning would take without a look,
or end in a crash of, is refused by name before the first step.
"""

import contextlib
import math
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from torch import Tensor
from torch.optim import Optimizer

from bertlab.errors import CheckpointError, ConfigError, DamagedCheckpointError, mistake_in, told
from bertlab.model.optimizer import ENTRIES


def is_of_type(found: Any, expected: Any) -> bool:  # noqa: ANN401  a type form
    """Whether a stored value is of a type such as ``dict[str, list[int]]``; a bool is no int."""
    kind: Any = (int, float) if expected is float else get_origin(expected) or expected
    if isinstance(found, bool) or not isinstance(found, kind):
        return isinstance(found, bool) and kind in (bool, object)
    members = get_args(expected)
    # of dict[K, V] pairs (key, value), of list[V] (each,)
    parts = found.items() if isinstance(found, dict) else zip(found if members else ())
    return all(is_of_type(*pair) for part in parts for pair in zip(part, members, strict=False))


def kinds_of_training_state(content: Mapping[str, Any]) -> dict[str, bool]:
    """Return, by key of a checkpoint, whether its part is of the kind that a run writes.

    A checkpoint of weights alone has none of these parts.
    """
    states, loops = content.get("optimizer_states", [{}]), content.get("loops", {})
    is_one = is_of_type(states, list[dict[str, object]]) and len(states) == 1
    groups = states[0].get("param_groups", []) if is_one else None
    return {
        "epoch": _is_count(content.get("epoch", 0)),
        "loops": is_of_type(loops, dict[str, dict[object, object]])
        and all(map(_are_counts, loops.values())),
        "callbacks": is_of_type(content.get("callbacks", {}), dict[str, dict[object, object]]),
        "optimizer_states": is_of_type(groups, list[dict[str, object]]),
        "lr_schedulers": "lr_schedulers" not in content
        or _is_schedule(content["lr_schedulers"], groups),
    }


def _is_count(found: object) -> bool:
    return type(found) is int and found >= 0


def _are_counts(found: object) -> bool:
    """Whether a loop's state, but for what a class keeps under state_dict, is counts and flags."""
    if isinstance(found, dict):
        kept = [name for name in found if not str(name).endswith("state_dict")]
        return all(_are_counts(found[name]) for name in kept)
    return isinstance(found, bool) or _is_count(found)


def _is_schedule(found: Any, groups: object) -> bool:  # noqa: ANN401
    """Whether it is of one LambdaLR, which takes each key of its state for an attribute."""
    if not is_of_type(found, list[dict[str, object]]) or len(found) != 1:
        return False
    lists, rest = [found[0].get(key) for key in _LISTS], found[0].keys() - _LISTS
    rates, length = lists[:2], len(groups) if isinstance(groups, list) else None
    return (
        {"last_epoch"} <= rest <= _COUNTS
        and _are_counts({key: found[0][key] for key in rest})
        and is_of_type(rates, list[list[float]])
        and all(math.isfinite(rate) and rate >= 0 for each in rates for rate in each)
        and isinstance(lists[2], list)
        and all(each in (None, {}) for each in lists[2])
        and {len(each) for each in lists} <= {length or len(rates[0])}
    )


_LISTS = ("base_lrs", "_last_lr", "lr_lambdas")
_COUNTS = {"last_epoch", "_step_count", "_is_initial", "_get_lr_called_within_step", "verbose"}


@contextlib.contextmanager
def refusing_other_state(path: str) -> Iterator[None]:
    """Raise what Lightning cannot give back to a run as an error that names the checkpoint."""
    try:
        yield
    except Exception as error:
        restoring = any(
            Path(frame.filename).name == "checkpoint_connector.py"
            and ("restore" in frame.name or frame.name == "resume_start")
            for frame in traceback.extract_tb(error.__traceback__)
        )
        if not restoring or mistake_in(error) is not None:
            raise
        said = f"{path}: a damaged bertlab checkpoint, which no run can continue from"
        raise DamagedCheckpointError(f"{said}: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def refusing_config(source: str, made: str) -> Iterator[None]:
    """Raise what plugins make of a stored config's values, of no type yet, as CheckpointError."""
    try:
        yield
    except Exception as error:
        from bertlab.plugins.strangers import mistake_of_others  # noqa: PLC0415  for errors only

        known = mistake_in(error) is not None or mistake_of_others(error) is not None
        if known and not isinstance(error, ConfigError):  # which names the key, not the file
            raise
        words = f"{source}: no {made} can be made of its config: {error if known else told(error)}"
        raise CheckpointError(words) from error


def check_optimizer_state(optimizer: Optimizer, state: dict[str, Any], source: str) -> None:
    """Raise DamagedCheckpointError unless an optimiser writes such a state as it is to take."""
    if wrong := _wrong_groups(optimizer, state) or _wrong_moments(optimizer, state):
        told = f"{source}: a damaged bertlab checkpoint"
        raise DamagedCheckpointError(f"{told}: optimizer_states: {wrong}")


def _wrong_groups(optimizer: Optimizer, state: dict[str, Any]) -> str | None:
    """Return what is wrong with the settings of the groups of parameters."""
    own, found = optimizer.state_dict()["param_groups"], state.get("param_groups")
    if not isinstance(found, list) or [type(each) for each in found] != [dict] * len(own):
        return f"param_groups: expected {len(own)} mappings"
    for number, (ours, theirs) in enumerate(zip(own, found, strict=True)):
        where = f"param_groups.{number}"
        if theirs.get("params") != ours["params"]:
            return f"{where}.params: expected the numbers of {len(ours['params'])} parameters"
        if "lr" not in theirs:
            return f"{where}.lr: missing"
        # a key that only one of the two has is of another version of torch
        for key in ours.keys() & theirs.keys() - {"params"}:
            value = theirs[key]
            is_switch = key in _SWITCHES and (value is None or isinstance(value, bool))
            if not is_switch and not _is_alike(value, ours[key]):
                return f"{where}.{key}: found {value!r}, expected one like {ours[key]!r}"
    return None


# on, off or None: they go with the device; a finished schedule_free is not in training
_SWITCHES = {"fused", "foreach", "capturable", "train_mode"}


def _is_alike(found: Any, own: Any) -> bool:  # noqa: ANN401
    """Whether a number is finite, and not below 0 where ours is not; anything else is equal."""
    if isinstance(own, int | float | Tensor) and not isinstance(own, bool):
        return _is_number(found) and (float(found) >= 0 or float(own) < 0)
    if isinstance(own, tuple | list):
        return (
            isinstance(found, tuple | list)
            and len(found) == len(own)
            and all(map(_is_alike, found, own))
        )
    return type(found) is type(own) and bool(found == own)


def _is_number(found: Any) -> bool:  # noqa: ANN401
    if isinstance(found, Tensor):
        return found.numel() == 1 and math.isfinite(found)
    return isinstance(found, int | float) and math.isfinite(found)


def _wrong_moments(optimizer: Optimizer, state: dict[str, Any]) -> str | None:
    """Return what is wrong with what the optimiser remembers of each parameter."""
    found = state.get("state")
    parameters = [each for group in optimizer.param_groups for each in group["params"]]
    if not isinstance(found, dict) or not found.keys() <= set(range(len(parameters))):
        return f"state: expected a mapping from 0 to {len(parameters) - 1}"
    if len(found) != state.get(ENTRIES, len(found)):  # what never had a gradient has no entry
        return f"state: found {len(found)} parameters, expected {state[ENTRIES]!r} as were written"
    # sizes are known of torch's own; another optimiser may remember anything
    is_torchs = f"{type(optimizer).__module__}.".startswith("torch.optim.")  # or the package itself
    for number, moments in found.items():
        where = f"state.{number}"
        if not isinstance(moments, dict):
            return f"{where}: expected a mapping"
        if not is_torchs:
            continue
        missing = _AVERAGES.get(type(optimizer).__name__, set()) - moments.keys()
        if missing:
            return f"{where}: has no {', '.join(sorted(missing))}"
        for name, each in moments.items():
            if not _fits(name, each, parameters[number]):
                size = list(parameters[number].shape)
                return f"{where}.{name}: expected numbers for a parameter of {size}"
    return None


# without them the fused step reads memory that is not theirs
_AVERAGES = {name: {"step", "exp_avg", "exp_avg_sq"} for name in ("Adam", "AdamW")}


def _fits(name: str, found: Any, parameter: Tensor) -> bool:  # noqa: ANN401
    """Whether it is a number, or floats of a parameter's size, as the name asks for."""
    if name in _NUMBERS:
        return _is_number(found) and (name != "step" or float(found) >= 0)
    if found is None:
        return name == "momentum_buffer"  # of SGD without momentum
    size = list(parameter.shape)
    if name in _OF_MATRICES and len(size) > 1:  # (N, 1) and (1, M) of a parameter (N, M)
        size[_OF_MATRICES[name]] = 1
    return isinstance(found, Tensor) and found.is_floating_point() and list(found.shape) == size


# what torch's optimisers keep once a parameter, and Adafactor's means over a dimension
_NUMBERS = {"step", "eta", "mu", "mu_product"}
_OF_MATRICES = {"row_var": -1, "col_var": -2}
