"""The promises that are compared: which scenario asks, and which test holds us to it."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["GROUPS", "Case"]

_RANKS = "reader/virtual/test_defects_ranks.py"
_RESUME = "reader/virtual/test_defects_resume.py"
_BATCHES = "reader/virtual/test_defects_batches.py"
_FILES = "reader/virtual/test_defects_files.py"
_STORE = "reader/virtual/test_defects_store.py"
_TABLES = "reader/virtual/test_defects_tables.py"


class Case(NamedTuple):
    """One promise."""

    name: str
    """The function of each side that asks whether it is kept; sides without it did not promise."""
    promise: str
    test: str
    """The test that holds us to it, below `tests/`."""


GROUPS: dict[str, tuple[Case, ...]] = {
    "Checkpoints": (
        Case(
            "resume_with_workers",
            "A checkpoint taken while workers read ahead loses and repeats no row",
            f"{_RESUME}::test_no_row_is_lost_while_workers_are_ahead",
        ),
        Case(
            "resume_in_process",
            "A checkpoint after the first of ten batches, without workers, says one tenth",
            f"{_RESUME}::test_a_stop_without_workers_counts_what_was_given",
        ),
        Case(
            "resume_with_other_workers",
            "An epoch goes on with another number of workers",
            f"{_RESUME}::test_an_epoch_goes_on_with_other_workers_and_ranks",
        ),
        Case(
            "resume_with_other_ranks",
            "An epoch goes on with another number of ranks",
            f"{_RESUME}::test_an_epoch_goes_on_with_other_workers_and_ranks",
        ),
        Case(
            "resume_then_set_epoch",
            "`set_epoch` of the epoch that is resumed does not begin it anew",
            f"{_RESUME}::test_setting_the_epoch_does_not_undo_a_checkpoint",
        ),
        Case(
            "resume_with_blank_lines",
            "Blank lines are no rows, neither when read nor when resumed",
            f"{_RESUME}::test_lines_resume_exactly_whatever_ends_them",
        ),
        Case(
            "resume_at_the_end",
            "Resuming at the end of a file repeats nothing of it",
            f"{_RESUME}::test_at_the_end_of_an_epoch_nothing_is_left",
        ),
    ),
    "Ranks": (
        Case(
            "accelerate",
            "All of 1,000 rows reach two processes through `accelerator.prepare`",
            "reader/pipeline/test_frameworks.py::test_accelerate_leaves_a_prepared_loader_correct",
        ),
        Case(
            "accelerate_without_dispatch",
            "The same with `dispatch_batches=False`",
            f"{_RANKS}::test_accelerate_may_be_set_as_one_likes",
        ),
        Case(
            "equal_batches",
            "Three ranks get as many batches, ten equal files",
            f"{_RANKS}::test_all_ranks_are_given_as_many_batches_of_the_same_sizes",
        ),
        Case(
            "equal_batches_of_unequal_files",
            "Two ranks get as many batches, files of unequal size",
            f"{_RANKS}::test_all_ranks_are_given_as_many_batches_of_the_same_sizes",
        ),
        Case(
            "one_row_group_for_two_ranks",
            "Two ranks share a file that is one row group",
            f"{_RANKS}::test_all_ranks_are_given_as_many_batches_of_the_same_sizes",
        ),
        Case(
            "stripes_of_two_ranks",
            "Two ranks share an ORC file whose stripes differ in rows",
            f"{_RANKS}::test_all_ranks_are_given_as_many_batches_of_the_same_sizes",
        ),
        Case(
            "balanced_by_size",
            "However work is balanced, each row goes to one rank",
            f"{_RANKS}::test_all_ranks_are_given_as_many_batches_of_the_same_sizes",
        ),
    ),
    "Epochs and order": (
        Case(
            "epochs_of_living_workers",
            "`set_epoch` reaches workers that live on",
            "reader/pipeline/test_epochs.py::test_a_number_names_the_same_order_always",
        ),
        Case(
            "orders_of_epochs",
            "Each shuffled epoch has another order",
            f"{_BATCHES}::test_each_epoch_is_shuffled_anew",
        ),
        Case(
            "shuffled_within_batches",
            "Rows of a shuffled batch are in no order",
            f"{_BATCHES}::test_each_epoch_is_shuffled_anew",
        ),
        Case(
            "shuffled_over_files",
            "A shuffled batch has rows of most of ten files",
            f"{_BATCHES}::test_each_epoch_is_shuffled_anew",
        ),
        Case(
            "order_of_files",
            "Without a shuffle rows come in the order of the files",
            f"{_FILES}::test_files_come_in_the_order_of_their_names",
        ),
    ),
    "Batches": (
        Case(
            "exact_batches",
            "Batches have the size asked for, over files of 150 rows",
            f"{_BATCHES}::test_batches_have_the_size_asked_for",
        ),
        Case(
            "last_batch",
            "By default the rows of a smaller last batch come too",
            f"{_BATCHES}::test_batches_have_the_size_asked_for",
        ),
        Case(
            "length",
            "The loader knows its length",
            f"{_BATCHES}::test_batches_have_the_size_asked_for",
        ),
        Case(
            "loader_options",
            "What torch's DataLoader takes may be said, such as `persistent_workers`",
            "reader/pipeline/test_create.py::test_arguments_reach_data_set_and_loader",
        ),
        Case(
            "fixed_lists",
            "Lists of one length, such as embeddings, become a tensor",
            "reader/pipeline/test_outputs.py::test_torch_batches_are_tensors",
        ),
        Case(
            "times",
            "Times become a tensor",
            "reader/pipeline/test_outputs.py::test_torch_batches_are_tensors",
        ),
        Case(
            "missing_ints",
            "Large integers beside missing ones stay what they are",
            f"{_BATCHES}::test_missing_values_are_declared_never_guessed",
        ),
        Case(
            "missing_bools",
            "Booleans of which some are missing can be read",
            f"{_BATCHES}::test_missing_values_are_declared_never_guessed",
        ),
        Case(
            "arrow_batches",
            "Arrow batches need no collate function of one's own",
            "reader/pipeline/test_outputs.py::test_every_format_holds_the_values_of_the_files",
        ),
        Case(
            "numpy_from_spawned_workers",
            "NumPy batches come from spawned workers",
            f"{_BATCHES}::test_workers_may_be_started_in_any_way",
        ),
    ),
    "Files": (
        Case(
            "hive_folder",
            "A Hive tree can be named by its folder",
            f"{_FILES}::test_a_hive_tree_is_read_by_its_folder",
        ),
        Case(
            "hive_columns",
            "What folders are named becomes columns",
            f"{_FILES}::test_a_hive_tree_is_read_by_its_folder",
        ),
        Case(
            "hive_types",
            "A column `year=2023` is a number",
            f"{_FILES}::test_a_hive_tree_is_read_by_its_folder",
        ),
        Case(
            "hive_filter",
            "A filter may ask for such a column",
            f"{_FILES}::test_a_hive_tree_is_read_by_its_folder",
        ),
        Case(
            "hive_unasked",
            "Such columns are left out unless asked for",
            f"{_FILES}::test_a_hive_tree_is_read_by_its_folder",
        ),
        Case(
            "unknown_column",
            "A column that there is not is refused",
            f"{_FILES}::test_what_cannot_be_meant_is_refused",
        ),
        Case(
            "nothing_found",
            "No files are an error that names the place",
            f"{_FILES}::test_what_cannot_be_meant_is_refused",
        ),
        Case(
            "unknown_setting",
            "A setting is heeded or refused (`num_rows=10`)",
            f"{_FILES}::test_what_cannot_be_meant_is_refused",
        ),
        Case(
            "json_array",
            "A JSON array is read",
            "reader/virtual/test_every_kind.py::test_every_row_is_what_another_reader_reads",
        ),
        Case(
            "memory_of_an_array",
            "A large JSON array is not held in memory",
            f"{_FILES}::test_a_large_json_array_is_not_held_in_memory",
        ),
        Case(
            "avro",
            "Avro is read",
            "reader/virtual/test_every_kind.py::test_every_row_is_what_another_reader_reads",
        ),
    ),
    "Storage (a web server)": (
        Case(
            "bytes_of_a_column",
            "One column of 21 costs less than a tenth of the file",
            "reader/virtual/test_wire.py::"
            "test_only_the_columns_wanted_travel_and_nothing_is_asked_but_them",
        ),
        Case(
            "bytes_of_a_filter",
            "A filter that one of ten row groups can meet costs about that group's column",
            "reader/virtual/test_filters.py::test_only_what_cannot_be_known_is_fetched",
        ),
        Case(
            "footers_of_a_private_store",
            "Files that need credentials are divided like others",
            f"{_STORE}::test_files_that_need_credentials_are_read_like_others",
        ),
        Case(
            "private_listing",
            "Files that need credentials are found",
            f"{_STORE}::test_files_that_need_credentials_are_read_like_others",
        ),
        Case(
            "footers_in_each_epoch",
            "A second epoch asks for no footers",
            f"{_STORE}::test_a_second_epoch_asks_for_nothing",
        ),
        Case(
            "one_refusal",
            "One answer 503 is got over",
            f"{_STORE}::test_faults_are_got_over_without_a_lost_row",
        ),
        Case(
            "cut_in_the_middle",
            "One broken connection is got over",
            f"{_STORE}::test_faults_are_got_over_without_a_lost_row",
        ),
        Case(
            "stall",
            "An answer that takes 75 seconds does not end the epoch",
            f"{_STORE}::test_faults_are_got_over_without_a_lost_row",
        ),
    ),
    "Iceberg tables": (
        Case(
            "deleted_rows",
            "Deleted rows are gone, all others come once, from small row groups",
            f"{_TABLES}::test_deletes_leave_every_other_row_once",
        ),
        Case(
            "rewritten",
            "A table that is rewritten after it was opened is read as it was",
            f"{_TABLES}::test_a_table_rewritten_while_it_is_read_loses_nothing",
        ),
        Case(
            "renamed",
            "After a column was renamed all batches have the new name",
            f"{_TABLES}::test_tables_read_as_their_schema_says",
        ),
        Case(
            "deep_namespace",
            "A table in a namespace of two levels is found",
            "core/virtual/test_iceberg.py::test_a_table_is_found_by_name_with_namespaces_of_any_depth",
        ),
        Case(
            "tagged",
            "A tag names a snapshot",
            "core/virtual/test_iceberg.py::test_an_older_snapshot_is_read_by_id_tag_branch_and_time",
        ),
        Case(
            "migrated",
            "Columns that migrated files lack come from their partition",
            f"{_TABLES}::test_tables_read_as_their_schema_says",
        ),
        Case(
            "mixed_formats",
            "A table may have Parquet and ORC files",
            f"{_TABLES}::test_tables_read_as_their_schema_says",
        ),
        Case(
            "pruned_by_a_list",
            "`id in (100, 150)` leaves out files by their bounds",
            f"{_TABLES}::test_a_list_of_values_leaves_out_files",
        ),
        Case(
            "equality_deletes",
            "Equality deletes are applied, or refused with what to do",
            f"{_TABLES}::test_what_cannot_be_read_says_what_to_do",
        ),
        Case(
            "table_without_rows",
            "A table without a snapshot has no rows",
            f"{_TABLES}::test_what_cannot_be_read_says_what_to_do",
        ),
    ),
}
"""All cases, by what they are about."""
