"""What first-party packages and strangers may build on beside the contract, by where it is.

The names are listed here once: `extend.py` reads them from this file, mypy and editors do as well.
"""

from bertlab.api.batch import pad_to_multiple_of as pad_to_multiple_of
from bertlab.api.encoder import layers_of as layers_of
from bertlab.api.evaluation import FloatArray as FloatArray
from bertlab.api.examples import LabelledExamples as LabelledExamples, holds_no_examples as holds_no_examples
from bertlab.api.format import ColumnSources as ColumnSources, LabelNames as LabelNames
from bertlab.api.huggingface import HeadLayout as HeadLayout, HuggingFaceForm as HuggingFaceForm, check_only as check_only, real_number as real_number, whole_number as whole_number
from bertlab.api.task import build_all as build_all
from bertlab.api.tokenizer import BoolArray as BoolArray, PairLayout as PairLayout, TokenArray as TokenArray, TokenizerFiles as TokenizerFiles, model_ids as model_ids, word_starts as word_starts
from bertlab.checkpoints.export import TransformersExporter as TransformersExporter, save_tokenizer as save_tokenizer
from bertlab.checkpoints.huggingface import config_file as config_file, read_huggingface_config as read_huggingface_config
from bertlab.checkpoints.loading import load_matching as load_matching
from bertlab.checkpoints.pretrained import known_tokenizer as known_tokenizer
from bertlab.checkpoints.pretrained_model import model_of as model_of
from bertlab.checkpoints.restore import inference_device as inference_device, read_pretrained as read_pretrained
from bertlab.checkpoints.run_checkpoint import last_checkpoint as last_checkpoint, words_checkpoints as words_checkpoints
from bertlab.checkpoints.run_directory import BEST_CHECKPOINT as BEST_CHECKPOINT, CONFIG_FILE as CONFIG_FILE, DEGENERATE_FILE as DEGENERATE_FILE, MANIFEST_FILE as MANIFEST_FILE, PREDICTIONS_FILE as PREDICTIONS_FILE, RESULTS_FILE as RESULTS_FILE, STAGES_FILE as STAGES_FILE, STUDY_ENVIRONMENT as STUDY_ENVIRONMENT, VARIANT_ENVIRONMENT as VARIANT_ENVIRONMENT, choose_run_directory as choose_run_directory, machine_facts as machine_facts, manifest as manifest
from bertlab.checkpoints.tensor_files import WholeCheckpointIO as WholeCheckpointIO
from bertlab.cli.data import LOCAL_EXECUTOR as LOCAL_EXECUTOR, add_executor_options as add_executor_options, load_executor as load_executor, name_corpus as name_corpus, option_names as option_names
from bertlab.cli.main import COMMANDS as COMMANDS
from bertlab.config.merge import read_request as read_request
from bertlab.config.named_classes import check_importable as check_importable, check_no_classes as check_no_classes, importing_no_classes as importing_no_classes
from bertlab.config.parse import parse_arguments as parse_arguments, parse_config as parse_config
from bertlab.config.parser import data_class as data_class
from bertlab.config.request import OBJECTIVES_SHARE as OBJECTIVES_SHARE, Overrides as Overrides, Request as Request, SEED_PARTS as SEED_PARTS, SEED_SECTION as SEED_SECTION, as_overrides as as_overrides, check_seed as check_seed, choose_seed as choose_seed, fine_tunes as fine_tunes, heads_by_name as heads_by_name, to_arguments as to_arguments
from bertlab.config.run_config import resolve_arguments as resolve_arguments, resolve_request as resolve_request
from bertlab.config.shipped import find_config as find_config, shipped_configs as shipped_configs
from bertlab.config.stages import STAGES_KEY as STAGES_KEY, naming_stage as naming_stage, read_stages as read_stages, stage_requests as stage_requests
from bertlab.config.yaml_files import Config as Config, differences as differences, load_yaml as load_yaml, read_config as read_config, split_arguments as split_arguments, take_options as take_options, yaml_inline as yaml_inline
from bertlab.data.corpus.corpus import Corpus as Corpus, input_digests as input_digests, read_raw_documents as read_raw_documents
from bertlab.data.corpus.documents import Document as Document, count_words as count_words
from bertlab.data.corpus.prepare import default_cache_dir as default_cache_dir, open_prepared as open_prepared, unwritable_cache as unwritable_cache
from bertlab.data.corpus.python_english import python_english_documents as python_english_documents
from bertlab.data.corpus.store import ARRAYS as ARRAYS, SHARDED_VERSION as SHARDED_VERSION, StoreMetadata as StoreMetadata, checked_fields as checked_fields, damaged as damaged, map_array as map_array
from bertlab.data.corpus.store_writer import TokenStoreWriter as TokenStoreWriter, check_free as check_free
from bertlab.data.examples.columns import Mapped as Mapped
from bertlab.data.examples.encoded import EncodedExamples as EncodedExamples, collate as collate
from bertlab.data.examples.printed import looks_printed as looks_printed, parse_printed as parse_printed
from bertlab.data.examples.source import read_rows as read_rows
from bertlab.data.examples.splits import fingerprint as fingerprint
from bertlab.data.examples.values import ordered_names as ordered_names, read_value as read_value
from bertlab.data.fine_tuning import LabelledData as LabelledData
from bertlab.data.inputs import TextRows as TextRows, given_texts as given_texts
from bertlab.data.loader import StepLoader as StepLoader, TrainingSteps as TrainingSteps
from bertlab.data.module import EvaluationRows as EvaluationRows, OWN_DATA as OWN_DATA, ReportRow as ReportRow, naming as naming, naming_head as naming_head
from bertlab.data.pretraining import PretrainingData as PretrainingData
from bertlab.data.rows.data_sets import is_saved as is_saved
from bertlab.data.rows.files import ending_format as ending_format
from bertlab.data.rows.lines import STANDARD_INPUT as STANDARD_INPUT, input_name as input_name, read_lines as read_lines
from bertlab.data.rows.tables import parse_row_json as parse_row_json, words_of as words_of
from bertlab.data.run_length import StepSizes as StepSizes, check_budget as check_budget, check_changes as check_changes, is_endless as is_endless, training_size as training_size
from bertlab.data.sampling.sampler import ChunkGrid as ChunkGrid, Fields as Fields, MIN_DOCUMENT_LENGTH as MIN_DOCUMENT_LENGTH, Parts as Parts, Pieces as Pieces, SequenceSampler as SequenceSampler, TextPlaces as TextPlaces
from bertlab.data.sampling.segment_pairs import PairSampler as PairSampler, build_sampler as build_sampler, load_sampler as load_sampler, pair_labels as pair_labels, pair_pieces as pair_pieces
from bertlab.data.sources import RemoteFile as RemoteFile, is_source as is_source, is_url as is_url
from bertlab.encoders.attention import add_attention_kernel as add_attention_kernel, attend as attend, attention_by_padding as attention_by_padding, dtype_of_products as dtype_of_products, flash_attention as flash_attention, from_heads as from_heads, keys_seen as keys_seen, packed_attention as packed_attention, takes_flash as takes_flash, to_heads as to_heads
from bertlab.encoders.bert import SelfAttention as SelfAttention
from bertlab.encoders.bert_form import BertForm as BertForm, POSITION_NAMES as POSITION_NAMES, padded_attention as padded_attention, padded_summary as padded_summary
from bertlab.encoders.layers import Dropout as Dropout, check_sizes as check_sizes, choose_preset as choose_preset, given_or as given_or, rows_read as rows_read, states_at_rows as states_at_rows
from bertlab.errors import CorruptionError as CorruptionError, DamagedCheckpointError as DamagedCheckpointError, ExecutorError as ExecutorError, MixtureError as MixtureError, NumericalError as NumericalError, OutputError as OutputError, StudyChangedError as StudyChangedError, StudyError as StudyError, TokenStoreError as TokenStoreError, TrainerError as TrainerError, as_mistakes as as_mistakes, check_processes as check_processes, printable as printable, say as say, told as told, visible as visible, warn as warn, without_secrets as without_secrets, working as working
from bertlab.files import append_text as append_text, check_nothing_leads_out as check_nothing_leads_out, explain_failed_write as explain_failed_write, new_folder as new_folder, open_to_append as open_to_append, replacing as replacing, utf8 as utf8, why_no_file_name as why_no_file_name, write_json as write_json, write_text as write_text
from bertlab.files.reading import LARGEST_FILE as LARGEST_FILE, explain_damage as explain_damage, json_line as json_line, open_to_read as open_to_read, parse_json as parse_json, read_bytes as read_bytes, read_json as read_json, read_object as read_object, read_text as read_text
from bertlab.heads.classification import SequenceClassifier as SequenceClassifier
from bertlab.heads.sentences import SingleSentence as SingleSentence, pair_features as pair_features, text_features as text_features
from bertlab.heads.span_answers import answer_scores as answer_scores, best_null_threshold as best_null_threshold, best_text as best_text
from bertlab.heads.tag_schemes import Scheme as Scheme, entities as entities, to_bio as to_bio
from bertlab.heads.tagging import Tagging as Tagging
from bertlab.model.build import build_encoder as build_encoder, build_metrics as build_metrics, build_tasks as build_tasks, check_lengths as check_lengths, check_tasks as check_tasks, check_whole_steps as check_whole_steps
from bertlab.model.evaluation import EvaluationSet as EvaluationSet, end_of as end_of, heads_direction as heads_direction, known_ends as known_ends
from bertlab.model.losses import Passes as Passes
from bertlab.model.module import BertModule as BertModule
from bertlab.model.optimizer import parameter_groups as parameter_groups
from bertlab.model.optimizer_config import COMMON_OPTIMIZER_KEYS as COMMON_OPTIMIZER_KEYS, OptimizerConfig as OptimizerConfig, PLUGGED_OPTIMIZER_KEYS as PLUGGED_OPTIMIZER_KEYS, check_betas as check_betas, check_eps as check_eps, read_optimizer as read_optimizer
from bertlab.model.prediction import FeatureChoice as FeatureChoice, batches_by_length as batches_by_length, check_layers as check_layers, combine_layers as combine_layers, embed_texts as embed_texts
from bertlab.model.schedule import check_schedule as check_schedule
from bertlab.objectives.changing import Change as Change, ChangingNumber as ChangingNumber, largest_of as largest_of, moments as moments, whole_ends as whole_ends
from bertlab.plugins.hooks import load_module as load_module, name_of_hooks as name_of_hooks, report_sections as report_sections
from bertlab.plugins.index import FIRST_PARTY as FIRST_PARTY, GROUPS as GROUPS, KEYS as KEYS, Kind as Kind, METAPACKAGE as METAPACKAGE, OWN_PACKAGE as OWN_PACKAGE, Plugin as Plugin, RECORDED_AS as RECORDED_AS, brought_by as brought_by, entry_package as entry_package, entry_points_of as entry_points_of, import_class as import_class, installed as installed, listed as listed, load_class as load_class, version_of as version_of, why_unusable as why_unusable
from bertlab.plugins.signatures import broken_signature as broken_signature
from bertlab.plugins.strangers import HOOKS as HOOKS, content_hash as content_hash
from bertlab.tokenizer.files import SPECIAL_TOKENS as SPECIAL_TOKENS, added_tokens as added_tokens, check_ids as check_ids, checked_vocabulary as checked_vocabulary, special_token as special_token
from bertlab.tokenizer.kinds import MAX_WORD_CHARACTERS as MAX_WORD_CHARACTERS, train_tokenizer as train_tokenizer
from bertlab.tokenizer.wordpiece import prefixed as prefixed
from bertlab.training.allocator import free_memory as free_memory, keep_freed_memory as keep_freed_memory
from bertlab.training.record import RunRecord as RunRecord
from bertlab.training.results import Results as Results, is_share as is_share, print_table as print_table, read_curves as read_curves, read_results as read_results, result_rows as result_rows, shown_figure as shown_figure
from bertlab.training.same_run import facts_of as facts_of, sessions_of as sessions_of
from bertlab.training.trainer import quiet_lightning as quiet_lightning
