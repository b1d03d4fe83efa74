"""``open_session``: from the files and arguments of a command to its ``Session``."""

from pathlib import Path

from bertlab.checkpoints.huggingface_task import is_model, use_folder
from bertlab.checkpoints.one_head import one_head
from bertlab.checkpoints.pretrained import Pretrained
from bertlab.checkpoints.restore import check_nothing_lacks, read_checkpoint, read_warm_start
from bertlab.checkpoints.run_directory import CONFIG_FILE
from bertlab.config.request import Request, read_request
from bertlab.config.run_config import parse_request
from bertlab.config.stages import with_last_stage
from bertlab.errors import CommandError
from bertlab.training.allocator import keep_freed_memory
from bertlab.training.session import Session
from bertlab.training.trainer import quiet_lightning


def open_session(command: str, request: Request, whole: Path | None = None) -> Session:
    """Build the trainer, data and module of a command.

    Args:
        command: ``fit``, ``validate``, ``test`` or ``predict``.
        request: config files and arguments. Without a file, a checkpoint's config is the base.
        whole: directory of the run in stages that this is a stage of.

    Raises:
        BertlabError: whatever can be wrong with config, plugins, weights or data.
        SystemExit: with 0, after printing the help that the arguments ask for.
    """
    quiet_lightning()
    keep_freed_memory()
    if command != "fit" and not (request.ckpt_path or request.init_from or request.helps):
        raise CommandError(
            f"{command}: no weights; expected --ckpt_path with a run or checkpoint, or "
            "--model.init_from with a Hugging Face model"
        )
    if command != "fit" and request.stages is not None:
        request = with_last_stage(request)
    if command != "fit" and request.ckpt_path is not None and is_model(request.ckpt_path):
        request = read_request(use_folder(request))
    checkpoint = read_checkpoint(request, command)
    checkpoint = _choose_head(command, request, checkpoint)
    warm = read_warm_start(request) if checkpoint is None else None  # else all is in there
    if checkpoint is not None and not request.files:
        assert checkpoint.path is not None
        record = checkpoint.path.parent.parent / CONFIG_FILE
        check_nothing_lacks(command, checkpoint.path, checkpoint.left_out, record)
        name = str(checkpoint.path)
        request = read_request(request.argv, checkpoint.config, name, checkpoint.path)
    start = warm if checkpoint is None else checkpoint
    if start is not None and request.init_from is not None:
        request.take_sizes(start.encoder_config)
    resumed = None if checkpoint is None else checkpoint.config
    seed = None if resumed is None else resumed["seed_everything"]
    config = parse_request(request, command, seed)
    return Session(config, checkpoint, warm, whole)


def _choose_head(
    command: str, request: Request, checkpoint: Pretrained | None
) -> Pretrained | None:
    """Return the checkpoint with the head that ``--head`` names, which predictions need, alone.

    Raises:
        CommandError: there is no checkpoint, or a config beside it, which has all heads.
    """
    if request.one_head is not None and (command == "fit" or checkpoint is None):
        raise CommandError(
            f"--head {request.one_head}: expected --ckpt_path with a run of several heads, to "
            "validate, test or predict"
        )
    if checkpoint is None or (command != "predict" and request.one_head is None):
        return checkpoint
    if request.one_head is not None and request.files:
        raise CommandError(
            f"--head {request.one_head}: found beside --config, expected one of them: the config of"
            " the checkpoint is used"
        )
    return one_head(checkpoint, request.one_head)
