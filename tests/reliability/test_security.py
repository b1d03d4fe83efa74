"""Each promise of SECURITY.md, and each of its rows of trust, has tests that are there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text("utf-8")
CANARIES = "tests/reliability/test_canaries.py"
ONNX = "plugins/bertlab-interop/tests/test_onnx_predict.py"
LINKS = "tests/reliability/test_links.py"
UNTRUSTED = "tests/training/test_untrusted.py"

REMOTE = "plugins/bertlab-cluster/tests/test_remote_store.py"
PROMISES = {
    "Tensors execute nothing.": [
        "tests/checkpoints/test_tensor_files.py::test_pickled_code_is_refused_and_never_runs",
        "tests/checkpoints/test_tensor_files.py::test_anything_but_dense_tensors_by_name_is_refused",
        "tests/checkpoints/test_tensor_files.py::test_an_index_cannot_name_a_file_outside_its_folder",
        "tests/checkpoints/test_tensor_files.py::test_every_truncation_is_refused",
        "tests/checkpoints/test_tensor_files.py::test_stand_ins_for_a_file_are_recognized",
        "tests/checkpoints/test_tensor_files.py::test_values_in_each_other_are_neither_hashed_nor_copied",
        f"{CANARIES}::test_a_pickle_for_a_checkpoint",
        "tests/checkpoints/test_training_state.py::test_another_state_is_refused_before_it_is_taken",
        "tests/checkpoints/test_training_state.py::test_parts_of_another_kind_are_named",
    ],
    "A checkpoint brings data and settings, no code.": [
        f"{UNTRUSTED}::test_every_key_of_every_command_is_on_the_closed_list_or_the_users_own",
        f"{UNTRUSTED}::test_a_checkpoint_brings_no_class_of_the_trainer",
        f"{UNTRUSTED}::test_a_checkpoint_says_nowhere_what_is_written_and_starts_no_processes",
        f"{UNTRUSTED}::test_a_checkpoint_cannot_have_other_files_deleted",
        f"{UNTRUSTED}::test_a_run_with_callbacks_goes_on_with_its_users_own_config",
    ],
    "Completion runs nothing of others.": [
        "plugins/bertlab-conformance/tests/test_completion.py::test_completion_imports_nothing_of_others_and_runs_no_name",
    ],
    "Nothing is written through a link.": [
        f"{LINKS}::test_no_link_of_a_run_is_followed",
        f"{LINKS}::test_a_pipe_in_a_run_is_refused",
        f"{LINKS}::test_files_are_opened_for_writing_in_one_place",
    ],
    "Secrets in URLs stay.": [
        "tests/reliability/test_secrets.py::test_no_byte_of_a_run_has_a_secret",
    ],
    "Configs are plain YAML.": [
        "tests/config/test_plain_yaml.py::test_only_plain_values_have_tags",
        "tests/config/test_plain_yaml.py::test_a_bomb_is_refused_before_it_is_built",
    ],
    "Tokenizers, Hugging Face configs and data are data.": [
        f"{CANARIES}::test_a_tokenizer",
        f"{CANARIES}::test_a_huggingface_folder",
        f"{CANARIES}::test_labelled_rows",
        f"{CANARIES}::test_a_saved_data_set",
    ],
    "ONNX exports are data.": [
        f"{ONNX}::test_a_changed_folder_is_one_line",
        f"{ONNX}::test_what_the_export_brings_is_a_closed_list",
    ],
    "Stores and texts are what they say.": [
        "tests/data/corpus/test_store_content.py::test_a_bit_that_is_another",
        "tests/data/corpus/test_store_content.py::test_a_manifest_that_says_something_else",
        "tests/data/corpus/test_store_content.py::test_all_is_read_once",
        "tests/data/corpus/test_changing_text.py::test_a_change_before_the_text_is_tokenised",
        "tests/training/test_same_run.py::test_a_changed_store_stops_by_name",
        f"{REMOTE}::test_each_file_is_what_the_manifest_says",
        f"{REMOTE}::test_what_comes_counts_from_its_first_byte_on",
        f"{REMOTE}::test_what_another_user_put_into_the_cache_is_fetched_again",
        f"{REMOTE}::test_a_run_does_not_go_on_with_other_shards",
    ],
    "The demo and `bertlab watch` answer this machine alone.": [
        "plugins/bertlab-pages/tests/test_demo.py::test_what_is_not_answered",
        "plugins/bertlab-pages/tests/test_demo.py::test_idle_connections_stop_nobody",
        "plugins/bertlab-pages/tests/test_demo.py::test_a_body_without_end_is_closed",
        "plugins/bertlab-pages/tests/test_demo.py::test_no_other_site_shows_the_page_in_a_frame",
        "plugins/bertlab-pages/tests/test_watch.py::test_no_page_of_another_site_has_it_computed",
        "plugins/bertlab-pages/tests/test_watch.py::test_nothing_else_is_served",
        "plugins/bertlab-pages/tests/test_hub.py::test_what_the_hub_answers_is_not_repeated",
        "plugins/bertlab-interop/tests/test_onnx.py::test_masked_lm_has_equal_logits",
    ],
    "Names are shown, never run.": [
        "tests/reliability/test_names.py::test_a_studys_report",
        "tests/reliability/test_names.py::test_what_is_printed_has_no_commands_of_a_terminal",
        "tests/reliability/test_names.py::test_a_command_to_go_on_with_can_be_pasted",
    ],
}
ROWS = {
    "a checkpoint and the config in it, its stages and evaluations too": [
        f"{UNTRUSTED}::test_a_checkpoint_names_plugins_only",
        f"{UNTRUSTED}::test_arguments_without_a_type_get_plain_values",
    ],
    "a run directory: `config.yaml`, `manifest.json`, `results.json`, logs, tokenizer, …": [
        f"{CANARIES}::test_a_run_directory",
        f"{UNTRUSTED}::test_files_of_a_run_directory_are_data",
    ],
    "`RUN/config.yaml`": [f"{CANARIES}::test_a_run_directory"],
    "a study's directory, given to `study status`, `plan`, `design`, `report`, `compare`": [
        f"{CANARIES}::test_the_directory_of_a_study",
    ],
    "`plan.json`, `analysis.json`, attempts and runs of a study": [
        f"{CANARIES}::test_the_directory_of_a_study",
    ],
    "a Hugging Face folder or name, a tokenizer's folder, an ONNX export": [
        f"{CANARIES}::test_a_huggingface_folder",
        f"{CANARIES}::test_a_tokenizer",
        f"{ONNX}::test_what_the_export_brings_is_a_closed_list",
    ],
    "a token store, also a cached one, a corpus, labelled rows": [
        f"{CANARIES}::test_a_token_store",
        f"{CANARIES}::test_labelled_rows",
    ],
}
# the user's own: what is trusted with everything
OWN = {
    "your command line, `--config FILE`, study file, Python call",
    "an installed plugin",
    "the same, given to `study run`, `run-one`, `add-seeds`, or as `STUDY/study.yaml`",
}


def test_every_promise_has_tests() -> None:
    section = TEXT.partition("## What is promised")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\*\*(.+?)\*\*", section, re.MULTILINE)) == PROMISES.keys()


def test_every_row_of_trust_has_tests() -> None:
    section = TEXT.partition("## What is trusted when")[2].partition("\n## ")[0]
    rows = {line.split(" | ")[0].removeprefix("| ") for line in section.splitlines() if "|" in line}
    assert rows - {"what", "---"} == ROWS.keys() | OWN


@pytest.mark.parametrize(
    "test", sorted({each for tests in (*PROMISES.values(), *ROWS.values()) for each in tests})
)
def test_it_is_there(test: str) -> None:
    file, _, name = test.partition("::")
    tree = ast.parse((ROOT / file).read_text("utf-8"))
    assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
