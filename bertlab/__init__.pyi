"""The public face, for editors and type checkers; ``__init__.py`` reads its names from here."""

from pathlib import Path
from typing import Any

from torchmetrics import Metric as Metric

from bertlab.added_names import *  # noqa: F403  what first-party packages add
from bertlab.api.batch import EncoderOutput as EncoderOutput
from bertlab.api.batch import IntArray as IntArray
from bertlab.api.batch import PackedBatch as PackedBatch
from bertlab.api.batch import PackedSequences as PackedSequences
from bertlab.api.batch import TokenLabels as TokenLabels
from bertlab.api.batch import first_token as first_token
from bertlab.api.batch import last_token as last_token
from bertlab.api.batch import pack as pack
from bertlab.api.command import Command as Command
from bertlab.api.encoder import Adapter as Adapter
from bertlab.api.encoder import Encoder as Encoder
from bertlab.api.examples import Column as Column
from bertlab.api.examples import DataSource as DataSource
from bertlab.api.examples import Example as Example
from bertlab.api.examples import Features as Features
from bertlab.api.examples import Labels as Labels
from bertlab.api.examples import RawDocument as RawDocument
from bertlab.api.examples import RawExamples as RawExamples
from bertlab.api.examples import text_ids as text_ids
from bertlab.api.exchange import CheckpointReader as CheckpointReader
from bertlab.api.exchange import ForeignCheckpoint as ForeignCheckpoint
from bertlab.api.format import NamedFormat as NamedFormat
from bertlab.api.format import Submission as Submission
from bertlab.api.optimizer import OptimizerRecipe as OptimizerRecipe
from bertlab.api.optimizer import ParameterGroup as ParameterGroup
from bertlab.api.optimizer import Progress as Progress
from bertlab.api.optimizer import Schedule as Schedule
from bertlab.api.rng import CounterRNG as CounterRNG
from bertlab.api.task import Head as Head
from bertlab.api.task import Objective as Objective
from bertlab.api.task import Task as Task
from bertlab.api.task import TaskContext as TaskContext
from bertlab.api.task import TaskLoss as TaskLoss
from bertlab.api.tokenizer import SpecialTokens as SpecialTokens
from bertlab.api.tokenizer import Tokenizer as Tokenizer
from bertlab.api.tokenizer import TokenizerKind as TokenizerKind
from bertlab.checkpoints.pretrained import Pretrained as Pretrained
from bertlab.checkpoints.pretrained_model import PretrainedModel as PretrainedModel
from bertlab.checkpoints.pretrained_model import load as load
from bertlab.cli.main import main as main
from bertlab.data.corpus.store import TokenStore as TokenStore
from bertlab.data.examples.encoded import encode_examples as encode_examples
from bertlab.data.loader import prepare_sequences as prepare_sequences
from bertlab.data.module import TaskData as TaskData
from bertlab.encoders.bert import BertEncoder as BertEncoder
from bertlab.encoders.bert import sinusoidal_positions as sinusoidal_positions
from bertlab.encoders.layers import final_states as final_states
from bertlab.encoders.layers import initialize as initialize
from bertlab.encoders.layers import packed_lstm as packed_lstm
from bertlab.errors import BertlabError as BertlabError
from bertlab.errors import CheckpointError as CheckpointError
from bertlab.errors import CommandError as CommandError
from bertlab.errors import ConfigError as ConfigError
from bertlab.errors import CorpusError as CorpusError
from bertlab.errors import DataError as DataError
from bertlab.errors import EvaluationError as EvaluationError
from bertlab.errors import PluginError as PluginError
from bertlab.errors import TokenizerError as TokenizerError
from bertlab.errors import check_at_least as check_at_least
from bertlab.errors import check_choice as check_choice
from bertlab.errors import check_share as check_share
from bertlab.errors import nearest as nearest
from bertlab.heads.classification import ClassifierHead as ClassifierHead
from bertlab.objectives.classification import Accuracy as Accuracy
from bertlab.objectives.classification import MajorityAccuracy as MajorityAccuracy
from bertlab.objectives.classification import NextSentencePrediction as NextSentencePrediction
from bertlab.objectives.classification import classification_loss as classification_loss
from bertlab.objectives.language_model import CausalLM as CausalLM
from bertlab.objectives.language_model import TokenPrediction as TokenPrediction
from bertlab.objectives.masked_lm import MaskedLM as MaskedLM
from bertlab.objectives.masking import KeyedDraws as KeyedDraws
from bertlab.objectives.masking import MaskableTokens as MaskableTokens
from bertlab.objectives.masking import MaskingRecipe as MaskingRecipe
from bertlab.objectives.masking import MaskingUnit as MaskingUnit
from bertlab.objectives.masking import TokenClasses as TokenClasses
from bertlab.objectives.masking import dynamic_draws as dynamic_draws
from bertlab.objectives.masking import evaluation_draws as evaluation_draws
from bertlab.objectives.masking import mask_tokens as mask_tokens
from bertlab.plugins.hooks import FitKeys as FitKeys
from bertlab.plugins.hooks import hookimpl as hookimpl
from bertlab.plugins.hooks import hookspec as hookspec
from bertlab.tokenizer.files import WordPieceTokenizer as WordPieceTokenizer
from bertlab.tokenizer.files import load_tokenizer as load_tokenizer
from bertlab.training.run import Run as Run
from bertlab.training.run import fit as fit

__version__: str

def names_in(stub: Path) -> dict[str, tuple[str, str]]: ...
def __getattr__(name: str) -> Any: ...  # noqa: ANN401  what other packages add
