"""Pictures: raw in every mode, files kept as they are, lists of both."""

from __future__ import annotations

import io
import struct
import sys
import warnings
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from tests.core.format.mds.making import key, of_value, opened, round_trip
from tests.core.format.mds.values import picture

from streaming_core._format._mds import mds_encodings
from streaming_core._format._mds._images import _pillow
from streaming_core.errors import MissingExtraError, ShardCorruptError

if TYPE_CHECKING:
    from pathlib import Path

MODES = [
    *("1", "L", "P", "LA", "La", "PA", "RGB", "RGBA", "RGBX", "RGBa", "CMYK", "YCbCr", "LAB"),
    *("HSV", "I", "F", "I;16", "I;16B", "I;16L", "I;16N"),
]
SIDES = st.integers(0, 9)


def file_of(image: Image.Image, kind: str, **options: Any) -> bytes:
    """Return the bytes of a file of the image."""
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


def refused(encoding: str, value: Any, error: type[Exception] = TypeError) -> str:
    """Return the message with which `value` is refused."""
    with pytest.raises(error) as caught:
        mds_encodings[encoding]().encode(value)
    return str(caught.value)


@pytest.mark.parametrize("mode", MODES)
@given(width=SIDES, height=SIDES, start=st.integers(0, 255))
def test_raw_images_come_back_in_every_mode(mode: str, width: int, height: int, start: int) -> None:
    """Size, mode and pixels come back, also of images without any pixel."""
    image = picture(mode, width, height, start)
    assert key(round_trip("pil", image)) == key(image)


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "RGB", "RGBA", "I;16"])
def test_png_keeps_every_pixel(mode: str) -> None:
    """What PNG can hold comes back as it was."""
    image = picture(mode)
    if mode == "P":
        image.putpalette(bytes(range(256)) * 3)
    came = round_trip("png", image)
    assert came.format == "PNG"
    assert key(came) == key(image)


@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
def test_jpeg_comes_back_as_a_file(mode: str) -> None:
    """An image in memory is saved with Pillow's usual quality."""
    image = picture(mode, 16, 16)
    came = round_trip("jpeg", image)
    assert (came.format, came.mode, came.size) == ("JPEG", mode, (16, 16))
    assert mds_encodings["jpeg"]().encode(image) == file_of(image, "JPEG")


def test_a_jpeg_on_disk_keeps_its_bytes(tmp_path: Path) -> None:
    """An image opened from a file is not compressed a second time."""
    data = file_of(picture(), "JPEG", quality=31, comment=b"kept")
    (tmp_path / "a.jpg").write_bytes(data)
    with Image.open(tmp_path / "a.jpg") as image:
        assert mds_encodings["jpeg"]().encode(image) == data


def test_a_jpeg_whose_file_is_gone_is_saved_anew(tmp_path: Path) -> None:
    """The pixels are still there when the file is not."""
    path = tmp_path / "a.jpg"
    path.write_bytes(file_of(picture(), "JPEG", quality=31))
    with Image.open(path) as image:
        image.load()
        path.unlink()
        assert mds_encodings["jpeg"]().encode(image) == file_of(image, "JPEG")


def test_a_png_on_disk_in_a_jpeg_column_becomes_jpeg(tmp_path: Path) -> None:
    """Only a JPEG file's bytes are a JPEG."""
    path = tmp_path / "a.png"
    picture().save(path)
    with Image.open(path) as image:
        assert round_trip("jpeg", image).format == "JPEG"


def test_files_of_another_format_in_a_jpeg_column_are_read() -> None:
    """Bytes passed through may be any picture; data sets in the wild have them."""
    data = file_of(picture(), "PNG")
    assert key(round_trip("jpeg", data)) == key(picture())


def test_pixels_are_decoded_late() -> None:
    """Opening reads the header only, so unused pictures cost little."""
    came = round_trip("jpeg", file_of(picture("RGB", 64, 64), "JPEG")[:-400])
    assert came.size == (64, 64)
    with pytest.raises(OSError, match="truncated"):
        came.load()


@pytest.mark.parametrize("name", ["jpeg_array", "jpegarray"])
@pytest.mark.parametrize("kind", [list, tuple])
def test_arrays_of_jpeg_files_come_back(name: str, kind: type) -> None:
    """Files go in as bytes, and come out as images."""
    files = [file_of(picture("L", 2 + i, 2), "JPEG") for i in range(3)]
    data = mds_encodings[name]().encode(kind(files))
    sizes = [len(file) for file in files]
    assert data == struct.pack("<4I", 3, *sizes) + b"".join(files)
    assert key(round_trip(name, kind(files))) == key([Image.open(io.BytesIO(f)) for f in files])
    assert mds_encodings[name]().encode([bytearray(file) for file in files]) == data


@pytest.mark.parametrize("inner", ["pil", "png"])
@pytest.mark.parametrize("count", [0, 1, 3])
def test_lists_of_images_come_back(inner: str, count: int) -> None:
    """Images of different sizes and modes lie in one list, which may be empty."""
    images = [picture(["RGB", "L", "RGBA"][i], 2 + i, 3) for i in range(count)]
    assert key(round_trip(f"list[{inner}]", images)) == key(images)


def test_lists_of_jpegs_come_back() -> None:
    """Each image is encoded as in a column of its own."""
    images = [picture(start=i) for i in range(2)]
    files = [file_of(image, "JPEG") for image in images]
    data = mds_encodings["list[jpeg]"]().encode(images)
    assert data == struct.pack("<4I", 0, 2, *map(len, files)) + b"".join(files)
    assert [image.size for image in round_trip("list[jpeg]", images)] == [(4, 3)] * 2
    assert round_trip("list[jpeg]", []) == []


@pytest.mark.parametrize(
    ("encoding", "value", "text"),
    [
        ("pil", "a.jpg", "wanted a PIL.Image.Image, came str 'a.jpg'"),
        ("png", [picture()], "wanted a PIL.Image.Image, came list"),
        ("jpeg", None, "wanted a PIL.Image.Image, came NoneType None"),
        ("jpeg_array", [], "wanted a list of at least one JPEG file's bytes, came list []"),
        ("jpeg_array", bytearray(), "wanted a list of at least one"),
        ("jpeg_array", [picture()], "wanted a list of JPEG files' bytes, came one with Image"),
        ("jpegarray", ["a"], "wanted a list of JPEG files' bytes, came one with str 'a'"),
        ("list[pil]", (picture(),), "wanted a list of images, came tuple"),
        ("list[png]", [picture(), b"x"], "wanted a PIL.Image.Image, came bytes b'x'"),
    ],
)
def test_what_is_no_image_is_refused(encoding: str, value: Any, text: str) -> None:
    """The message says what was wanted and what came."""
    assert text in refused(encoding, value)


@pytest.mark.parametrize("name", ["jpeg", "list[jpeg]"])
@pytest.mark.parametrize("mode", ["P", "LA", "RGBA", "F", "HSV"])
def test_modes_that_a_file_cannot_hold_are_refused(name: str, mode: str) -> None:
    """Converting would lose something, so the user decides."""
    value: Any = [picture(mode)] if name.startswith("list") else picture(mode)
    text = refused(name, value, ValueError)
    assert text.startswith(f"wanted an image that JPEG can hold, came mode {mode!r}")


def test_images_without_pixels_are_no_files() -> None:
    """File formats do not have them."""
    assert "empty image" in refused("png", Image.new("L", (0, 3)), ValueError)


def test_an_image_too_large_to_open_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pillow's guard against small files of huge images is an error about the shard."""
    data = file_of(picture("L", 100, 100), "PNG")
    for limit, kind in ((4000, "error"), (7000, "warning")):
        monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ShardCorruptError, match="column 'x': too large an image"):
                opened(*of_value("png", data)).row(0)
        assert kind


def test_pictures_that_run_programs_are_not_opened() -> None:
    """Pillow would hand an EPS file to another program when its pixels are asked for."""
    data = file_of(picture(), "EPS")
    with pytest.raises(ShardCorruptError, match="format EPS, which can run code"):
        opened(*of_value("jpeg", data)).row(0)


def test_without_pillow_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """An image column is the only thing that needs Pillow, and says how to get it."""
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    _pillow.cache_clear()
    with pytest.raises(MissingExtraError, match=r"streaming-core\[images\]"):
        opened(*of_value("png", b"x")).row(0)
    _pillow.cache_clear()
