"""What a scan of all files found, in columns: made once, loaded by every process."""

from __future__ import annotations

import hashlib
import zlib
from array import array
from dataclasses import dataclass, fields
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np

from streaming_core._extras import require
from streaming_core._index import PackedStrings
from streaming_core._virtual._filed import uncut
from streaming_core._virtual._model import Scan, SourceFile, Unit
from streaming_core.errors import IndexInvalidError, Problem

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from streaming_core._virtual._filed import Filed

__all__ = ["STEM_BYTES", "IndexBuilder", "VirtualIndex"]

STEM_BYTES: Final = 12
"""Of what stands for a version of a file in the names of its units."""
_LEVEL: Final = 3
_RAW: Final = -15
_DICTIONARY_BYTES: Final = 32 << 10
_MOST_META_BYTES: Final = 1 << 30


@final
@dataclass(frozen=True, slots=False, eq=False)
class VirtualIndex:
    """Files, their units in order, and what decoding them needs. Immutable; pickles."""

    kind: str
    """Name of the format."""
    options: Mapping[str, Any]
    """What the format was opened with."""
    keys: PackedStrings
    """Each file's name below the root."""
    sizes: NDArray[np.int64]
    """Each file's bytes."""
    etags: PackedStrings
    """Each file's version."""
    constants: PackedStrings
    """Columns that each file's place gives, as JSON; empty where there are none."""
    schemas: tuple[bytes, ...]
    """The distinct schemas of files, as Arrow messages."""
    schema_ids: NDArray[np.int32]
    """Which of `schemas` each file has."""
    files: NDArray[np.int32]
    """Which file each unit is of."""
    samples: NDArray[np.int64]
    """Rows of each unit."""
    nbytes: NDArray[np.int64]
    """About how many bytes each unit has once it is decoded."""
    numbers: NDArray[np.int64]
    parts: NDArray[np.int64]
    metas: bytes | memoryview
    """What decoding needs of each file, deflated, one after the other."""
    meta_offsets: NDArray[np.int64]
    """Where each file's begins in `metas`, and where the last one's ends."""
    meta_sizes: NDArray[np.int64]
    """Bytes of each once it is inflated."""
    dictionary: bytes
    """What they were deflated with: the files of a data set say much the same of themselves."""
    stems: NDArray[np.uint8]
    """What stands for each file in the names of its units; `STEM_BYTES` each."""
    pattern: str = ""
    """What the files' names match; empty for all files of the format."""
    filed: Filed | None = None
    """The file of this machine that holds the index too, if there is one."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to a starting worker as the name of a file, where there is one."""
        if self.filed is not None and self.filed.is_to_be_named():
            return self.filed.load, (self.filed,)
        state = {field.name: getattr(self, field.name) for field in fields(self)}
        return _restored, ({**state, "metas": bytes(uncut(self.metas, self.filed))},)

    @property
    def num_files(self) -> int:
        """Number of files, those without rows included."""
        return len(self.keys)

    @property
    def num_samples(self) -> int:
        """Rows of all files."""
        return int(self.samples.sum())

    def file(self, at: int) -> SourceFile:
        """Return one file."""
        text = self.constants[at]
        pairs = msgspec.json.decode(text, type=list[tuple[str, str | None]]) if text else []
        return SourceFile(self.keys[at], int(self.sizes[at]), self.etags[at], tuple(pairs))

    def meta(self, at: int) -> bytes:
        """Return what decoding one file needs; `IndexInvalidError` if it is broken."""
        size = int(self.meta_sizes[at])
        if not size:
            return b""
        try:
            opened = zlib.decompressobj(_RAW, self.dictionary)
            data = opened.decompress(self.packed_meta(at), min(size, _MOST_META_BYTES) + 1)
        except zlib.error as error:
            raise self._broken(at, str(error)) from error
        if len(data) != size:
            raise self._broken(at, f"required {size} bytes, came {len(data)}")
        return data

    def packed_meta(self, at: int) -> bytes | memoryview:
        """Return that as it is kept."""
        start, stop = self.meta_offsets[at : at + 2].tolist()
        return uncut(self.metas, self.filed)[start:stop]

    def unit(self, at: int) -> Unit:
        """Return one unit."""
        return Unit(
            int(self.samples[at]), int(self.nbytes[at]), int(self.numbers[at]), int(self.parts[at])
        )

    def units_of(self, file: int) -> range:
        """Return which units are those of one file."""
        return range(int(self.first_units[file]), int(self.first_units[file + 1]))

    def schema(self, file: int) -> Any:  # noqa: ANN401 - a type of an optional dependency
        """Return the `pyarrow.Schema` of one file."""
        return self._schemas[int(self.schema_ids[file])]

    @cached_property
    def _schemas(self) -> list[Any]:
        arrow = require("pyarrow", extra="parquet", purpose="data that is not MDS")
        return [arrow.ipc.read_schema(arrow.py_buffer(data)) for data in self.schemas]

    @cached_property
    def first_units(self) -> NDArray[np.int64]:
        """The first unit of each file, and the end of the last one's."""
        return np.searchsorted(self.files, np.arange(self.num_files + 1)).astype(np.int64)

    @cached_property
    def ordinals(self) -> NDArray[np.int64]:
        """The number of each unit within its file."""
        return np.arange(len(self.files)) - self.first_units[self.files]

    def scan(self, at: int) -> Scan:
        """Return what was found in one file."""
        units = tuple(self.unit(unit) for unit in self.units_of(at))
        return Scan(self.schema(at), units, self.meta(at))

    def _broken(self, at: int, how: str) -> IndexInvalidError:
        problem = Problem(f"$.metas[{at}]", f"of {self.keys[at]!r}: {how}", "value")
        return IndexInvalidError(self.filed.path if self.filed else "the index", (problem,))

    @classmethod
    def of(
        cls,
        kind: str,
        options: Mapping[str, Any],
        files: Sequence[SourceFile],
        scans: Iterable[Scan],
    ) -> VirtualIndex:
        """Return the index of some files, in this order."""
        builder = IndexBuilder(kind, options)
        for file, scan in zip(files, scans, strict=True):
            builder.add(file, scan)
        return builder.finish()


def _restored(state: dict[str, Any]) -> VirtualIndex:
    return VirtualIndex(**state)


@final
class IndexBuilder:
    """Takes in files one after the other; holds little more than the index will."""

    def __init__(
        self,
        kind: str,
        options: Mapping[str, Any],
        *,
        pattern: str = "",
        known: VirtualIndex | None = None,
    ) -> None:
        """Begin; what `known` has may be copied."""
        self._told: dict[str, Any] = {"kind": kind, "options": dict(options), "pattern": pattern}
        # Read in another way the same file has other rows, a table's later version too.
        self._way = msgspec.msgpack.encode([kind, dict(options)]) if options else b""
        self._known = known
        self._dictionary = known.dictionary if known is not None else b""
        self._schemas: dict[bytes, int] = {}
        self._texts: dict[str, list[str]] = {"keys": [], "etags": [], "constants": []}
        self._numbers = {name: array("q") for name in ("sizes", "schema_ids", "meta_sizes")}
        self._units = array("q")
        self._metas = bytearray()
        self._offsets = array("q", [0])
        self._stems = bytearray()

    def add(self, file: SourceFile, scan: Scan) -> None:
        """Take in a file that was looked at."""
        if not self._dictionary:
            self._dictionary = scan.meta[-_DICTIONARY_BYTES:]
        packed = b""
        if scan.meta:
            packer = zlib.compressobj(_LEVEL, wbits=_RAW, zdict=self._dictionary)
            packed = packer.compress(scan.meta) + packer.flush()
        self._add(file, bytes(scan.schema.serialize()), scan.units, packed, len(scan.meta))

    def copy(self, at: int) -> None:
        """Take in a file as it is in what was known."""
        known = self._known
        if known is None:
            msg = "nothing is known that could be copied"
            raise ValueError(msg)
        units = [known.unit(unit) for unit in known.units_of(at)]
        schema = known.schemas[int(known.schema_ids[at])]
        packed = known.packed_meta(at)
        self._add(known.file(at), schema, units, packed, int(known.meta_sizes[at]))

    def _add(
        self,
        file: SourceFile,
        schema: bytes,
        units: Sequence[Unit],
        packed: bytes | memoryview,
        size: int,
    ) -> None:
        at = len(self._offsets) - 1
        constants = msgspec.json.encode(file.constants).decode() if file.constants else ""
        self._texts["keys"].append(file.key)
        self._texts["etags"].append(file.etag)
        self._texts["constants"].append(constants)
        self._numbers["sizes"].append(file.size)
        self._numbers["schema_ids"].append(self._schemas.setdefault(schema, len(self._schemas)))
        self._numbers["meta_sizes"].append(size)
        for unit in units:
            self._units.extend((at, *unit))
        self._metas += packed
        self._offsets.append(len(self._metas))
        told = msgspec.json.encode([file.key, file.size, file.etag, file.constants])
        self._stems += hashlib.blake2s(told + self._way, digest_size=STEM_BYTES).digest()

    def finish(self) -> VirtualIndex:
        """Return the index of the files taken in."""
        table = np.array(self._units, np.int64).reshape(-1, 5)
        numbers = {name: np.array(values, np.int64) for name, values in self._numbers.items()}
        packed: dict[str, Any] = {
            name: PackedStrings.from_iterable(texts) for name, texts in self._texts.items()
        }
        return VirtualIndex(
            **self._told,
            **packed,
            sizes=numbers["sizes"],
            schemas=tuple(self._schemas),
            schema_ids=numbers["schema_ids"].astype(np.int32),
            files=table[:, 0].astype(np.int32),
            samples=table[:, 1].copy(),
            nbytes=table[:, 2].copy(),
            numbers=table[:, 3].copy(),
            parts=table[:, 4].copy(),
            metas=memoryview(self._metas).toreadonly(),  # large: not copied
            meta_offsets=np.array(self._offsets, np.int64),
            meta_sizes=numbers["meta_sizes"],
            dictionary=self._dictionary,
            stems=np.frombuffer(bytes(self._stems), np.uint8),
        )
