"""What is asked to be evaluated, from a config file or the command line: ``EvaluationEntry``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from bertlab.api import ConfigError
from bertlab.extend import (
    check_importable,
    check_no_classes,
    installed,
    load_class,
    parse_config,
    utf8,
)
from bertlab_evaluations.contract import Evaluation

Columns = Mapping[str, str | list[str]]

_LONGEST_NAME = 200  # bytes; file systems take 255, with what bertlab adds to it


@dataclass(frozen=True)
class EvaluationEntry:
    """One evaluation that is asked for.

    Attributes:
        name: of its figures: ``blimp/accuracy``.
        plugin: entry-point name of the evaluation.
        evaluation: made with the user's settings.
        data: where its rows are: a file, a folder of files, or as ``data.source`` of a fine-tuning.
        format: of the files; ``auto`` goes by their endings.
        split: of a folder or source; None of a folder: all its files.
        columns: the source's column by the evaluation's column, where the names differ.
        settings: all arguments of the evaluation, as plain data.
        cluster: the source's column of what rows share; None: as the evaluation or the source says.
    """

    name: str
    plugin: str
    evaluation: Evaluation
    data: str
    format: str
    split: str | None
    columns: Columns
    settings: Mapping[str, Any]
    cluster: str | None = None

    def plain(self) -> dict[str, Any]:
        """Return what is asked for as a config file has it, all settings among it."""
        added = self.evaluation.added_settings
        return {
            "evaluation": self.plugin,
            "data": self.data,
            "format": self.format,
            "split": self.split,
            "columns": dict(self.columns),
            "settings": {
                key: value
                for key, value in self.settings.items()
                if key not in added or value != added[key]
            },
            # only where it is asked for, so that other evaluations keep their runs
            **({} if self.cluster is None else {"cluster": self.cluster}),
        }


def read_entries(content: object, where: str) -> list[EvaluationEntry]:
    """Make the entries of a mapping from names to evaluations.

    Args:
        content: ``{blimp: {evaluation: minimal_pairs, data: PATH}, …}``.
        where: the file and key, for messages.

    Raises:
        ConfigError: a key is unknown or missing, or a value is of another kind.
        PluginError: an evaluation is not installed, or cannot be used.
    """
    if not isinstance(content, dict) or not content:
        raise ConfigError(
            f"{where}: found {content!r}, expected evaluations by name: {{blimp: {{evaluation: "
            "minimal_pairs, data: PATH}}"
        )
    return [_entry(str(name), fields, f"{where}.{name}") for name, fields in content.items()]


def _entry(name: str, fields: object, where: str) -> EvaluationEntry:
    if not isinstance(fields, dict):
        raise ConfigError(f"{where}: found {fields!r}, expected a mapping")
    plugin = fields.get("evaluation")
    names = installed("evaluation")
    if not isinstance(plugin, str):
        raise ConfigError(
            f"{where}.evaluation: found {plugin!r}, expected one of {', '.join(names)}"
        )
    _check_name(name, where)
    parser = entry_parser(plugin)
    check_importable(parser, fields, where)
    values = parse_config(parser, fields, lambda _: f"{where}: ")
    return make_entry(name, values)


def check_entries(content: object, source: str) -> None:
    """Refuse evaluations from elsewhere in which a text names a class or function.

    Args:
        content: what the config of a checkpoint has there.
        source: the file, for messages.

    Raises:
        CheckpointError: if there is one.
    """
    for name, fields in content.items() if isinstance(content, dict) else ():
        plugin = fields.get("evaluation") if isinstance(fields, dict) else None
        if isinstance(plugin, str) and plugin in installed("evaluation"):
            check_no_classes(entry_parser(plugin), fields, f"{source}: evaluations.{name[:80]}")


def why_no_file_name(name: str) -> str | None:
    """Return what is expected of a name in place of this one; None if a file can be called so."""
    if name in ("", ".", "..") or "/" in name or "\\" in name:
        return "a name without slashes"
    if not name.isprintable():
        return "a name without control characters"
    if len(utf8(name)) > _LONGEST_NAME:
        return f"a name of at most {_LONGEST_NAME} bytes"
    return None


def _check_name(name: str, where: str) -> None:
    if (expected := why_no_file_name(name)) is not None:
        raise ConfigError(f"{where}: found {name[:80]!r}, expected {expected}")


def entry_parser(plugin: str, program: str = "bertlab evaluate") -> ArgumentParser:
    """Return a parser of the keys that an evaluation takes; its class is imported.

    Raises:
        PluginError: it is not installed, or cannot be used.
    """
    parser = ArgumentParser(prog=program, exit_on_error=False)
    parser.add_argument("--evaluation", type=str, default=plugin, help="its entry-point name")
    parser.add_argument(
        "--data",
        type=str,
        required=True,
        help="rows: a file, a folder of files, or a source such as hf:OWNER/NAME",
    )
    parser.add_argument(
        "--format", type=str, default="auto", help="of the files; auto goes by their endings"
    )
    parser.add_argument(
        "--split",
        type=str | None,
        default=None,
        help="of a folder or source; of a folder all files if not given",
    )
    parser.add_argument(
        "--columns",
        type=dict[str, str | int | list[str | int]],
        default={},
        help="the file's column, by the evaluation's column, where the names differ",
    )
    parser.add_argument(
        "--cluster",
        type=str | None,
        default=None,
        help="the file's column of what rows share, such as a speaker; intervals and tests are "
        "over clusters; paradigms and documents are found",
    )
    parser.add_class_arguments(
        load_class("evaluation", plugin, Evaluation), "settings", instantiate=False
    )
    return parser


def make_entry(name: str, values: Namespace) -> EvaluationEntry:
    """Return the entry of the values that :func:`entry_parser` parsed, its evaluation made."""
    _check_name(name, "name")
    settings = values.get("settings")
    plain = {} if settings is None else settings.as_dict()
    columns = {
        key: [str(each) for each in value] if isinstance(value, list) else str(value)
        for key, value in (values.columns or {}).items()
    }
    return EvaluationEntry(
        name=name,
        plugin=values.evaluation,
        evaluation=load_class("evaluation", values.evaluation, Evaluation)(**plain),
        data=values.data,
        format=values.format,
        split=values.split,
        columns=columns,
        settings=plain,
        cluster=values.cluster,
    )
