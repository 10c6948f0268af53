"""WebDataset archives taken apart into samples, as `tarfile` and the rule of names have them."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.virtual.tar_archives import (
    FORMATS,
    archive_of,
    expected_rows,
    read_table,
    reader_of,
    rows_of,
    sample_files,
)
from tests.profiles import examples

from streaming_core._store import LocalStore
from streaming_core._virtual import SourceFile, SourceReader
from streaming_core._virtual._kinds import kind_of_name, open_kind
from streaming_core._virtual._kinds._tar import Tar
from streaming_core.errors import (
    SchemaError,
    SourceFormatError,
)

# --- names and types ------------------------------------------------------------------------------


def test_columns_have_the_types_of_their_extensions() -> None:
    """Text is text, classes are numbers, all else is bytes; what a sample lacks is missing."""
    data = archive_of(
        [
            ("a.jpg", b"\xff\xd8"),
            ("a.cls", b" 7\n"),
            ("a.json", b'{"x": 1}'),
            ("b.jpg", b""),
            ("b.txt", "größe".encode()),
            ("b.id", b"n01440764"),
            ("b.index", b"-3"),
            ("c.seg.PNG", b"\x00"),
            ("c.a.cls2", b"9223372036854775807"),
        ]
    )
    kind = Tar()
    reader, _ = reader_of(data)
    scan = kind.scan(reader)
    assert {field.name: str(field.type) for field in scan.schema} == {
        "__key__": "large_string",
        "a.cls2": "int64",
        "cls": "int64",
        "id": "large_string",
        "index": "int64",
        "jpg": "large_binary",
        "json": "large_string",
        "seg.png": "large_binary",
        "txt": "large_string",
    }
    table = read_table(kind, reader, scan, None)
    assert table.schema.equals(scan.schema)
    none = dict.fromkeys(scan.schema.names)
    assert table.to_pylist() == [
        none | {"__key__": "a", "jpg": b"\xff\xd8", "cls": 7, "json": '{"x": 1}'},
        none | {"__key__": "b", "jpg": b"", "txt": "größe", "id": "n01440764", "index": -3},
        none | {"__key__": "c", "seg.png": b"\x00", "a.cls2": 9223372036854775807},
    ]


@pytest.mark.parametrize(
    "odd",
    [b"", b"1_0", b"1.5", b"9223372036854775808", b" " * 100 + b"1", "\uff11".encode(), b"cat"],
)
def test_one_class_that_is_no_number_makes_the_column_text(odd: bytes) -> None:
    """Decided over the whole archive, wherever the odd one stands."""
    for at in (0, 500, 999):
        files = [(f"{i:04d}.cls", odd if i == at else b"%d" % i) for i in range(1000)]
        rows = rows_of(archive_of(files))
        assert [row["cls"] for row in rows] == [data.decode() for _, data in files]


def test_all_is_bytes_on_demand() -> None:
    """Also what is no text in UTF-8, which is an error else."""
    data = archive_of([("a.txt", b"\xff"), ("a.cls", b"1")])
    assert rows_of(data, decode="bytes") == [{"__key__": "a", "txt": b"\xff", "cls": b"1"}]
    with pytest.raises(SourceFormatError, match=r"a\.tar, samples 0 to 0: .*'txt'.*decode"):
        rows_of(data)
    with pytest.raises(SchemaError, match="decode must be one of"):
        open_kind("webdataset", {"decode": "pil"})
    with pytest.raises(SchemaError, match="does not take"):
        open_kind("webdataset", {"x": 1})


@pytest.mark.parametrize("name", ["a.tar", "x/A.TAR", "a.tar.gz", "a.tgz"])
def test_names_tell_the_kind(name: str) -> None:
    """Compressed archives too."""
    assert kind_of_name(name) == "webdataset"


@pytest.mark.parametrize(
    ("names", "keys"),
    [
        # What the program webdataset 1.0.2 makes of the same names.
        (["a.jpg", "a.json", "b.jpg"], ["a", "b"]),
        (["x.y/a.jpg", "x.y/a.json", "z/a.jpg", "./q.jpg", "./q.cls"], ["x.y/a", "z/a", "./q"]),
        (["a.jpg", "README", "a.json", "b"], ["a"]),
        (["__x__.json", "__meta__", "a.jpg", "__a.jpg", "__b__/c.jpg"], ["__x__", "a", "__a"]),
        (["d/__x__.json", "__c__.d/x.jpg", "d/__b__/c.jpg"], ["d/__x__", "__c__.d/x", "d/__b__/c"]),
        (["__m__.jpg__", "__.jpg__", "__a.jpg/x.y__"], ["__a.jpg/x"]),
        (["a.JPG", "a.Json", "B.jpg", "b.jpg"], ["a", "B", "b"]),
        (["a.jpg", "b.jpg", "a.json"], ["a", "b", "a"]),
        (["a\nb.jpg", "a\nb.json"], ["a\nb"]),
        (["a..jpg", "a.tar.gz", "a..x"], ["a"]),
        (["ä.jpg", "日本.TXT"], ["ä", "日本"]),
        (["/abs/a.jpg", "..//b.jpg"], ["/abs/a", "..//b"]),
        ([".a.jpg", "b.jpg", "./._b.jpg"], ["b"]),
    ],
)
def test_samples_are_files_in_a_row_with_one_name(names: list[str], keys: list[str]) -> None:
    """Up to the first dot after the folders."""
    data = archive_of((name, b"1") for name in names)
    assert [row["__key__"] for row in rows_of(data)] == keys


@pytest.mark.parametrize("names", [["a.jpg", "a.jpg"], ["a.jpg", "a.x", "a.JPG"], ["a.__key__"]])
def test_columns_that_come_twice_are_refused(names: list[str]) -> None:
    """As are files that would be the key; the message names the file."""
    with pytest.raises(SourceFormatError, match=r"memory://.*a\.tar: .*(second|__key__)"):
        rows_of(archive_of((name, b"x") for name in names))


def test_names_with_dots_are_refused_before_there_are_a_million_columns() -> None:
    """Says how names are cut."""
    with pytest.raises(SourceFormatError, match=r"more than 1000 columns, such as '0\.jpg'"):
        rows_of(archive_of((f"image.{n}.jpg", b"x") for n in range(2000)))


# --- what is in archives --------------------------------------------------------------------------


@settings(max_examples=examples(60))
@given(
    files=st.lists(
        st.tuples(
            st.one_of(
                st.from_regex(r"[ab]{1,2}/[a-c]", fullmatch=True),
                st.text(
                    st.characters(exclude_characters="\0./", exclude_categories=["Cs"]),
                    min_size=1,
                    max_size=200,
                ),
            ),
            st.lists(st.sampled_from(["jpg", "cls", "json", "seg.png"]), unique=True, min_size=1),
            st.binary(max_size=2000),
        ),
        max_size=30,
    ),
    form=st.sampled_from(FORMATS[1:]),
    columns=st.one_of(st.none(), st.lists(st.integers(0, 4), min_size=1, unique=True)),
    packed=st.booleans(),
)
def test_any_archive_reads_as_the_standard_library_reads_it(
    files: list[tuple[str, list[str], bytes]],
    form: int,
    columns: list[int] | None,
    packed: bool,
) -> None:
    """Long names, any letters, empty files, either format, any projection, compressed or not."""
    flat = [(f"{key}{n}.{end}", data) for n, (key, ends, data) in enumerate(files) for end in ends]
    data = archive_of(flat, form)
    kind = Tar("bytes")
    stored = archive_of(flat, form, mode="w:gz") if packed else data
    reader, _ = reader_of(stored, "a.tgz" if packed else "a.tar")
    scan = kind.scan(reader)
    names = None
    if columns is not None:
        names = [name for at, name in enumerate(scan.schema.names) if at in columns] or None
    expected = expected_rows(data)
    if names is not None:
        expected = [{name: row[name] for name in names} for row in expected]
    assert read_table(kind, reader, scan, names).to_pylist() == expected


@pytest.mark.slow
@pytest.mark.parametrize(
    ("form", "name"),
    [
        (FORMATS[0], "a.tar"),
        *(pytest.param(form, "a.tar", marks=pytest.mark.slow) for form in FORMATS[1:]),
        pytest.param(FORMATS[-1], "a.tar.gz", marks=pytest.mark.slow),
    ],
)
def test_thousands_of_samples_come_once_in_order(form: int, name: str) -> None:
    """In several units of about the same size, whichever columns are wanted."""
    files = sample_files(6000, 9000)
    data = archive_of(files, form)
    kind = Tar()
    stored = archive_of(files, form, mode="w:gz", compresslevel=1) if name.endswith("gz") else data
    reader, _ = reader_of(stored, name)
    scan = kind.scan(reader)
    assert sum(unit.samples for unit in scan.units) == 6000
    if name == "a.tar":
        assert len(scan.units) == 3
    assert len(scan.meta) < 6000 * 60
    expected = expected_rows(data)
    for row in expected:
        row["cls"] = row["cls"] and int(row["cls"])
        row["json"] = row["json"].decode()
    assert read_table(kind, reader, scan, None).to_pylist() == expected
    for column in scan.schema.names:
        rows = read_table(kind, reader, scan, [column]).to_pylist()
        assert rows == [{column: row[column]} for row in expected]


def test_folders_devices_and_what_has_no_dot_are_passed_over() -> None:
    """Also between the files of one sample, as the archive's usual programs write them."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, kind in [
            ("d", tarfile.DIRTYPE),
            ("d/a.jpg", tarfile.REGTYPE),
            ("d/a.x", tarfile.DIRTYPE),
            ("README", tarfile.LNKTYPE),
            ("d/latest", tarfile.SYMTYPE),
            ("d/b.fifo", tarfile.FIFOTYPE),
            ("d/b.dev", tarfile.CHRTYPE),
            ("d/a.json", tarfile.AREGTYPE),
            ("d/c.old", tarfile.CONTTYPE),
        ]:
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, "d/a.jpg"
            info.size = 3 if info.isreg() else 0
            archive.addfile(info, io.BytesIO(b"123"))
    assert rows_of(out.getvalue()) == [
        {"__key__": "d/a", "jpg": b"123", "json": "123", "old": None},
        {"__key__": "d/c", "jpg": None, "json": None, "old": b"123"},
    ]


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize(
    ("kind", "what", "options"),
    [
        (tarfile.LNKTYPE, "a hard link", "--hard-dereference"),
        (tarfile.SYMTYPE, "a symbolic link", "--dereference --hard-dereference"),
    ],
)
def test_links_are_refused(form: int, kind: bytes, what: str, options: str) -> None:
    """Programs write them for files that are the same; a column without them would lack values."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        info = tarfile.TarInfo("a.cls")
        info.size = 1
        archive.addfile(info, io.BytesIO(b"1"))
        info = tarfile.TarInfo("b.cls")
        info.type, info.linkname = kind, "a.cls"
        archive.addfile(info)
    with pytest.raises(SourceFormatError, match=rf"'b\.cls' is {what} to 'a\.cls'.*tar {options}'"):
        rows_of(out.getvalue())


def test_names_of_all_formats_are_whole() -> None:
    """A prefix of ustar, a long name of GNU, fields of pax, names that are no UTF-8."""
    long = "/".join(["folder" * 8] * 3) + "/" + "n" * 60
    for form in FORMATS:
        data = archive_of([(f"{long}.jpg", b"1"), ("b.jpg", b"2")], form)
        assert [row["__key__"] for row in rows_of(data)] == [long, "b"]
    data = archive_of([("gr\xf6\xdfe.jpg", b"1")], tarfile.GNU_FORMAT, encoding="latin-1")
    assert rows_of(data) == [{"__key__": "gr\\xf6\\xdfe", "jpg": b"1"}]


def test_an_archive_of_the_first_programs_reads() -> None:
    """Without a magic word, with a checksum of signed bytes."""
    block = bytearray(archive_of([("ä.jpg", b"1")], tarfile.USTAR_FORMAT, encoding="utf-8"))
    block[257:512] = bytes(255)
    block[148:156] = b" " * 8
    total = sum(byte - 256 if byte > 127 else byte for byte in block[:512])
    block[148:156] = b"%06o\0 " % total
    assert rows_of(bytes(block)) == [{"__key__": "ä", "jpg": b"1"}]


def test_sizes_in_binary_and_in_extended_headers_count() -> None:
    """Both are written for files of 8 GiB and more."""
    block = bytearray(archive_of([("a.jpg", b"x" * 600), ("b.jpg", b"y")], tarfile.GNU_FORMAT))
    block[124:136] = b"\x80" + (600).to_bytes(11, "big")
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block[:512])
    assert [row["jpg"] for row in rows_of(bytes(block))] == [b"x" * 600, b"y"]
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.jpg")
        info.size = 600
        info.pax_headers = {"size": "600", "comment": "größe"}
        archive.addfile(info, io.BytesIO(b"x" * 600))
    assert rows_of(out.getvalue()) == [{"__key__": "a", "jpg": b"x" * 600}]


def test_global_fields_are_read() -> None:
    """Such as the comment that version control writes."""
    data = archive_of([("a.jpg", b"1"), ("b.jpg", b"2")], pax_headers={"comment": "0123abc"})
    assert [row["__key__"] for row in rows_of(data)] == ["a", "b"]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("tar") is None, reason="needs the program tar")
@pytest.mark.parametrize("form", ["v7", "oldgnu", "gnu", "ustar", "posix"])
def test_archives_of_gnu_tar_read(tmp_path: Path, form: str) -> None:
    """Of every format that it writes, and compressed."""
    folder = tmp_path / "data" / "sub"
    folder.mkdir(parents=True)
    for name, data in sample_files(200):
        (folder / name.rpartition("/")[2]).write_bytes(data)
    (folder / "latest").symlink_to("000001.jpg")
    for flag, name in (("", "a.tar"), ("z", "a.tgz")):
        path = tmp_path / name
        command = ["tar", f"--format={form}", "--sort=name", f"-c{flag}f", str(path), "-C"]
        subprocess.run([*command, str(tmp_path / "data"), "."], check=True)
        kind = Tar("bytes")
        store = LocalStore(tmp_path)
        info = store.head(name)
        reader = SourceReader(store, SourceFile(name, info.size, info.etag))
        scan = kind.scan(reader)
        rows = read_table(kind, reader, scan, None).to_pylist()
        assert len(rows) == 200
        assert rows == expected_rows(path.read_bytes())


@pytest.mark.process
@pytest.mark.skipif(shutil.which("tar") is None, reason="needs the program tar")
@pytest.mark.parametrize("form", ["gnu", "posix"])
def test_sparse_files_are_refused(tmp_path: Path, form: str) -> None:
    """Their bytes do not lie there as they are, so they must not be handed out as such."""
    with (tmp_path / "a.bin").open("wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"data")
    path = tmp_path / "a.tar"
    command = ["tar", f"--format={form}", "--sparse", "-cf", str(path), "-C", str(tmp_path)]
    subprocess.run([*command, "a.bin"], check=True)
    with pytest.raises(SourceFormatError, match=r"'a\.bin' is a sparse file"):
        rows_of(path.read_bytes())


def test_an_archive_of_another_project_reads() -> None:
    """The one that the standard library is tested with, up to its first sparse file."""
    path = Path(os.__file__).parent / "test"
    found = [p for p in (path / "testtar.tar", path / "archivetestdata/testtar.tar") if p.exists()]
    if not found:
        pytest.skip("the standard library came without its tests")
    data = found[0].read_bytes()
    with pytest.raises(SourceFormatError, match="is a sparse file"):
        rows_of(data)
    kept = io.BytesIO()
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8") as archive:
        members = [one for one in archive if not (one.issparse() or one.islnk() or one.issym())]
        with tarfile.open(fileobj=kept, mode="w", encoding="utf-8") as copy:
            for number, one in enumerate(members):
                one.name = f"{number}-{one.name}.bin".encode("utf-8", "replace").decode()
                one.pax_headers = {}
                copy.addfile(one, archive.extractfile(one) if one.isreg() else None)
    rows = rows_of(kept.getvalue())
    assert rows == expected_rows(kept.getvalue())
    assert len(rows) > 5
