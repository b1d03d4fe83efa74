"""From config files and arguments to one config as plain data, with every default in it."""

from collections.abc import Sequence
from typing import Any

import yaml
from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser

from bertlab.config.compose import Composition, compose
from bertlab.config.parse import parse_arguments, parse_config
from bertlab.config.parser import add_data, add_model, add_run, add_trainer
from bertlab.config.yaml_files import Config

# of no concern to what a run computes
_RUN_KEYS = ("run_dir", "seeds", "against_scratch", "keep_predictions")
_NOT_RECORDED = (*_RUN_KEYS, "ckpt_path", "config", "output", "output_format")
_FIT_ONLY = ("checkpoint", "max_tokens", "on_nonfinite", "compile", *_RUN_KEYS)


def resolve_arguments(argv: Sequence[str]) -> tuple[Composition, Config]:
    """Return the plugins and the config that ``bertlab fit`` with these arguments would run.

    Nothing is run or read but the config files; sizes that ``model.init_from`` brings are not in
    it, so it is best left out.

    Raises:
        ConfigError: as ``bertlab fit`` would.
    """
    plan = compose(argv)
    parser = fit_parser(plan)
    return plan, plain_config(parser, parse_plan(parser, plan, plan.arguments), plan)


def fit_parser(plan: Composition) -> LightningArgumentParser:
    """Return a parser of all keys that ``bertlab fit`` takes with these plugins."""
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_argument("--seed_everything", type=bool | int, default=True)
    add_trainer(parser)
    add_model(parser, plan, None)
    add_data(parser, plan)
    add_run(parser, "fit")
    return parser


def parse_plan(parser: LightningArgumentParser, plan: Composition, arguments: Any) -> Namespace:  # noqa: ANN401  LightningCLI's
    """Parse each config file, then the arguments that override them.

    Raises:
        ConfigError: one line that names the file and key, or the argument.
    """
    config = None
    for path, content in plan.files:
        known = {key: value for key, value in content.items() if _belongs(key, parser)}
        config = parse_config(parser, known, str(path), config)
    return parse_arguments(parser, arguments, config)


def plain_config(parser: LightningArgumentParser, config: Namespace, plan: Composition) -> Config:
    """Return a parsed config as plain data, with every plugin named."""
    dumped = parser.dump(config, skip_unset=False, skip_validation=True)
    content: Config = yaml.safe_load(dumped)
    if plan.head is None:
        given = content["model"].get("objectives") or {}
        content["model"]["objectives"] = {name: given.get(name) or {} for name in plan.objectives}
    else:
        content["model"]["head"]["name"] = plan.head
    if plan.metrics:
        given = content["model"].get("metrics") or {}
        content["model"]["metrics"] = {name: given.get(name) or {} for name in plan.metrics}
    content["model"]["encoder"]["name"] = plan.encoder
    for key in _NOT_RECORDED:
        content.pop(key, None)
    return content


def _belongs(key: str, parser: LightningArgumentParser) -> bool:
    """Whether a config's section is for this command: a fit config also serves validate."""
    if key in _FIT_ONLY:
        return any(action.dest.split(".")[0] == key for action in parser._actions)
    return True
