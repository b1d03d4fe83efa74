"""What first-party packages and strangers may build on beside the contract, by where it is.

The names are listed here once: `extend.py` reads them from this file, mypy and editors do as well.
"""

from bertlab.api.batch import pad_to_multiple_of as pad_to_multiple_of
from bertlab.api.evaluation import FloatArray as FloatArray
from bertlab.api.format import ColumnSources as ColumnSources
from bertlab.api.format import LabelNames as LabelNames
from bertlab.api.huggingface import (
    HeadLayout as HeadLayout,
)
from bertlab.api.huggingface import (
    HuggingFaceForm as HuggingFaceForm,
)
from bertlab.api.huggingface import (
    check_only as check_only,
)
from bertlab.api.huggingface import (
    real_number as real_number,
)
from bertlab.api.huggingface import (
    whole_number as whole_number,
)
from bertlab.api.source import holds_no_examples as holds_no_examples
from bertlab.api.task import build_all as build_all
from bertlab.api.tokenizer import (
    BoolArray as BoolArray,
)
from bertlab.api.tokenizer import (
    PairLayout as PairLayout,
)
from bertlab.api.tokenizer import (
    TokenArray as TokenArray,
)
from bertlab.api.tokenizer import (
    TokenizerFiles as TokenizerFiles,
)
from bertlab.api.tokenizer import (
    model_ids as model_ids,
)
from bertlab.api.tokenizer import (
    word_starts as word_starts,
)
from bertlab.checkpoints.export import TransformersExporter as TransformersExporter
from bertlab.checkpoints.export_folder import save_tokenizer as save_tokenizer
from bertlab.checkpoints.huggingface import (
    config_file as config_file,
)
from bertlab.checkpoints.huggingface import (
    read_huggingface_config as read_huggingface_config,
)
from bertlab.checkpoints.loading import load_matching as load_matching
from bertlab.checkpoints.pretrained_model import model_of as model_of
from bertlab.checkpoints.restore import (
    inference_device as inference_device,
)
from bertlab.checkpoints.restore import (
    known_tokenizer as known_tokenizer,
)
from bertlab.checkpoints.restore import (
    read_pretrained as read_pretrained,
)
from bertlab.checkpoints.run_checkpoint import (
    BEST_CHECKPOINT as BEST_CHECKPOINT,
)
from bertlab.checkpoints.run_checkpoint import (
    words_checkpoint_name as words_checkpoint_name,
)
from bertlab.checkpoints.run_checkpoint import (
    words_checkpoints as words_checkpoints,
)
from bertlab.checkpoints.run_directory import (
    CONFIG_FILE as CONFIG_FILE,
)
from bertlab.checkpoints.run_directory import (
    DEGENERATE_FILE as DEGENERATE_FILE,
)
from bertlab.checkpoints.run_directory import (
    MANIFEST_FILE as MANIFEST_FILE,
)
from bertlab.checkpoints.run_directory import (
    PREDICTIONS_FILE as PREDICTIONS_FILE,
)
from bertlab.checkpoints.run_directory import (
    RESULTS_FILE as RESULTS_FILE,
)
from bertlab.checkpoints.run_directory import (
    STAGES_FILE as STAGES_FILE,
)
from bertlab.checkpoints.run_directory import (
    STUDY_ENVIRONMENT as STUDY_ENVIRONMENT,
)
from bertlab.checkpoints.run_directory import (
    VARIANT_ENVIRONMENT as VARIANT_ENVIRONMENT,
)
from bertlab.checkpoints.run_directory import (
    choose_run_directory as choose_run_directory,
)
from bertlab.checkpoints.run_directory import (
    machine_facts as machine_facts,
)
from bertlab.checkpoints.run_directory import (
    manifest as manifest,
)
from bertlab.cli.data import name_corpus as name_corpus
from bertlab.config.executor_options import (
    LOCAL_EXECUTOR as LOCAL_EXECUTOR,
)
from bertlab.config.executor_options import (
    add_executor_options as add_executor_options,
)
from bertlab.config.executor_options import (
    load_executor as load_executor,
)
from bertlab.config.executor_options import (
    option_names as option_names,
)
from bertlab.config.merge import read_request as read_request
from bertlab.config.named_classes import (
    check_importable as check_importable,
)
from bertlab.config.named_classes import (
    check_no_classes as check_no_classes,
)
from bertlab.config.named_classes import (
    importing_no_classes as importing_no_classes,
)
from bertlab.config.overrides import (
    Overrides as Overrides,
)
from bertlab.config.overrides import (
    as_overrides as as_overrides,
)
from bertlab.config.overrides import (
    to_arguments as to_arguments,
)
from bertlab.config.parse import parse_arguments as parse_arguments
from bertlab.config.parse import parse_config as parse_config
from bertlab.config.parser import data_class as data_class
from bertlab.config.plain_yaml import load_yaml as load_yaml
from bertlab.config.request import (
    OBJECTIVES_SHARE as OBJECTIVES_SHARE,
)
from bertlab.config.request import (
    Request as Request,
)
from bertlab.config.request import (
    fine_tunes as fine_tunes,
)
from bertlab.config.request import (
    heads_by_name as heads_by_name,
)
from bertlab.config.run_config import (
    last_config as last_config,
)
from bertlab.config.run_config import (
    resolve_arguments as resolve_arguments,
)
from bertlab.config.run_config import (
    stage_configs as stage_configs,
)
from bertlab.config.seeds import (
    SEED_PARTS as SEED_PARTS,
)
from bertlab.config.seeds import (
    SEED_SECTION as SEED_SECTION,
)
from bertlab.config.seeds import (
    check_seed as check_seed,
)
from bertlab.config.seeds import (
    choose_seed as choose_seed,
)
from bertlab.config.shipped import find_config as find_config
from bertlab.config.shipped import shipped_configs as shipped_configs
from bertlab.config.stages import (
    STAGES_KEY as STAGES_KEY,
)
from bertlab.config.stages import (
    naming_stage as naming_stage,
)
from bertlab.config.stages import (
    read_stages as read_stages,
)
from bertlab.config.yaml_files import (
    Config as Config,
)
from bertlab.config.yaml_files import (
    differences as differences,
)
from bertlab.config.yaml_files import (
    read_config as read_config,
)
from bertlab.config.yaml_files import (
    split_arguments as split_arguments,
)
from bertlab.config.yaml_files import (
    take_options as take_options,
)
from bertlab.config.yaml_files import (
    yaml_inline as yaml_inline,
)
from bertlab.data.corpus.corpus import (
    Corpus as Corpus,
)
from bertlab.data.corpus.corpus import (
    input_digests as input_digests,
)
from bertlab.data.corpus.corpus import (
    read_raw_documents as read_raw_documents,
)
from bertlab.data.corpus.documents import count_words as count_words
from bertlab.data.corpus.prepare import (
    default_cache_dir as default_cache_dir,
)
from bertlab.data.corpus.prepare import (
    open_prepared as open_prepared,
)
from bertlab.data.corpus.prepare import (
    unwritable_cache as unwritable_cache,
)
from bertlab.data.corpus.shards import (
    SHARD_FOLDER as SHARD_FOLDER,
)
from bertlab.data.corpus.shards import (
    RemoteStore as RemoteStore,
)
from bertlab.data.corpus.shards import (
    ShardArray as ShardArray,
)
from bertlab.data.corpus.store_writer import check_free as check_free
from bertlab.data.examples.columns import Mapped as Mapped
from bertlab.data.examples.encoded import EncodedExamples as EncodedExamples
from bertlab.data.examples.encoded import collate as collate
from bertlab.data.examples.source import read_all_rows as read_all_rows
from bertlab.data.examples.splits import fingerprint as fingerprint
from bertlab.data.examples.values import ordered_names as ordered_names
from bertlab.data.examples.values import read_value as read_value
from bertlab.data.filling import Filling as Filling
from bertlab.data.fine_tuning import LabelledData as LabelledData
from bertlab.data.inputs import TextRows as TextRows
from bertlab.data.inputs import given_texts as given_texts
from bertlab.data.loader import StepLoader as StepLoader
from bertlab.data.loader import TrainingSteps as TrainingSteps
from bertlab.data.module import (
    OWN_DATA as OWN_DATA,
)
from bertlab.data.module import (
    EvaluationRows as EvaluationRows,
)
from bertlab.data.module import (
    ReportRow as ReportRow,
)
from bertlab.data.module import (
    naming as naming,
)
from bertlab.data.module import (
    naming_head as naming_head,
)
from bertlab.data.pretraining import PretrainingData as PretrainingData
from bertlab.data.rows.lines import (
    STANDARD_INPUT as STANDARD_INPUT,
)
from bertlab.data.rows.lines import (
    input_name as input_name,
)
from bertlab.data.rows.lines import (
    read_lines as read_lines,
)
from bertlab.data.rows.tables import parse_row_json as parse_row_json
from bertlab.data.rows.tables import words_of as words_of
from bertlab.data.sampling.input_formats import (
    SAMPLERS as SAMPLERS,
)
from bertlab.data.sampling.input_formats import (
    InputFormat as InputFormat,
)
from bertlab.data.sampling.input_formats import (
    build_sampler as build_sampler,
)
from bertlab.data.sampling.sampler import SequenceSampler as SequenceSampler
from bertlab.data.sources import is_source as is_source
from bertlab.data.step_sizes import StepSizes as StepSizes
from bertlab.encoders.attention import (
    dtype_of_products as dtype_of_products,
)
from bertlab.encoders.attention import (
    keys_seen as keys_seen,
)
from bertlab.encoders.bert import SelfAttention as SelfAttention
from bertlab.encoders.bert_form import POSITION_NAMES as POSITION_NAMES
from bertlab.encoders.bert_form import BertForm as BertForm
from bertlab.encoders.layers import (
    Dropout as Dropout,
)
from bertlab.encoders.layers import (
    check_sizes as check_sizes,
)
from bertlab.encoders.layers import (
    choose_preset as choose_preset,
)
from bertlab.encoders.layers import (
    given_or as given_or,
)
from bertlab.encoders.layers import (
    rows_read as rows_read,
)
from bertlab.encoders.layers import (
    states_at_rows as states_at_rows,
)
from bertlab.encoders.padded import (
    padded_attention as padded_attention,
)
from bertlab.encoders.padded import (
    padded_keys_seen as padded_keys_seen,
)
from bertlab.encoders.padded import (
    padded_summary as padded_summary,
)
from bertlab.encoders.states import (
    LayerStates as LayerStates,
)
from bertlab.encoders.states import (
    check_layers as check_layers,
)
from bertlab.encoders.states import (
    combine_layers as combine_layers,
)
from bertlab.encoders.states import (
    layer_states as layer_states,
)
from bertlab.errors import (
    CorruptionError as CorruptionError,
)
from bertlab.errors import (
    DamagedCheckpointError as DamagedCheckpointError,
)
from bertlab.errors import (
    ExecutorError as ExecutorError,
)
from bertlab.errors import (
    MixtureError as MixtureError,
)
from bertlab.errors import (
    NumericalError as NumericalError,
)
from bertlab.errors import (
    OutputError as OutputError,
)
from bertlab.errors import (
    StudyChangedError as StudyChangedError,
)
from bertlab.errors import (
    StudyError as StudyError,
)
from bertlab.errors import (
    TokenStoreError as TokenStoreError,
)
from bertlab.errors import (
    as_mistakes as as_mistakes,
)
from bertlab.errors import (
    check_processes as check_processes,
)
from bertlab.errors import (
    printable as printable,
)
from bertlab.errors import (
    say as say,
)
from bertlab.errors import (
    visible as visible,
)
from bertlab.errors import (
    warn as warn,
)
from bertlab.errors import (
    working as working,
)
from bertlab.files import (
    explain_failed_write as explain_failed_write,
)
from bertlab.files import (
    new_folder as new_folder,
)
from bertlab.files import (
    replacing as replacing,
)
from bertlab.files import (
    utf8 as utf8,
)
from bertlab.files import (
    why_no_file_name as why_no_file_name,
)
from bertlab.files import (
    write_json as write_json,
)
from bertlab.files import (
    write_text as write_text,
)
from bertlab.files.reading import (
    LARGEST_FILE as LARGEST_FILE,
)
from bertlab.files.reading import (
    explain_damage as explain_damage,
)
from bertlab.files.reading import (
    json_line as json_line,
)
from bertlab.files.reading import (
    open_to_read as open_to_read,
)
from bertlab.files.reading import (
    parse_json as parse_json,
)
from bertlab.files.reading import (
    read_bytes as read_bytes,
)
from bertlab.files.reading import (
    read_json as read_json,
)
from bertlab.files.reading import (
    read_object as read_object,
)
from bertlab.files.reading import (
    spreadsheet_csv as spreadsheet_csv,
)
from bertlab.files.reading import (
    spreadsheet_rows as spreadsheet_rows,
)
from bertlab.files.remote import RemoteFile as RemoteFile
from bertlab.heads.sentence_pair import pair_features as pair_features
from bertlab.heads.single_sentence import (
    SingleSentence as SingleSentence,
)
from bertlab.heads.single_sentence import (
    text_features as text_features,
)
from bertlab.heads.span_answers import (
    answer_scores as answer_scores,
)
from bertlab.heads.span_answers import (
    best_null_threshold as best_null_threshold,
)
from bertlab.heads.span_answers import (
    best_text as best_text,
)
from bertlab.heads.tag_schemes import Scheme as Scheme
from bertlab.heads.tag_schemes import entities as entities
from bertlab.heads.tag_schemes import to_bio as to_bio
from bertlab.heads.tagging import Tagging as Tagging
from bertlab.model.build import (
    build_encoder as build_encoder,
)
from bertlab.model.build import (
    build_metrics as build_metrics,
)
from bertlab.model.build import (
    build_tasks as build_tasks,
)
from bertlab.model.build import (
    check_lengths as check_lengths,
)
from bertlab.model.embedding import (
    FeatureChoice as FeatureChoice,
)
from bertlab.model.embedding import (
    batches_by_length as batches_by_length,
)
from bertlab.model.embedding import (
    embed_texts as embed_texts,
)
from bertlab.model.evaluation import (
    EvaluationSet as EvaluationSet,
)
from bertlab.model.evaluation import (
    heads_direction as heads_direction,
)
from bertlab.model.fsdp import FullyShardedStrategy as FullyShardedStrategy
from bertlab.model.module import BertModule as BertModule
from bertlab.model.optimizer_config import (
    COMMON_OPTIMIZER_KEYS as COMMON_OPTIMIZER_KEYS,
)
from bertlab.model.optimizer_config import (
    PLUGGED_OPTIMIZER_KEYS as PLUGGED_OPTIMIZER_KEYS,
)
from bertlab.model.optimizer_config import (
    OptimizerConfig as OptimizerConfig,
)
from bertlab.model.optimizer_config import (
    read_optimizer as read_optimizer,
)
from bertlab.model.optimizers.adamw import check_betas as check_betas
from bertlab.model.optimizers.adamw import check_eps as check_eps
from bertlab.model.optimizers.stepping import loss_of as loss_of
from bertlab.model.parameter_groups import parameter_groups as parameter_groups
from bertlab.model.schedule import (
    check_budget as check_budget,
)
from bertlab.model.schedule import (
    check_changes as check_changes,
)
from bertlab.model.schedule import (
    check_schedule as check_schedule,
)
from bertlab.model.schedule import (
    is_endless as is_endless,
)
from bertlab.model.schedule import (
    training_size as training_size,
)
from bertlab.model.task_checks import (
    check_tasks as check_tasks,
)
from bertlab.model.task_checks import (
    check_whole_steps as check_whole_steps,
)
from bertlab.objectives.changing import largest_of as largest_of
from bertlab.objectives.changing import mean_of as mean_of
from bertlab.plugins.hooks import report_sections as report_sections
from bertlab.plugins.index import (
    RECORDED_AS as RECORDED_AS,
)
from bertlab.plugins.index import (
    Kind as Kind,
)
from bertlab.plugins.index import (
    installed as installed,
)
from bertlab.plugins.index import (
    load_class as load_class,
)
from bertlab.plugins.index import (
    version_of as version_of,
)
from bertlab.plugins.origin import content_hash as content_hash
from bertlab.plugins.signatures import broken_signature as broken_signature
from bertlab.tokenizer.files import (
    SPECIAL_TOKENS as SPECIAL_TOKENS,
)
from bertlab.tokenizer.files import (
    added_tokens as added_tokens,
)
from bertlab.tokenizer.files import (
    check_ids as check_ids,
)
from bertlab.tokenizer.files import (
    checked_vocabulary as checked_vocabulary,
)
from bertlab.tokenizer.files import (
    special_token as special_token,
)
from bertlab.tokenizer.kinds import train_tokenizer as train_tokenizer
from bertlab.tokenizer.training import MAX_WORD_CHARACTERS as MAX_WORD_CHARACTERS
from bertlab.tokenizer.wordpiece import prefixed as prefixed
from bertlab.training.allocator import keep_freed_memory as keep_freed_memory
from bertlab.training.callbacks.run_record import RunRecord as RunRecord
from bertlab.training.callbacks.watch import LOSS_WINDOW as LOSS_WINDOW
from bertlab.training.callbacks.watch import jump_above as jump_above
from bertlab.training.console import duration as duration
from bertlab.training.console import print_table as print_table
from bertlab.training.history import (
    WordCurve as WordCurve,
)
from bertlab.training.history import (
    draw_curves as draw_curves,
)
from bertlab.training.history import (
    read_curves as read_curves,
)
from bertlab.training.history import (
    read_word_curves as read_word_curves,
)
from bertlab.training.made_with import facts_of as facts_of
from bertlab.training.made_with import sessions_of as sessions_of
from bertlab.training.results import (
    Results as Results,
)
from bertlab.training.results import (
    is_share as is_share,
)
from bertlab.training.results import (
    read_results as read_results,
)
from bertlab.training.results import (
    result_rows as result_rows,
)
from bertlab.training.results import (
    shown_figure as shown_figure,
)
from bertlab.training.step_memory import free_memory as free_memory
from bertlab.training.trainer import quiet_lightning as quiet_lightning
