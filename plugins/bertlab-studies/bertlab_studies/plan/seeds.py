"""The seeds of a study: those of its pre-trainings, and those of the fine-tunings of each."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from bertlab import CommandError, nearest
from bertlab.api import ConfigError
from bertlab.extend import SEED_PARTS, choose_seed
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.seed_parts import RunSeeds, SeedFactor, SeedTuple, seed_list

PRETRAIN, FINETUNE = "pretrain", "finetune"
ADDED_SEEDS = "added_seeds"  # key of a study file that add-seeds writes; of the form of seeds
_DEFAULT = 3  # pre-trainings
_FIRST = 1  # the fine-tuning seed that a study has which gives none


def read_seeds(given: object, where: str) -> tuple[SeedTuple, SeedTuple | None]:
    """Return the seeds of pre-trainings, and of the fine-tunings of each.

    Args:
        given: a number N for 1 … N, a list, or a mapping of ``pretrain`` and ``finetune`` to one
            of these. Three pre-trainings if the mapping has no ``pretrain``. Parts of a run, such
            as ``weights``, are read before.
        where: file and key, for messages.

    Returns:
        The second is None where fine-tunings are not given seeds of their own.

    Raises:
        StudyError: if it is none of these, or a key is unknown.
    """
    if not isinstance(given, dict):
        return _seeds(given, where), None
    for key in given:
        if key not in (PRETRAIN, FINETUNE):
            known = (PRETRAIN, FINETUNE, *SEED_PARTS)
            raise StudyError(
                f"{where}: no key is called {key!r}{nearest(str(key), known)} "
                f"(there are: {PRETRAIN}, {FINETUNE}; or parts of a run: {', '.join(SEED_PARTS)})"
            )
    pretrain = _seeds(given.get(PRETRAIN, _DEFAULT), f"{where}.{PRETRAIN}")
    if FINETUNE not in given:
        return pretrain, None
    return pretrain, _seeds(given[FINETUNE], f"{where}.{FINETUNE}")


def _seeds(given: object, where: str) -> SeedTuple:
    try:
        return tuple(choose_seed(seed) for seed in seed_list(given))
    except ConfigError as error:
        raise StudyError(f"{where}: {str(error).removeprefix('seeds: ')}") from None


def seeds_content(pretrain: SeedTuple, finetune: SeedTuple | None) -> object:
    """Return seeds as a study file has them; the inverse of :func:`read_seeds`."""
    if finetune is None:
        return list(pretrain)
    return {PRETRAIN: list(pretrain), FINETUNE: list(finetune)}


def join_seeds(
    own: tuple[SeedTuple, SeedTuple | None], added: tuple[SeedTuple, SeedTuple | None]
) -> tuple[SeedTuple, SeedTuple | None]:
    """Return the seeds of a study file and then those that were added to it, each once."""
    pretrain = tuple(dict.fromkeys(own[0] + added[0]))
    if own[1] is None and added[1] is None:
        return pretrain, None
    return pretrain, tuple(dict.fromkeys((own[1] or (_FIRST,)) + (added[1] or ())))


def refuse_more(factors: Sequence[SeedFactor], study_dir: Path) -> None:
    """Raise CommandError if a study's seeds are of parts of a run: its file alone has these."""
    if factors:
        raise CommandError(
            f"{study_dir}: the study's seeds are of {' and '.join(each.name for each in factors)}; "
            "give more in its file and run that again, which keeps what is done"
        )


def extended_seeds(
    own: tuple[SeedTuple, SeedTuple | None],
    seeds: int | list[int] | None,
    finetune_seeds: int | list[int] | None,
) -> object:
    """Return seeds as a study file has them: those of a study, with more where they are asked for.

    Args:
        own: seeds of the study, of pre-trainings and of the fine-tunings of each.
        seeds: how many in all, or a list of them; as they are if None.
        finetune_seeds: the same of fine-tunings.

    Raises:
        CommandError: as :func:`more_seeds`.
    """
    pretrain, finetune = own
    if seeds is not None:
        pretrain = more_seeds("--seeds", seeds, pretrain)
    if finetune_seeds is not None:
        finetune = more_seeds("--finetune_seeds", finetune_seeds, finetune)
    return seeds_content(pretrain, finetune)


def more_seeds(option: str, asked: int | list[int], own: SeedTuple | None) -> SeedTuple:
    """Return the seeds that are asked for.

    Args:
        option: of the command line, for messages.
        asked: how many in all, or a list of them.
        own: those of the study; a study that gives its fine-tunings no seeds (None) has seed 1.

    Raises:
        CommandError: if one of the study's own is not among them.
    """
    wanted, own = tuple(seed_list(asked)), (_FIRST,) if own is None else own
    if set(own) - set(wanted):
        raise CommandError(
            f"{option}: found {asked}, expected the study's own ({', '.join(map(str, own))}) and "
            "more"
        )
    return wanted


def finetuning_seed(pretrain: int, finetune: int) -> int:
    """Return ``seed_everything`` of a fine-tuning, by its own seed and its pre-training's.

    Fine-tuning seed 1 is the run that a study without fine-tuning seeds has: it has the seed of
    its pre-training. A study that was begun without them can get more, and keeps its runs.
    """
    # Were a fine-tuning seed the same number for every pre-training, all of them would share its
    # order of rows, first weights of the head and dropout. What these do to a score would then be
    # common to the pre-trainings: their spread would not show it, more of them would not average
    # it out, and intervals would be too narrow. So each pre-training has numbers of its own.
    # Variants still share them, as they share all seeds.
    if finetune == _FIRST:
        return pretrain
    # (2, 4) -> a number below 2**32 that differs from those of (4, 2) and (3, 4); NumPy keeps it
    # the same in all versions
    return int(np.random.SeedSequence((pretrain, finetune)).generate_state(1)[0])


def seeds_of_run(pretrain: int, finetune: int | None) -> RunSeeds:
    """Return the seeds of a run of a study whose seeds are those of all parts.

    Args:
        pretrain: seed of its pre-training, or its own.
        finetune: its own, where seeds are nested.
    """
    if finetune is None:
        return RunSeeds(pretrain, f"seed-{pretrain}")
    return RunSeeds(finetuning_seed(pretrain, finetune), f"seed-{pretrain}-finetune-{finetune}")
