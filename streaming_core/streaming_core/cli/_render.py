"""Descriptions and reports as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich import box
from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from streaming_core._read import SUMS
from streaming_core._units import format_bytes
from streaming_core.cli._values import clean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import RenderableType

    from streaming_core.cli._describe import Data, Inspection, Schema, Spread
    from streaming_core.cli._place import Part, Unfinished

__all__ = ["count_of", "facts", "print_inspection", "text"]

_MAX_PARTS_SHOWN: Final = 40
_MAX_KEPT_WIDTH: Final = 22
_PADDING: Final = 11
"""What lies between and around four columns."""


def text(value: object, style: str = "") -> Text:
    """Return `value` as plain text: no markup, nothing that a terminal obeys."""
    return Text(clean(str(value)), style=style)


def count_of(count: int, noun: str) -> str:
    """Return the number with its noun, which takes an `s` unless it is one.

    Example:
        >>> count_of(1, "shard"), count_of(2000, "shard")
        ('1 shard', '2,000 shards')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def facts(rows: Iterable[tuple[str, object]]) -> Table:
    """Return names and values in two columns."""
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, value in rows:
        table.add_row(text(name), value if isinstance(value, Text) else text(value))
    return table


def print_inspection(inspection: Inspection) -> None:
    """Print what `inspect` found."""
    console = Console(highlight=False)
    parts: list[RenderableType] = [text(inspection.url, "bold cyan")]
    if inspection.data is not None:
        parts += _data(inspection.data, console.width)
    if inspection.unfinished is not None:
        parts.append(_unfinished(inspection.unfinished))
    if inspection.parts:
        parts += _parts(inspection.parts)
    console.print(Group(*parts))


def _data(data: Data, width: int) -> Iterable[RenderableType]:
    kinds = sorted({schema.format for schema in data.schemas})
    codecs = sorted({schema.compression or "none" for schema in data.schemas})
    hashes = sorted({name for schema in data.schemas for name in schema.hashes})
    limits = list(dict.fromkeys(_limit(schema.size_limit) for schema in data.schemas))
    ratio = data.raw_bytes / data.stored_bytes if data.stored_bytes else 1.0
    packed = ", ".join(codecs)
    if codecs not in ([], ["none"]):
        packed += f" (ratio {ratio:.2f})"
    empty = f" ({data.num_empty_shards:,} empty)" if data.num_empty_shards else ""
    rows: list[tuple[str, object]] = [
        ("format", ", ".join(kinds) or "-"),
        ("samples", f"{data.num_samples:,}"),
        ("shards", f"{data.num_shards:,}{empty}"),
        ("size", _sizes(data)),
        ("compression", packed or "-"),
        ("hashes", ", ".join(hashes) or "none in the index"),
        (SUMS, "present" if data.has_sums else "absent"),
        ("size limit", ", ".join(limits) or "-"),
        ("fingerprint", data.fingerprint),
    ]
    yield facts(rows)
    if data.samples_per_shard is not None and data.raw_bytes_per_shard is not None:
        yield _spreads(data.samples_per_shard, data.raw_bytes_per_shard)
    several = len(data.schemas) > 1
    for number, schema in enumerate(data.schemas, 1):
        title = f"schema {number} of {len(data.schemas)}" if several else None
        yield _schema(schema, title, width)


def _sizes(data: Data) -> str:
    if data.raw_bytes == data.stored_bytes:
        return f"{format_bytes(data.raw_bytes)}"
    return f"{format_bytes(data.stored_bytes)} stored, {format_bytes(data.raw_bytes)} decompressed"


def _limit(limit: int | str | None) -> str:
    if limit is None:
        return "none"
    return format_bytes(limit) if isinstance(limit, int) else limit


def _spreads(samples: Spread, sizes: Spread) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("per shard", style="bold")
    for name in ("min", "median", "max"):
        table.add_column(name, justify="right")
    table.add_row("samples", *(f"{n:,}" for n in (samples.min, samples.median, samples.max)))
    table.add_row("size", *(format_bytes(n) for n in (sizes.min, sizes.median, sizes.max)))
    return table


def _schema(schema: Schema, title: str | None, width: int) -> RenderableType:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    if title is not None:
        samples = count_of(schema.num_samples, "sample")
        what = f"{schema.format}, {samples} in {count_of(schema.num_shards, 'shard')}"
        table.title = text(f"{title}: {what}", "bold")
        table.title_justify = "left"
    names = _room("column", (column.name for column in schema.columns))
    encodings = _room("encoding", (column.encoding for column in schema.columns))
    table.add_column("column", style="bold", overflow="fold", min_width=names)
    table.add_column("encoding", overflow="fold", min_width=encodings)
    table.add_column("bytes", justify="right", no_wrap=True, min_width=len("varies"))
    room = max(width - names - encodings - len("varies") - _PADDING, len("first value"))
    table.add_column("first value", no_wrap=True, overflow="ellipsis", max_width=room)
    for column in schema.columns:
        size = "varies" if column.num_bytes is None else f"{column.num_bytes:,}"
        example = text("-", "dim") if column.example is None else text(column.example)
        table.add_row(text(column.name), text(column.encoding), text(size), example)
    if schema.no_example is None:
        return table
    note = text(f"no values shown: {schema.no_example}", "yellow")
    return Group(table, note)


def _room(title: str, texts: Iterable[str]) -> int:
    """Return the width that a column keeps when its neighbours are long."""
    return min(max(map(len, (title, *texts))), _MAX_KEPT_WIDTH)


def _unfinished(unfinished: Unfinished) -> RenderableType:
    what = "an unfinished conversion"
    if unfinished.appends:
        what += f", adding to {unfinished.num_samples_before:,} samples,"
    how = "append=True, resume=True" if unfinished.appends else "resume=True"
    lines = [
        text(
            f"{what}: {count_of(unfinished.num_safe_samples, 'sample')} in "
            f"{count_of(unfinished.num_safe_shards, 'shard')} safe",
            "yellow",
        ),
        text(
            f"To complete it, run the conversion again with {how}, and skip the first "
            f"{unfinished.num_safe_samples:,} samples of the source (num_safe_samples tells)."
        ),
    ]
    return Padding(Group(*lines), (1, 0, 0, 0))


def _parts(parts: tuple[Part, ...]) -> Iterable[RenderableType]:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("data set below", style="bold", overflow="fold")
    table.add_column("samples", justify="right")
    table.add_column("state")
    for part in parts[:_MAX_PARTS_SHOWN]:
        samples = "-" if part.num_samples is None else f"{part.num_samples:,}"
        style = "" if part.state == "finished" else "yellow"
        table.add_row(text(part.path), samples, text(part.state, style))
    if len(parts) > _MAX_PARTS_SHOWN:
        table.add_row(text(f"… and {len(parts) - _MAX_PARTS_SHOWN:,} more"), "", "")
    yield text("no data set here, but in folders below", "yellow")
    yield table
    yield text("Name one of them, or join them into one data set with: streaming-core merge")
