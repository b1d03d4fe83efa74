"""Checks of a run's config that need no data, made before any run of a study is started."""

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Timer

from bertlab.api import ConfigError, Encoder, WordPieceTokenizer
from bertlab.extend import (
    SEED_SECTION,
    Config,
    Request,
    build_tasks,
    check_budget,
    check_changes,
    check_lengths,
    check_schedule,
    check_tasks,
    check_whole_steps,
    data_class,
    is_endless,
    read_optimizer,
)
from bertlab_studies.errors import StudyError
from bertlab_studies.plan.budget import meta_encoder
from bertlab_studies.plan.stages import STAGES_KEY, naming_stage, read_stages, stage_configs

# tasks and data are introduced to each other; what they check does not depend on it
_VOCABULARY = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def known_encoder(config: Config) -> Encoder | None:
    """Return the encoder of a config; None if ``model.init_from`` decides what it is."""
    return None if config["model"].get("init_from") else meta_encoder(config)


def check_config(plan: Request, config: Config, encoder: Encoder | None) -> None:
    """Raise BertlabError for what ``bertlab fit`` would refuse before it reads any data.

    Args:
        plan: the plugins of the config.
        config: resolved.
        encoder: that the run trains, if it is known.
    """
    if config.get(STAGES_KEY):
        for stage, each in zip(read_stages(config[STAGES_KEY]), stage_configs(config), strict=True):
            if stage.fine_tunes:
                raise StudyError(
                    f"{STAGES_KEY}.{stage.name}: found a head, expected none: a study fine-tunes "
                    "by its key evaluate"
                )
            with naming_stage(stage):
                check_config(plan, each, None if encoder is None else meta_encoder(each))
        return
    tasks = build_tasks(config["model"])
    data = data_class(plan)(**config["data"], seed=0)
    data.connect(WordPieceTokenizer.from_vocabulary(_VOCABULARY), tasks)
    if encoder is not None:
        check_tasks(tasks, encoder)
        check_lengths(data.max_seq_length, encoder)
    check_changes(tasks, data, _check_length_of_run(config))
    parts = config["trainer"]["accumulate_grad_batches"]
    check_whole_steps(tasks, parts if isinstance(parts, int) else 1, 1)  # auto: not known yet


def check_checkpoint(config: Config, step: int) -> None:
    """Raise StudyError if a run will not keep the checkpoint of a step."""
    if config.get(STAGES_KEY):
        raise StudyError(
            f"evaluate.from_step: found {step} beside stages, each of which counts its own steps; "
            "expected none: the last stage's end is evaluated"
        )
    if config["checkpoint"]["save_top_k"] != -1:
        raise StudyError(
            "evaluate.from_step needs the checkpoints of all steps; set checkpoint.save_top_k: -1, "
            "and trainer.val_check_interval so that one is written then"
        )
    trainer = config["trainer"]
    interval, accumulate = trainer["val_check_interval"], trainer["accumulate_grad_batches"]
    parts = 1 if accumulate == "auto" else accumulate  # with auto the interval counts steps
    every = interval // parts if isinstance(interval, int) else 1  # batches -> optimiser steps
    if step % every:
        raise StudyError(
            f"evaluate.from_step: found {step}, expected a multiple of {every}, the steps from a "
            "checkpoint to the next (trainer.val_check_interval)"
        )
    if 0 < trainer["max_steps"] < step:
        raise StudyError(
            f"evaluate.from_step: found {step}, expected at most trainer.max_steps, which is "
            f"{trainer['max_steps']}"
        )


def check_seed_parts(config: Config, file: object) -> None:
    """Raise StudyError if a config file gives parts of a run seeds of their own.

    Args:
        config: resolved.
        file: that it comes from.
    """
    if SEED_SECTION in config:
        raise StudyError(
            f"{SEED_SECTION}: found {config[SEED_SECTION]} in {file}, expected none; what varies "
            "and what stays the same is said by the study's seeds, such as {weights: 3}"
        )


def _check_length_of_run(config: Config) -> bool:
    """Return whether no number of steps ends a run.

    Raises:
        ConfigError: a number is none, there are several ends, or a schedule has none.
    """
    trainer = config["trainer"]
    tokens, words = config["max_tokens"], config["max_words"]
    for key in ("max_steps", "max_epochs"):
        if trainer[key] is not None and (trainer[key] == 0 or trainer[key] < -1):
            raise ConfigError(f"trainer.{key}: found {trainer[key]}, expected 1 or more, or -1")
    endless = is_endless(trainer["max_steps"], trainer["max_epochs"])
    check_budget(tokens, words, trainer["max_steps"], trainer["max_epochs"])
    timed = trainer["max_time"] is not None
    if timed:
        try:
            Timer(trainer["max_time"])
        except (MisconfigurationException, ValueError, TypeError) as error:
            raise ConfigError(f"trainer.max_time: {' '.join(str(error).split())}") from None
    optimizer = read_optimizer(config["model"]["optimizer"])
    endless = endless and tokens is None and words is None
    check_schedule(optimizer, endless, timed)
    return endless
