"""Mistakes in studies, see ``bertlab explain``."""

from bertlab.api import ConfigError


class StudyError(ConfigError):
    """A study's file, a variant or an evaluation of it, or its directory is wrong."""

    code = "E201"
    remedy = (
        "Correct the study's file; `bertlab study plan FILE` checks all of it, and what every run "
        "of it would be, without any compute."
    )


class StudyChangedError(StudyError):
    """A study's file was changed in a way that leaves out runs that were begun."""

    code = "E202"
    remedy = (
        "Take the change back, or begin another study with `--study_dir`, or leave the runs that "
        "are not asked any more out of the report with `--accept_changes true`."
    )


class ExecutorError(StudyError):
    """The workers of a study cannot be had: Ray, SLURM, cores, devices, or file locks."""

    code = "E203"
    remedy = (
        "Give what the message names, or run on this machine with `--executor local`. Runs that "
        "are done are not run again."
    )


class MixtureError(StudyError):
    """Runs of a study that should have the same data have not: a mean over them is of no one thing.

    Mostly a corpus or a file of rows was replaced between two `study run`.
    """

    code = "E204"
    remedy = (
        "Put the data back, or delete the runs of one side and run the study again, or mark all "
        "tables of the report with `--accept_mixture true`."
    )
