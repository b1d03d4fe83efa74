"""One of several heads of a fine-tuned run: the checkpoint as if it had been trained alone.

The weights are those of the run with all heads. Only names change: the task is called by its
plugin, ``sentence_pair``, as in a run with ``model.head``, and the head's own data settings stand
where those of a single head do.
"""

from dataclasses import replace

from bertlab.checkpoints.pretrained import Pretrained
from bertlab.config.heads import one_head_config
from bertlab.errors import CommandError, nearest


def one_head(start: Pretrained, name: str | None, key: str = "--head") -> Pretrained:
    """Return what a checkpoint holds of one of its heads, in the form of a run with one head.

    So all that reads such a run reads this one: prediction, export, demo. What has no several heads
    is returned as it is.
    """
    config = start.config
    # of a Hugging Face folder there is no config, and at most one head
    heads = {} if config is None else config["model"].get("heads") or {}
    if config is None or not heads:
        own = None if start.head_config is None else start.head_config["name"]
        if name not in (None, own):
            there = "it has none" if own is None else f"it has one, {own}"
            raise CommandError(
                f"{key}: found {name!r}, but {start.source} has no several heads ({there}); leave "
                "it out"
            )
        return start
    if name is None and len(heads) == 1:
        (name,) = heads
    if name is None or name not in heads:
        found = "none" if name is None else repr(name)
        raise CommandError(
            f"{key}: found {found}, expected one of the heads of {start.source}: "
            f"{', '.join(heads)}{nearest(name or '', heads)}"
        )
    plugin, prefix = heads[name]["name"], f"tasks.{name}."
    state = {
        # tasks.mrpc.classifier.weight -> tasks.sentence_pair.classifier.weight
        key.replace(prefix, f"tasks.{plugin}.", 1): tensor
        for key, tensor in start.state.items()
        if key.startswith(("encoder.", prefix))
    }
    return replace(
        start,
        config=one_head_config(config, name),
        state=state,
        labels=start.head_labels.get(name),
        head_labels={},
    )
