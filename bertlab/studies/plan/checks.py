"""Checks of a run's config that need no data, made before any run of a study is started."""

from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Timer

from bertlab.api.encoder import Encoder
from bertlab.api.task import check_tasks
from bertlab.config.parser import data_class
from bertlab.config.request import Request
from bertlab.config.yaml_files import Config
from bertlab.errors import ConfigError
from bertlab.model.build import build_tasks, check_lengths
from bertlab.model.optimizer_config import read_optimizer
from bertlab.model.schedule import check_budget, check_objectives, check_schedule, is_endless
from bertlab.studies.plan.budget import meta_encoder
from bertlab.tokenizer.wordpiece import WordPieceTokenizer

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
    tasks = build_tasks(config["model"])
    data = data_class(plan)(**config["data"], seed=0)
    data.connect(WordPieceTokenizer.from_vocabulary(_VOCABULARY), tasks)
    if encoder is not None:
        check_tasks(tasks, encoder)
        check_lengths(config["data"]["max_seq_length"], encoder)
    check_objectives(tasks, _check_length_of_run(config))


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
