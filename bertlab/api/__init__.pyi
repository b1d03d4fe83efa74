"""The names of the contract; ``__init__.py`` reads them from here."""

from bertlab import Adapter as Adapter
from bertlab import BertlabError as BertlabError
from bertlab import CheckpointReader as CheckpointReader
from bertlab import Column as Column
from bertlab import Command as Command
from bertlab import ConfigError as ConfigError
from bertlab import CorpusError as CorpusError
from bertlab import CounterRNG as CounterRNG
from bertlab import DataError as DataError
from bertlab import DataSource as DataSource
from bertlab import Encoder as Encoder
from bertlab import EncoderOutput as EncoderOutput
from bertlab import EvaluationError as EvaluationError
from bertlab import Example as Example
from bertlab import Features as Features
from bertlab import ForeignCheckpoint as ForeignCheckpoint
from bertlab import Head as Head
from bertlab import Labels as Labels
from bertlab import Metric as Metric
from bertlab import NamedFormat as NamedFormat
from bertlab import Objective as Objective
from bertlab import OptimizerRecipe as OptimizerRecipe
from bertlab import PackedBatch as PackedBatch
from bertlab import PackedSequences as PackedSequences
from bertlab import ParameterGroup as ParameterGroup
from bertlab import PluginError as PluginError
from bertlab import Progress as Progress
from bertlab import RawDocument as RawDocument
from bertlab import RawExamples as RawExamples
from bertlab import Schedule as Schedule
from bertlab import SpecialTokens as SpecialTokens
from bertlab import Submission as Submission
from bertlab import Task as Task
from bertlab import TaskContext as TaskContext
from bertlab import TaskData as TaskData
from bertlab import TaskLoss as TaskLoss
from bertlab import Tokenizer as Tokenizer
from bertlab import TokenizerError as TokenizerError
from bertlab import TokenizerKind as TokenizerKind
from bertlab import TokenLabels as TokenLabels
from bertlab import WordPieceTokenizer as WordPieceTokenizer
from bertlab import first_token as first_token
from bertlab import hookimpl as hookimpl
from bertlab import hookspec as hookspec
from bertlab import last_token as last_token
from bertlab import pack as pack

# for type checkers: what the packages that call them add to the face as bertlab.names
from bertlab_evaluations.contract import EvaluatedModel as EvaluatedModel
from bertlab_evaluations.contract import Evaluation as Evaluation
from bertlab_evaluations.contract import EvaluationResult as EvaluationResult
from bertlab_evaluations.contract import ScoreGrid as ScoreGrid
from bertlab_evaluations.language_model import language_model as language_model
from bertlab_evaluations.language_model import text_sequences as text_sequences
from bertlab_interop.contract import Exporter as Exporter
from bertlab_interop.contract import ExportReport as ExportReport
from bertlab_interop.contract import ModelAddress as ModelAddress
from bertlab_pages.hookspecs import ReportSection as ReportSection
from bertlab_studies.execute.contract import Executor as Executor
from bertlab_studies.execute.contract import OrderedMap as OrderedMap

CONTRACT: int
OLDEST_CONTRACT: int
