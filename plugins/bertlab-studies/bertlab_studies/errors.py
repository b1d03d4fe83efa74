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
    """Runs of a study were trained or scored on different data, so they cannot be compared.

    Usually a corpus or a file of rows was changed between two calls of `study run`: the runs of
    before and after have the same settings, and yet a mean over both describes neither.
    """

    code = "E204"
    remedy = (
        "Put the old data back, or delete the directories of the runs on the old data and run the "
        "study again. With `--accept_mixture true` the report uses all runs, and each of its "
        "tables says that they are mixed."
    )
