"""The config of a run that ``validate``, ``test`` and ``predict`` use, read without PyTorch.

A command takes it from the checkpoint. The same is in the run's ``config.yaml``, which is enough to
tell which plugins the run has, and so which keys there are. Like a checkpoint, it may come from
anywhere: it is read as data, of which a closed list of keys is taken.
"""

from pathlib import Path

from bertlab import BertlabError
from bertlab.extend import (
    CONFIG_FILE,
    Request,
    read_config,
    read_request,
    read_stored_config,
)

# all that a record of keys is about, and none of packages, whose hooks would be asked
_SECTIONS = ("model", "data", "trainer", "seed", "seed_everything")


def with_stored_config(request: Request) -> Request | None:
    """Return a request merged with the config of its run; None where that is not plain to see."""
    if request.files:
        return request
    if request.ckpt_path is None or request.one_head is not None:
        return None
    path = Path(request.ckpt_path).expanduser()
    run = path.parent.parent if path.is_file() else path  # RUN/checkpoints/last.ckpt
    file = run / CONFIG_FILE
    if not file.is_file() or (run / "stages").exists():
        return None
    try:
        content = read_config(file)
        part = {name: content[name] for name in _SECTIONS if name in content}
        stored, _ = read_stored_config(part, str(file))
        merged = read_request(request.argv, stored, str(file), file)
    except BertlabError:  # the command itself says it, of its checkpoint
        return None
    return None if merged.heads else merged  # a prediction takes one of them
