"""The plain config of each stage of a run."""

import json
from copy import deepcopy
from functools import lru_cache

from bertlab.extend import STAGES_KEY as STAGES
from bertlab.extend import Config, naming_stage, read_stages, resolve_request, stage_requests


def stage_configs(config: Config) -> list[Config]:
    """Return the plain config of each stage of a plain config that has stages.

    Raises:
        ConfigError: as ``bertlab fit`` would; names the stage.
    """
    # a study asks for those of all its runs, which are few different ones
    return deepcopy(_stage_configs(json.dumps(config)))


@lru_cache(maxsize=256)
def _stage_configs(text: str) -> list[Config]:
    config = json.loads(text)
    stages = read_stages(config[STAGES])
    configs = []
    for stage, request in zip(stages, stage_requests(config, stages), strict=True):
        with naming_stage(stage):
            configs.append(resolve_request(request))
    return configs


def last_config(config: Config) -> Config:
    """Return the plain config that a run ends with: of the last stage, where it has stages."""
    return stage_configs(config)[-1] if config.get(STAGES) else config
