"""What a study takes of this machine: a few steps of its largest pre-training are timed."""

from bertlab.api import BertlabError
from bertlab.extend import told
from bertlab_pages.run_cost import in_bytes, in_time, measure_pretraining
from bertlab_studies.execute.run_state import State, read_states
from bertlab_studies.plan.budget import pretraining_cost
from bertlab_studies.study import Study


def machine_line(study: Study) -> str | None:
    """Return time, memory and disk of the pre-trainings that are left; None if none tells.

    A run's time is taken to grow with its FLOPs, from those of the largest one.
    """
    plan = study.planned
    states = read_states(study.runs, study.study_dir)
    left = []
    for run in study.runs:
        config = plan.configs[run.variant, run.stage]
        cost = pretraining_cost(config)
        if cost is not None and cost.flops and states[run.id] is not State.DONE:
            left.append((cost.flops, run, config))
    if not left:
        return None
    flops, run, config = max(left, key=lambda each: each[0])
    try:
        found = measure_pretraining(config)
    except (BertlabError, RuntimeError, OSError, ValueError) as error:
        return f"time on this machine is not known: {told(error)}"
    if found is None or found.seconds is None:
        return None
    seconds = found.seconds * sum(each for each, _, _ in left) / flops
    return (
        f"pre-training takes about {in_time(seconds)} of this machine, one run after the other "
        f"(timed: a few steps of {run.id}), {in_bytes(found.memory)} of memory a run and "
        f"{in_bytes(found.disk * len(left))} of disk"
    )
