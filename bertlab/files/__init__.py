"""Files: every atomic write, and bounded reads of files that may come from anywhere."""

from bertlab.files.writing import (
    WholeFile,
    append_text,
    check_nothing_leads_out,
    create_json,
    create_text,
    explain_failed_write,
    explain_vanished_folder,
    new_folder,
    open_to_append,
    remove_abandoned,
    replacing,
    utf8,
    why_no_file_name,
    write_json,
    write_text,
)

__all__ = [
    "WholeFile",
    "append_text",
    "check_nothing_leads_out",
    "create_json",
    "create_text",
    "explain_failed_write",
    "explain_vanished_folder",
    "new_folder",
    "open_to_append",
    "remove_abandoned",
    "replacing",
    "utf8",
    "why_no_file_name",
    "write_json",
    "write_text",
]
