"""``StagedRun``: pre-training in several stages, each a run that starts from the one before.

``RUN/stages.yaml`` is the config of the whole, ``RUN/stages/NAME`` the run directory of each stage
but the last one, whose run directory is RUN itself.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

from bertlab import CheckpointError, ConfigError, Pretrained
from bertlab.extend import (
    LAST,
    RESULTS_FILE,
    STAGES_FILE,
    BertlabCLI,
    Config,
    Request,
    RunConfig,
    build_optimizer,
    build_parser,
    check_no_classes,
    check_nothing_leads_out,
    check_same_config,
    check_same_data,
    check_stored,
    check_users_own,
    choose_run_directory,
    claiming,
    create_text,
    differences,
    give_up,
    hashes_of,
    last_checkpoint,
    last_run,
    nested,
    open_command,
    parameter_names,
    parse_request,
    quiet_lightning,
    read_config,
    read_manifest,
    read_request,
    read_stored_config,
    read_warm_start,
    refuse_other_config,
    say,
    warn,
    without_places,
    without_secrets,
)
from bertlab_studies.optimizer_state import OptimizerState
from bertlab_studies.plan.stages import (
    STAGES_KEY,
    Stage,
    given_stages,
    naming_stage,
    read_stages,
    stage_directory,
    stage_requests,
)

_TEXT = {f"data.{key}" for key in ("corpus", "corpus_format", "text_column", "errors", "language")}


def open_stages(request: Request) -> "StagedRun | None":
    """Build the stages that ``bertlab fit`` runs; None if neither config nor run has any."""
    begun = begun_run(request)
    if begun is None and given_stages(request) is None:
        return None
    quiet_lightning()
    for line in request.left_out:
        warn(line)
    if begun is None and request.ckpt_path not in (None, LAST):
        raise CheckpointError(
            f"--ckpt_path: {request.ckpt_path} is no run in stages (it has no {STAGES_FILE}), but "
            "the config has stages; expected such a run, or the checkpoint without --config"
        )
    return _new_run(request) if begun is None else _begun_run(request, begun)


def open_last_stage(command: str, request: Request) -> BertlabCLI:
    """Build a command for the model that the last stage of a config ends with."""
    *_, last = read_stages(given_stages(request))
    if last.fine_tunes:
        raise ConfigError(
            f"{command}: found a config whose last stage fine-tunes, expected the run: "
            f"bertlab {command} RUN, without --config"
        )
    return open_command(command, read_request(request.argv, settings=last.settings))


def _new_run(request: Request) -> "StagedRun":
    warm = None
    if request.init_from is not None:
        warm = read_warm_start(request)
        assert warm is not None
        request.take_sizes(warm.encoder_config)
    config = parse_request(request, "fit")
    directory = choose_run_directory(config.values.run_dir, request.run_name)
    return StagedRun.make(config, directory, warm, goes_on=False)


def _begun_run(request: Request, run: Path) -> "StagedRun":
    check_nothing_leads_out(run)
    source = run / STAGES_FILE
    # as of a checkpoint: the run may come from anywhere
    recorded, left_out = read_stored_config(read_config(source), str(source))
    if not request.files:
        left_out = [key for key in left_out if not request.is_argument(key)]
        check_users_own(left_out, source, "fit")
        request = read_request(request.argv, recorded, str(source), source)
    if request.init_from is not None:
        request.take_sizes(recorded["model"]["encoder"])
    config = parse_request(request, "fit", recorded["seed_everything"])
    check_same_config(config, recorded)
    here, there = (_without_places(each.get(STAGES_KEY)) for each in (config.plain, recorded))
    refuse_other_config(differences({STAGES_KEY: here}, {STAGES_KEY: there}))
    return StagedRun.make(config, run, None, goes_on=True)


def _without_places(stages: object) -> object:
    """Return stages without the keys that say where data lies."""
    if not isinstance(stages, list):
        return stages
    return [without_places(stage, "data.") for stage in stages]


def begun_run(request: Request) -> Path | None:
    """Return the run in stages that ``--ckpt_path`` names; None if it names none."""
    if request.ckpt_path is None:
        return None
    run = last_run(request) if request.ckpt_path == LAST else Path(request.ckpt_path)
    if run is None and request.run_dir is not None:  # ended before its first checkpoint
        run = Path(request.run_dir)
    return run if run is not None and (run / STAGES_FILE).is_file() else None


@dataclass
class StagedRun:
    """The stages of one config; :meth:`run` goes through those that are not done.

    Attributes:
        resolved: the config of the whole.
        directory: of the whole, and of the last stage.
        stages: in order.
        requests: what each asks for.
        warm: of the first stage's ``model.init_from``, where the run is new.
        goes_on: whether it was begun before.
    """

    resolved: RunConfig
    directory: Path
    stages: tuple[Stage, ...]
    requests: list[Request]
    warm: Pretrained | None
    goes_on: bool

    @classmethod
    def make(
        cls, config: RunConfig, directory: Path, warm: Pretrained | None, goes_on: bool
    ) -> "StagedRun":
        """Return that of a config."""
        stages = read_stages(config.plain.get(STAGES_KEY))
        if config.values.keep_predictions:
            raise ConfigError("keep_predictions: found beside stages, expected false")
        requests = stage_requests(config.plain, stages, directory)
        for stage, request in zip(stages, requests, strict=True):
            request.argv = config.request.argv  # what the manifest says of how it was started
            stored = config.request.checkpoint
            if stored is not None:
                parser = build_parser("fit", request)
                for key, value in stage.settings.items():
                    content = nested(key, value)
                    check_no_classes(parser, content, str(stored))
                    check_stored(content, str(stored))
        return cls(config, directory, stages, requests, warm, goes_on)

    def run(self) -> int:
        """Run each stage from where it was left; return the exit code of the last one run."""
        if not self.goes_on:
            self._begin()
        for number, stage in enumerate(self.stages):
            place = stage_directory(self.directory, self.stages, number)
            is_last = number == len(self.stages) - 1
            if not is_last and (place / RESULTS_FILE).is_file():
                continue
            session = self._open(stage, self.requests[number], place)
            if session.trainer.is_global_zero:
                count = len(self.stages)
                say(f"stage {stage.name}, {number + 1} of {count}")
            code = session.run()
            if code != 0:
                return code
        return 0

    def _open(self, stage: Stage, request: Request, place: Path) -> BertlabCLI:
        """Build a stage, from its last checkpoint if it has one."""
        last = last_checkpoint(place)
        if last is not None:
            request.ckpt_path = str(last)
        else:  # ended before its first checkpoint
            give_up(place)
        with naming_stage(stage):
            session = open_command("fit", request, self.directory)
            number = self.stages.index(stage)
            reads_on = number > 0 and not stage.fine_tunes
            if reads_on and _reads(stage) == _reads(self.stages[number - 1]):
                before = stage_directory(self.directory, self.stages, number - 1)
                here, places = session.datamodule.facts(), session.resolved.plain["data"]
                check_same_data(hashes_of(here), hashes_of(read_manifest(before)), places)
            return session

    def _begin(self) -> None:
        """Check all stages by building each once, then claim the directory.

        A mistake in the last stage shows before the first one is trained.
        """
        limit = self.resolved.plain["trainer"]["max_epochs"]
        epochs, is_first = 0.0, False
        for session in self._rehearse():
            words = session.resolved.plain.get("max_words")
            epochs += words / session.datamodule.corpus_words("max_words") if words else 0.0
            is_first = session.trainer.is_global_zero
        # a hundredth: as of a run in one stage
        if limit not in (None, -1) and epochs > 1.01 * limit:
            raise ConfigError(
                f"max_words: the stages read the text {epochs:.1f} times, expected at most "
                f"trainer.max_epochs, which is {limit}; give more text or fewer words"
            )
        if is_first:
            content = without_secrets(dict(self.resolved.plain))
            text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True)
            with claiming(self.directory):
                create_text(self.directory / STAGES_FILE, text)

    def _rehearse(self) -> Iterator[BertlabCLI]:
        """Yield a session of each stage, which has the untrained weights of the one before."""
        before, seed = self.warm, self.resolved.seed
        for stage, request in zip(self.stages, self.requests, strict=True):
            with naming_stage(stage):
                if before is not None and not request.init_optimizer:
                    before.optimizer = None
                session = BertlabCLI("fit", request, None, before, seed, self.directory, True)
                yield session
                before = _untrained(session, stage)
        self.warm = None


def _reads(stage: Stage) -> Config:
    """Return what a stage sets of the text that it reads; the same text if it is the same."""
    return {key: value for key, value in stage.settings.items() if key in _TEXT}


def _untrained(session: BertlabCLI, stage: Stage) -> Pretrained:
    """Return what the next stage would start from, had this one been trained."""
    model, tokenizer = session.model, session.tokenizer
    config = model.optimizer_config
    optimizer = build_optimizer(config, model)
    # a schedule of this stage's own steps begins at 0
    earlier = None if config.schedule_steps is None else model.continued
    done = 0 if earlier is None else earlier.steps
    state = OptimizerState(
        source=f"stage {stage.name}",
        tensors=list(model.state_dict()),
        content=optimizer.state_dict(),
        steps=done + int(session.steps),
        optimizer=config.name,
        parameters=parameter_names(model, optimizer),
    )
    return Pretrained(
        source=f"stage {stage.name}",
        encoder_config=dict(session.resolved.plain["model"]["encoder"]),
        vocab_size=model.encoder.vocab_size,
        state=model.state_dict(),
        tokenizer=tokenizer,
        config=session.resolved.plain,
        optimizer=state,
    )
