"""What the checks of encoders work with."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from bertlab.api.batch import PackedBatch, pack
from bertlab.api.encoder import Encoder
from bertlab.api.head import Head
from bertlab.api.task import Task
from bertlab.objectives.causal_lm import CausalLM
from bertlab.objectives.masked_lm import MaskedLM
from bertlab.testing.cases import SEED, Case, Options
from bertlab.testing.task_cases import HeadCase, ObjectiveCase, TaskCase, disturb, seeded


class EncoderCase(Case):
    """An encoder under test."""

    plugin: type[Encoder]

    def encoder(self, seed: int = SEED, disturbed: bool = True) -> Encoder:
        """Return an encoder in evaluation mode; arguments as for :meth:`TaskCase.stack`."""
        with seeded(seed):
            encoder: Encoder = self.new()
            if disturbed:
                disturb(encoder)
        return encoder.eval()

    def below(self, task: type[Task], **arguments: Any) -> TaskCase:  # noqa: ANN401  any task's
        """Return the case of a task on this encoder."""
        maker = partial(self.plugin, **self.options.arguments)
        options = Options(arguments, vocabulary=self.options.vocabulary, encoder=maker)
        return (HeadCase if issubclass(task, Head) else ObjectiveCase)(task, options)

    def language_model(self) -> TaskCase:
        """Return the case of ``mlm``, or of ``clm`` on a left-to-right encoder."""
        return self.below(CausalLM if self.encoder().causal else MaskedLM)

    def batch(self, lengths: Sequence[int] = (9, 1, 16, 5, 12, 3)) -> PackedBatch:
        """Return sequences of words, none special, of the given lengths in tokens."""
        words = self.language.ids_of_words
        rng = np.random.default_rng(SEED)
        return pack([rng.choice(words, length).tolist() for length in lengths])

    def new(self) -> Encoder:
        """Return an encoder for the vocabulary."""
        vocab_size = self.language.tokenizer.vocab_size
        encoder: Encoder = self.plugin(vocab_size=vocab_size, **self.options.arguments)
        return encoder
