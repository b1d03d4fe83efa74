"""What the first-party packages add to the public face, for editors and type checkers.

``bertlab`` finds these names by the entry points ``bertlab.names``; nothing reads this file when it
runs. Where a package is not installed, its names are ``Any``.
"""

from bertlab_evaluations.contract import EvaluatedModel as EvaluatedModel
from bertlab_evaluations.contract import Evaluation as Evaluation
from bertlab_evaluations.contract import EvaluationResult as EvaluationResult
from bertlab_evaluations.contract import ScoreGrid as ScoreGrid
from bertlab_evaluations.embedding import embed_texts as embed_texts
from bertlab_evaluations.language_model import language_model as language_model
from bertlab_evaluations.language_model import text_sequences as text_sequences
from bertlab_evaluations.word_checkpoints import words_checkpoints as words_checkpoints
from bertlab_gpu.recomputation import SavedBytes as SavedBytes
from bertlab_gpu.recomputation import recompute_layers as recompute_layers
from bertlab_interop.contract import Exporter as Exporter
from bertlab_interop.contract import ExportReport as ExportReport
from bertlab_interop.contract import ModelAddress as ModelAddress
from bertlab_interop.export import export_model as export_model
from bertlab_interop.extend_vocabulary import extend_vocabulary as extend_vocabulary
from bertlab_interop.padded import padded_attention as padded_attention
from bertlab_interop.padded import padded_summary as padded_summary
from bertlab_modern.layer_depths import parameter_depths as parameter_depths
from bertlab_modern.modern import ModernEncoder as ModernEncoder
from bertlab_modern.modes import OptimizerModes as OptimizerModes
from bertlab_modern.saved_adapters import load_adapter as load_adapter
from bertlab_modern.saved_adapters import save_adapter as save_adapter
from bertlab_modern.stepping import JoinedOptimizer as JoinedOptimizer
from bertlab_pages.hookspecs import ReportSection as ReportSection
from bertlab_pages.loss_curve import draw_curves as draw_curves
from bertlab_pages.run_cost import estimate as estimate
from bertlab_studies.execute.contract import Executor as Executor
from bertlab_studies.execute.contract import OrderedMap as OrderedMap
from bertlab_studies.plan.flops import encoder_flops as encoder_flops
from bertlab_studies.study import Study as Study
from bertlab_studies.study import study as study
from bertlab_studies.study_scores import StudyScores as StudyScores
from bertlab_tasks.row_transforms import RowTransform as RowTransform
