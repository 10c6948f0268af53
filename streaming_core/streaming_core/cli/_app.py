"""The commands: arguments in, the report of a function out, as tables or as JSON."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import Annotated, Any, Final

import typer
from rich.console import Console

from streaming_core._store import LocalStore
from streaming_core._units import parse_bytes
from streaming_core._version import __version__
from streaming_core.cli._cached import look_at_cache
from streaming_core.cli._console import (
    DEBUG,
    NOT_OK,
    document,
    print_json,
    progress_bar,
    reported,
)
from streaming_core.cli._describe import inspect_place
from streaming_core.cli._index_files import (
    IndexSettings,
    check_index,
    parse_pairs,
    write_index,
)
from streaming_core.cli._join import join_parts
from streaming_core.cli._place import data_store, load_table
from streaming_core.cli._rebuild import FixOptions, fix_index
from streaming_core.cli._render import facts, print_inspection
from streaming_core.cli._render_report import (
    print_cache,
    print_fix,
    print_index,
    print_report,
    print_sample,
)
from streaming_core.cli._rows import iterate_rows
from streaming_core.cli._values import json_value
from streaming_core.cli._verify import Report, verify_place
from streaming_core.errors import SchemaError

__all__ = ["app", "run"]

_MAX_WORKERS: Final = 8

app = typer.Typer(
    name="streaming-core",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Look at data sets, check them, mend their index, join them; index data that is there; "
    "clean caches.",
    epilog="Credentials for a URL come from the environment, as its service's own tools take them. "
    "Exit codes: 0 all is well; 1 the data is not (verify, index --check); 2 it could not be done.",
)

Place = Annotated[
    str, typer.Argument(metavar="DIR_OR_URL", help="Folder or URL that holds index.json.")
]
AsJSON = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
AllowUnsafe = Annotated[
    bool,
    typer.Option(
        "--allow-unsafe-types",
        help="Decode pickled values too. That can run code: only for data you trust.",
    ),
]


def run() -> None:
    """Run the command line and exit."""
    # Whatever the data or the locale, a character that cannot be shown must not end the program.
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue] - replaced streams may lack it
    app(prog_name="streaming-core")


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"streaming-core {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", callback=_print_version, is_eager=True
        ),
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks of errors.")] = False,
) -> None:
    """Look at data sets, check them, mend their index, join them; index what is there; clean up."""
    del version
    DEBUG.set(debug)


@app.command("inspect")
@reported
def inspect(place: Place, as_json: AsJSON = False, allow_unsafe_types: AllowUnsafe = False) -> None:
    """Show what a data set is: samples, shards, sizes, columns, a value of each.

    Also tells of a conversion that has not finished, and of data sets in sub-folders.
    """
    inspection = inspect_place(data_store(place), allow_unsafe=allow_unsafe_types)
    if as_json:
        print_json(document(inspection))
    else:
        print_inspection(inspection)


@app.command("head")
@reported
def head(
    place: Place,
    count: Annotated[int, typer.Option("-n", "--count", min=0, help="How many samples.")] = 5,
    skip: Annotated[int, typer.Option("--skip", min=0, help="Samples to leave out first.")] = 0,
    full: Annotated[bool, typer.Option("--full", help="Shorten no value.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object a line, one for each sample.")
    ] = False,
    allow_unsafe_types: AllowUnsafe = False,
) -> None:
    """Show the first samples.

    In JSON, bytes are {"bytes": base64, "length"}, arrays {"dtype", "shape", "values"} with the
    values flat in C order, images {"image": mode, "size"}, decimals {"decimal": text}, NaN and
    infinities {"float": text}, pickled values {"pickled": number of bytes}. Without --full only the
    first 64 bytes or numbers of a value are given, with it also the pixels of images.
    """
    store = data_store(place)
    table = load_table(store)
    samples = iterate_rows(store, table, skip=skip, count=count, allow_unsafe=allow_unsafe_types)
    for number, shard, sample in samples:
        if not as_json and number > skip:
            print()
        if as_json:
            print_json({name: json_value(value, full=full) for name, value in sample.items()})
        else:
            print_sample(number, shard, sample, full=full)
    if not as_json and table.num_samples <= skip:
        Console().print(f"no samples from {skip:,} on: the data set has {table.num_samples:,}")


@app.command("verify")
@reported
def verify(
    place: Place,
    fast: Annotated[
        bool, typer.Option("--fast", help="Only check that files are there with their sizes.")
    ] = False,
    workers: Annotated[
        int | None,
        typer.Option(
            "--workers",
            min=1,
            show_default="one per core, at most 8",
            help="Shards checked side by side; each is held in memory.",
        ),
    ] = None,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="Rebuild a missing or broken index from the shards. A valid one is not touched, "
            "a broken one is kept as index.json.bad.",
        ),
    ] = False,
    allow_gaps: Annotated[
        bool, typer.Option("--allow-gaps", help="With --fix: go on although shards are missing.")
    ] = False,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="With --fix: end an unfinished conversion with what of it is safe."
        ),
    ] = False,
    max_shard_bytes: Annotated[
        str,
        typer.Option("--max-shard-bytes", help="With --fix: the most that a file may expand to."),
    ] = "4gb",
    as_json: AsJSON = False,
    allow_unsafe_types: AllowUnsafe = False,
) -> None:
    """Check every file, hash and sample of a data set, and list all that is wrong.

    Exits with 1 if anything is.
    """
    workers = workers or min(_MAX_WORKERS, os.cpu_count() or 1)
    store = data_store(place)
    if not fix:
        _refuse_without_fix(allow_gaps=allow_gaps, force=force)
        with progress_bar("verify") as advance:
            report = verify_place(
                store,
                fast=fast,
                allow_unsafe=allow_unsafe_types,
                workers=workers,
                on_progress=advance,
            )
        _conclude(report, as_json=as_json)
        return
    if not isinstance(store, LocalStore) or fast:
        msg = (
            "--fix reads all shards, so it does not go with --fast"
            if fast
            else f"--fix works on local folders only; {store.url} is none. Copy the data first"
        )
        raise SchemaError(msg)
    settings = FixOptions(
        allow_gaps=allow_gaps,
        force=force,
        max_shard_bytes=parse_bytes(max_shard_bytes),
        allow_unsafe=allow_unsafe_types,
        workers=workers,
    )
    with progress_bar("verify --fix") as advance:
        fixed, checked = fix_index(store, settings, advance)
    if not as_json:
        print_fix(fixed)
    ok = fixed.action != "refused"
    _conclude(checked or Report(store.url, ok=ok), as_json=as_json, extra={"fix": document(fixed)})


def _refuse_without_fix(**flags: bool) -> None:
    for name, given in flags.items():
        if given:
            msg = f"--{name.replace('_', '-')} belongs to --fix, which was not given"
            raise SchemaError(msg)


def _conclude(report: Report, *, as_json: bool, extra: dict[str, Any] | None = None) -> None:
    """Print the report, and exit with 1 unless all is well."""
    if as_json:
        print_json({**document(report), **(extra or {})})
    elif report.num_shards or report.problems or report.ok:
        print_report(report)
    if not report.ok:
        raise typer.Exit(NOT_OK)


@app.command("merge")
@reported
def merge(
    root: Annotated[
        str, typer.Argument(metavar="ROOT", help="Folder or URL above all parts; gets the index.")
    ],
    parts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PART]...", help="Folders below it, in order; all if none."),
    ] = None,
    as_json: AsJSON = False,
) -> None:
    """Join data sets in sub-folders into one, by an index above them; no shard is moved."""
    joined = join_parts(root, parts or ())
    if as_json:
        print_json(document(joined))
        return
    rows = [
        ("merged", joined.url),
        ("parts", f"{joined.num_parts:,}"),
        ("shards", f"{joined.num_shards:,}"),
        ("samples", f"{joined.num_samples:,}"),
    ]
    Console(highlight=False).print(facts(rows))


@app.command("index")
@reported
def index(
    place: Annotated[
        str,
        typer.Argument(metavar="DIR_OR_URL", help="Folder, file or pattern, such as 'd/**/*.csv'."),
    ],
    format_: Annotated[
        str | None,
        typer.Option("--format", help="What the files are; by default their names tell it."),
    ] = None,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="NAME=VALUE", help="An option of the format; repeatable."),
    ] = None,
    storage_option: Annotated[
        list[str] | None,
        typer.Option(
            "--storage-option",
            metavar="NAME=VALUE",
            help="An option of the store; others see it in the list of processes, so that secrets "
            "better come from the environment.",
        ),
    ] = None,
    out: Annotated[
        str | None,
        typer.Option(
            "--out",
            metavar="FILE",
            help="Keep the index there, not beside the data; Stream(index=FILE) reads it.",
        ),
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Only say what changed since; exits with 1 if anything did."),
    ] = False,
    as_json: AsJSON = False,
) -> None:
    """Index files of other formats, so that training need not list or look at them.

    Run again it looks at what is new only; format and options are then those of the index that is
    there.
    """
    settings = IndexSettings(
        format=format_,
        options=parse_pairs(option or (), "--option", as_json=True),
        storage_options=parse_pairs(storage_option or (), "--storage-option", as_json=False)
        or None,
        out=out,
    )
    if check:
        report = check_index(place, settings)
    else:
        with progress_bar("index") as advance:
            report = write_index(place, settings, advance)
    if as_json:
        print_json(document(report))
    else:
        print_index(report)
    if not report.is_current:
        raise typer.Exit(NOT_OK)


@app.command("cache")
@reported
def cache(
    folder: Annotated[
        str | None,
        typer.Argument(metavar="[DIR]", help="Where data is kept; by default the user's cache."),
    ] = None,
    remove: Annotated[
        float | None,
        typer.Option(
            "--remove",
            metavar="DAYS",
            min=0,
            help="Remove what was not used for so many days, unless a process uses it now.",
        ),
    ] = None,
    as_json: AsJSON = False,
) -> None:
    """Show what streams keep on this machine: decoded data, shards, indexes; remove what is old.

    Data that is read in place is never touched. What is removed is made or fetched again when it is
    needed.
    """
    report = look_at_cache(folder, unused_days=remove)
    if as_json:
        print_json(document(report))
    else:
        print_cache(report)
