"""The variants of a study: those that have names, times the product of the axes."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product

from bertlab import nearest
from bertlab.extend import Config
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.values import check_count, mapping, refuse_repeated
from bertlab_studies.settings import Overrides, overridden, read_settings

_VARIANTS = "variants"
_EVALUATE = "evaluate."
_FROM_STEP = "from_step"
_BUILDS_ON = "builds_on"
_CONTROL_OF = "control_of"


@dataclass(frozen=True)
class Variant:
    """One row of a study's table.

    Attributes:
        name: of the row.
        settings: overrides of the base config.
        evaluate: overrides of every evaluation.
        from_step: optimiser step of the pre-training whose checkpoint is evaluated; None: the last.
        levels: its label on each axis, by the axis; named variants are an axis if there are several
            beside axes.
        builds_on: the variant whose overrides it has besides its own; None: it has only its own.
        control_of: the variant whose effect it would explain away; None: it is no control.
    """

    name: str
    settings: Overrides = field(default_factory=dict)
    evaluate: Overrides = field(default_factory=dict)
    from_step: int | None = None
    levels: dict[str, str] = field(default_factory=dict)
    builds_on: str | None = None
    control_of: str | None = None

    @property
    def overrides(self) -> Overrides:
        """The overrides of base and evaluations, as a study file has them."""
        evaluate = {f"{_EVALUATE}{key}": value for key, value in self.evaluate.items()}
        step = {} if self.from_step is None else {f"{_EVALUATE}{_FROM_STEP}": self.from_step}
        return {**self.settings, **evaluate, **step}


def read_variants(content: Config, where: str) -> list[Variant]:
    """Return the named variants times the product of the axes.

    Args:
        content: of a study file.
        where: the file, for messages.

    Raises:
        StudyError: if there are fewer than two, two have one name, or one is of another kind.
    """
    given = content.get("variants")
    named = mapping({"": {}} if given is None else given, f"{where}: variants")
    axes = mapping(content.get("axes") or {}, f"{where}: axes")
    if given is None and not axes:
        raise StudyError(f"{where}: variants: found none, expected names with overrides, or axes")
    if _VARIANTS in axes:
        raise StudyError(f"{where}: axes.{_VARIANTS}: this is the name of the rows; choose another")
    points = [_axis(name, values, f"{where}: axes.{name}") for name, values in axes.items()]
    check_count(len(named) * math.prod(map(len, points)), "variants", f"{where}: axes")
    variants = []
    all_overrides: dict[str, Overrides] = {}  # of the named variants, those they build on included
    for name, entry in named.items():
        place = f"{where}: variants.{name}"
        of, given_overrides = _control(entry, str(name), named, place)
        earlier, overrides = _own(given_overrides, all_overrides, place)
        all_overrides[str(name)] = overrides
        for combination in product(*points):  # without axes once, with ()
            labels = [label for label, _ in combination]
            merged = overrides
            for _, more in combination:
                merged = overridden(merged, more)
            levels = dict(zip(axes, labels, strict=True))
            if axes and len(named) > 1:
                levels = {_VARIANTS: str(name), **levels}
            full_name = " ".join(filter(None, [str(name), *labels]))
            found = _variant(full_name, merged, levels, where)
            if earlier is not None:
                found = replace(found, builds_on=" ".join([earlier, *labels]))
            if of is not None:
                found = replace(found, control_of=" ".join([of, *labels]))
            variants.append(found)
    if len(variants) < 2:
        count = "one" if variants else "none"
        raise StudyError(f"{where}: variants: found {count}, expected two or more to compare")
    refuse_repeated([variant.name for variant in variants], f"{where}: variants")
    return variants


def _control(
    given: object, name: str, names: Mapping[str, object], where: str
) -> tuple[str | None, object]:
    """Return the variant that one is the control of, if any, and what else is said of it."""
    if not isinstance(given, Mapping) or _CONTROL_OF not in given:
        return None, given
    of = given[_CONTROL_OF]
    others = [str(each) for each in names if str(each) != name]
    if of not in others:
        raise StudyError(
            f"{where}.{_CONTROL_OF}: found {of!r}{nearest(str(of), others)}, expected the name of "
            f"another variant ({', '.join(others)})"
        )
    return of, {key: each for key, each in given.items() if key != _CONTROL_OF}


def _own(
    given: object, earlier: Mapping[str, Overrides], where: str
) -> tuple[str | None, Overrides]:
    """Return the variant that one builds on, if any, and its overrides with those of that one."""
    if not isinstance(given, Mapping) or _BUILDS_ON not in given:
        return None, read_settings(given, where)
    name = given[_BUILDS_ON]
    if not isinstance(name, str) or name not in earlier:
        above = f"the name of a variant above ({', '.join(earlier) or 'there is none'})"
        hint = nearest(str(name), list(earlier))
        raise StudyError(f"{where}.{_BUILDS_ON}: found {name!r}, expected {above}{hint}")
    own = read_settings({key: each for key, each in given.items() if key != _BUILDS_ON}, where)
    return name, overridden(earlier[name], own)


def _variant(name: str, overrides: Overrides, levels: dict[str, str], where: str) -> Variant:
    settings = {key: value for key, value in overrides.items() if not key.startswith(_EVALUATE)}
    evaluate = {
        key.removeprefix(_EVALUATE): value
        for key, value in overrides.items()
        if key.startswith(_EVALUATE)
    }
    step = evaluate.pop(_FROM_STEP, None)
    # type(): to isinstance(), True is an int
    if step is not None and (type(step) is not int or step < 1):
        raise StudyError(
            f"{where}: {name}: evaluate.from_step: found {step!r}, expected a number of steps"
        )
    evaluate = read_settings(evaluate, f"{where}: {name}: evaluate")
    return Variant(name, settings, evaluate, step, levels)


def _axis(name: str, values: object, where: str) -> list[tuple[str, Overrides]]:
    """Return an axis' points: a config key's values, or labels with overrides."""
    if isinstance(values, Mapping) and values:
        return [(str(label), read_settings(each, where)) for label, each in values.items()]
    if isinstance(values, list) and values:
        short = name.rsplit(".", 1)[-1]  # model.encoder.layers -> layers
        return [
            (f"{short}={_label(value)}", read_settings({name: value}, where)) for value in values
        ]
    raise StudyError(f"{where}: found {values!r}, expected a list of values, or labels with them")


def _label(value: object) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)
