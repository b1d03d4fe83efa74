"""Errors that a user can cause, and how they are told: all public names of both modules."""

from bertlab.errors.catalogue import *  # noqa: F403
from bertlab.errors.telling import *  # noqa: F403
