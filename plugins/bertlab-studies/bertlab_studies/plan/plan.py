"""``Plan``: the runs of a study, what each waits for, and the arguments that it is started with."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertlab.api import BertlabError, Encoder
from bertlab.extend import Config, Request, read_request, resolve_request, without_secrets
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.checks import (
    check_checkpoint,
    check_config,
    check_seed_parts,
    known_encoder,
)
from bertlab_studies.plan.seed_parts import RunSeeds, seeds_of_combination
from bertlab_studies.plan.seeds import seeds_of_run
from bertlab_studies.plan.study_file import BASE, Evaluation, StudyConfig
from bertlab_studies.plan.values import heads_by_name
from bertlab_studies.plan.variants import Variant
from bertlab_studies.plan.zero_shot import is_zero_shot, zero_shot_arguments

WEIGHTS = "{weights}"  # in the arguments of a run: where its parent's weights are


@dataclass(frozen=True)
class PlannedRun:
    """One ``bertlab fit``, or ``bertlab evaluate``.

    Attributes:
        id: its directory below ``runs`` of the study; readable, ends in a hash of what it computes.
        stage: ``base``, or the name of an evaluation.
        variant: the first variant that needs it; others may share it.
        seed: of the run; where seeds are nested, a fine-tuning's is made of its pre-training's
            and its own.
        arguments: of the command, without the run directory; ``{weights}`` stands for the
            directory that its parent leaves.
        parent: id of the run whose weights it starts from, or None.
        steps: optimiser steps, if the config says how many.
        place: its directory in that of the study; ``runs/ID`` if None.
        trains: it is a ``bertlab fit``.
        seed_parts: seed of each part of it that has another.
    """

    id: str
    stage: str
    variant: str
    seed: int
    arguments: tuple[str, ...]
    parent: str | None = None
    steps: int | None = None
    place: str | None = None
    trains: bool = True
    seed_parts: dict[str, int] = field(default_factory=dict, hash=False)

    def directory(self, study_dir: Path) -> Path:
        """Return where ``bertlab fit`` keeps the run."""
        return study_dir / (f"runs/{self.id}" if self.place is None else self.place)

    def log(self, study_dir: Path) -> Path:
        """Return where what it prints is kept."""
        return study_dir / "logs" / f"{self.id}.log"


HASH = 8  # hexadecimal digits at the end of an id
# keys of data and trainer that change neither what a run computes nor what it leaves
FREE = ("num_workers", "prepare_workers", "cache_dir", "log_every_n_steps", "enable_progress_bar")
_LONGEST = 60  # characters of a name in an id
_INIT_FROM = "model.init_from"


@dataclass
class Plan:
    """All runs of a study.

    Attributes:
        runs: by id, parents before their children.
        cells: id of the run that a variant is scored by, by variant, stage and seed; the first of
            the fine-tunings where seeds are nested.
        nested: ids by fine-tuning seed, where seeds are nested, by variant, stage and seed.
        configs: resolved config by variant and stage, without the seed.
        begun: ids by the hash that they end in, of runs that were begun already: they keep their
            ids, whatever their variants are called now.
        of_hash: the runs by the hash that their ids end in.
        contents: by hash what it is of, secrets included; it is not written down.
    """

    runs: dict[str, PlannedRun] = field(default_factory=dict)
    cells: dict[tuple[str, str, int], str] = field(default_factory=dict)
    nested: dict[tuple[str, str, int], dict[int, str]] = field(default_factory=dict)
    configs: dict[tuple[str, str], Config] = field(default_factory=dict)
    begun: dict[str, str] = field(default_factory=dict)
    of_hash: dict[str, PlannedRun] = field(default_factory=dict)
    contents: dict[str, str] = field(default_factory=dict, repr=False)

    def run_of(self, variant: str, stage: str, seed: int) -> PlannedRun:
        """Return the run that a variant is scored by."""
        return self.runs[self.cells[variant, stage, seed]]

    def runs_of(self, variant: str, stage: str, seed: int) -> dict[int | None, PlannedRun]:
        """Return the runs that a variant is scored by, by fine-tuning seed; None if it has none."""
        fine_tunings = self.nested.get((variant, stage, seed))
        if fine_tunings is None:
            return {None: self.run_of(variant, stage, seed)}
        return {finetune: self.runs[run] for finetune, run in fine_tunings.items()}

    def in_order(self) -> list[PlannedRun]:
        """Return the runs, parents first."""
        return list(self.runs.values())


def make_plan(study: StudyConfig, begun: Iterable[str] = ()) -> Plan:
    """Return the runs of a study, those that variants share once.

    Args:
        study: what is asked.
        begun: ids of runs that are there already.

    Raises:
        StudyError: if an override names no key, a variant's parts do not go together, or two
            variants are the same.
    """
    plan = Plan(begun={run[-HASH:]: run for run in sorted(begun)})  # by the hash that ends the id
    for variant in study.variants:
        if not study.evaluations and (variant.evaluate or variant.from_step is not None):
            raise StudyError(
                f"study {study.name}: variant {variant.name}: evaluate: found overrides of "
                "evaluations, but the study has none; expected evaluate with config files"
            )
        if variant.evaluate and all(each.zero_shot is not None for each in study.evaluations):
            raise StudyError(
                f"study {study.name}: variant {variant.name}: evaluate: found "
                f"{', '.join(variant.evaluate)}, but no evaluation is trained; take it out"
            )
        config, encoder = _resolve(study, variant)
        plan.configs[variant.name, BASE] = config
        objectives = config["model"].get("objectives") or {}
        for evaluation in study.evaluations:
            if evaluation.name in objectives and not plan.begun:
                raise StudyError(
                    f"study {study.name}: evaluate.{evaluation.name}: found the name of an "
                    "objective, whose figures have it; choose another"
                )
        for evaluation in study.evaluations:
            plan.configs[variant.name, evaluation.name] = _resolve_evaluation(
                study, evaluation, variant, encoder
            )
        for seed in study.seeds:
            _add_variant(plan, study, variant, seed)
    _refuse_equal(plan, study)
    return plan


def _add_variant(plan: Plan, study: StudyConfig, variant: Variant, seed: int) -> None:
    config = plan.configs[variant.name, BASE]
    seeds = _seeds(study, seed, None)
    base = _add(plan, variant, BASE, seed, seeds, study.arguments_of(variant), config)
    for evaluation in study.evaluations:
        weights = WEIGHTS
        if variant.from_step is not None:
            weights += f"/checkpoints/step-{variant.from_step}.ckpt"
        own = plan.configs[variant.name, evaluation.name]
        finetune_seeds: Iterable[int | None] = study.finetune_seeds or (None,)
        if is_zero_shot(own):
            arguments = zero_shot_arguments(evaluation.name, own, weights)
            finetune_seeds = (None,)  # it trains nothing: again it would give the same
        else:
            arguments = [*evaluation.arguments_of(variant), f"--{_INIT_FROM}={weights}"]
        for each in finetune_seeds:
            seeds = _seeds(study, seed, each, has_parent=True)
            run = _add(
                plan, variant, evaluation.name, seed, seeds, arguments, own, base, variant.from_step
            )
            if each is not None:
                plan.nested.setdefault((variant.name, evaluation.name, seed), {})[each] = run.id


def _seeds(
    study: StudyConfig, seed: int, finetune: int | None, has_parent: bool = False
) -> RunSeeds:
    if study.factors:
        return seeds_of_combination(study.factors, seed, has_parent)
    return seeds_of_run(seed, finetune)


def _add(
    plan: Plan,
    variant: Variant,
    stage: str,
    seed: int,
    own_seeds: RunSeeds,
    arguments: list[str],
    config: Config,
    parent: PlannedRun | None = None,
    from_step: int | None = None,
) -> PlannedRun:
    """Add a run, unless another variant has the same, and note that the variant needs it."""
    # the parent's id ends in its own hash: what changes there changes this one
    key = [computed(config, own_seeds.content), None if parent is None else parent.id, from_step]
    content = json.dumps(key, sort_keys=True)
    # as study.yaml keeps the config: its runs are found again without the secrets in its URLs
    digest = _digest(json.dumps(without_secrets(key), sort_keys=True))
    if plan.contents.setdefault(digest, content) != content or _digest(content) in plan.begun:
        digest = _digest(content)  # ?id=A and ?id=B, both hidden, are two; runs of before are kept
    run = plan.of_hash.get(digest)
    if run is None:
        named = f"{_slug(variant.name)}-{_slug(stage)}-{own_seeds.name}-{digest}"
        trains = not is_zero_shot(config)
        run = PlannedRun(
            id=plan.begun.get(digest, named),
            stage=stage,
            variant=variant.name,
            seed=own_seeds.seed,
            seed_parts=own_seeds.parts,
            arguments=(*arguments, *(_arguments_of_run(config, own_seeds) if trains else ())),
            parent=None if parent is None else parent.id,
            steps=_steps(config) if trains else None,
            trains=trains,
        )
        plan.runs[run.id] = plan.of_hash[digest] = run
    plan.cells.setdefault((variant.name, stage, seed), run.id)
    return run


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:HASH]


def computed(config: Config, seeds: Mapping[str, object]) -> Config:
    """Return what of a run's config decides what it computes, with these seeds."""
    content = {
        section: {key: value for key, value in found.items() if key not in FREE}
        if section in ("data", "trainer")
        else found
        for section, found in config.items()
    }
    return {**content, **seeds}


def _arguments_of_run(config: Config, seeds: RunSeeds) -> tuple[str, ...]:
    """Return the arguments that every training run of a study has."""
    keeps = "true" if config["model"].get("head") else "false"  # there are labelled rows
    return (
        "--seeds=null",  # whatever the config files say
        "--against_scratch=false",
        f"--keep_predictions={keeps}",
        *seeds.arguments,
    )


def _steps(config: Config) -> int | None:
    return steps if (steps := config["trainer"]["max_steps"]) and steps > 0 else None


_CONFIGS: dict[
    str, Config
] = {}  # by what was asked for: a study is planned at each of its commands


def _resolved(arguments: Sequence[str]) -> tuple[Request, Config]:
    """Return plugins and config of a fit; the same request is resolved once."""
    request = read_request(arguments)
    given = dict.fromkeys(filter(request.is_argument, request.source), "")  # wherever files lie
    asked = repr(replace(request, argv=(), files=[], source=given))
    if asked not in _CONFIGS:
        _CONFIGS[asked] = resolve_request(request)
    return request, deepcopy(_CONFIGS[asked])


def _resolve(study: StudyConfig, variant: Variant) -> tuple[Config, Encoder | None]:
    """Return the config of a variant's base run, checked as far as it can be before it is run.

    With it comes the encoder, if it is known.
    """
    where = f"study {study.name}: variant {variant.name}"
    try:
        plan, config = _resolved(study.arguments_of(variant))
        encoder = known_encoder(config)
        check_config(plan, config, encoder)
        check_seed_parts(config, study.base)
        if variant.from_step is not None:
            check_checkpoint(config, variant.from_step)
    except BertlabError as error:
        raise StudyError(f"{where}: {error}") from None
    heads = ", ".join(heads_by_name(config["model"]))
    if heads and study.evaluations:
        raise StudyError(
            f"study {study.name}: base: {study.base} fine-tunes {heads}; expected a "
            "pre-training config, or no evaluate"
        )
    masks = [factor.name for factor in study.factors if "masks" in factor.parts]
    if heads and masks:
        raise StudyError(
            f"study {study.name}: seeds.{masks[0]}: found in a study that fine-tunes "
            f"{heads}, which draws no masks; expected weights, order or dropout"
        )
    return config, encoder


def _resolve_evaluation(
    study: StudyConfig, evaluation: Evaluation, variant: Variant, encoder: Encoder | None
) -> Config:
    """Return the config of an evaluation, checked as far as it can be before it is run."""
    if evaluation.zero_shot is not None:
        return evaluation.zero_shot
    try:
        if _INIT_FROM in evaluation.settings | variant.evaluate:
            raise StudyError(f"{_INIT_FROM}: cannot be set here; it is the variant's pre-training")
        arguments = [*evaluation.arguments_of(variant), f"--{_INIT_FROM}=null"]
        plan, config = _resolved(arguments)
        check_config(plan, config, encoder)
        check_seed_parts(config, evaluation.config)
    except BertlabError as error:
        raise StudyError(
            f"study {study.name}: evaluation {evaluation.name} of {variant.name}: {error}"
        ) from None
    if plan.head is None:
        found = "several heads (model.heads)" if plan.fine_tunes else "no model.head"
        raise StudyError(
            f"study {study.name}: evaluate.{evaluation.name}: {evaluation.config} has {found}, "
            "expected a fine-tuning config of one head"
        )
    return config


def _refuse_equal(plan: Plan, study: StudyConfig) -> None:
    seen: dict[tuple[str, ...], str] = {}
    for variant in study.variants:
        ids = tuple(plan.cells[variant.name, stage, study.seeds[0]] for stage in study.stages)
        if ids in seen:
            raise StudyError(
                f"study {study.name}: the variants {seen[ids]!r} and {variant.name!r} are the same "
                "config; change one or take it out"
            )
        seen[ids] = variant.name


def variant_settings(plan: Plan, study: StudyConfig) -> dict[str, dict[str, Any]]:
    """Return the config keys in which variants differ, and each variant's values of them."""
    flat: dict[str, dict[str, Any]] = {variant.name: {} for variant in study.variants}
    for (name, stage), config in plan.configs.items():
        prefix = "" if stage == BASE else f"{stage}: "
        flat[name] |= {f"{prefix}{key}": value for key, value in _flatten(config).items()}
    for variant in study.variants:
        if variant.from_step is not None:
            flat[variant.name]["evaluate.from_step"] = variant.from_step
    keys = {key: None for each in flat.values() for key in each}  # a set that keeps its order
    differing = [
        key
        for key in keys
        # lists have no hash
        if len({json.dumps(each.get(key), sort_keys=True) for each in flat.values()}) > 1
    ]
    return {name: {key: each.get(key) for key in differing} for name, each in flat.items()}


def _flatten(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            flat |= _flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _slug(name: str) -> str:
    # "lr=1e-4, deep!" -> "lr=1e-4-deep"
    return re.sub(r"[^A-Za-z0-9.+=]+", "-", name)[:_LONGEST].strip("-.") or "variant"
