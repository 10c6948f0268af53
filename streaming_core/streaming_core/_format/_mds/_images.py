"""Pictures through Pillow, which is imported where a picture is first touched."""

from __future__ import annotations

import functools
import io
import os
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np

from streaming_core._extras import require
from streaming_core._format._mds._encoding import Encoding, came, is_a

__all__ = ["IMAGES", "JPEG", "PIL", "PNG", "JPEGArray"]

_PIXEL_BYTES: Final = {
    **dict.fromkeys(["L", "P"], 1),
    **dict.fromkeys(["LA", "La", "PA", "I;16", "I;16B", "I;16L", "I;16N"], 2),
    **dict.fromkeys(["RGB", "YCbCr", "LAB", "HSV"], 3),
    **dict.fromkeys(["RGBA", "RGBX", "RGBa", "CMYK", "I", "F"], 4),
}
"""Raw bytes of a pixel by Pillow's mode; `1` has eight pixels in a byte."""
_MOST_ROWS_OF_NOTHING: Final = 1 << 16
"""Pillow allocates something for each row, even if the rows are empty."""
_RUN_BY_OTHERS: Final = frozenset({"EPS"})
"""Formats that Pillow hands to another program when pixels are asked for."""


@functools.cache
def _pillow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("PIL.Image", extra="images", purpose="an image column")


def _image(obj: Any) -> Any:  # noqa: ANN401 - a Pillow image
    if not isinstance(obj, _pillow().Image):
        msg = f"wanted a PIL.Image.Image, came {came(obj)}"
        if isinstance(obj, str | os.PathLike):
            msg += "; open it with PIL.Image.open(path), or give the bytes of the file"
        raise TypeError(msg)
    return obj


def _open(data: bytes) -> Any:  # noqa: ANN401 - a Pillow image
    pillow = _pillow()
    try:
        image = pillow.open(io.BytesIO(data))
    except pillow.UnidentifiedImageError:
        msg = f"no image file that Pillow knows: {len(data)} bytes, {came(data)}"
        raise ValueError(msg) from None
    except (pillow.DecompressionBombError, pillow.DecompressionBombWarning) as error:
        msg = f"too large an image: {error}"
        raise ValueError(msg) from error
    if image.format in _RUN_BY_OTHERS:
        msg = f"an image file of format {image.format}, which can run code; it is not opened"
        raise ValueError(msg)
    return image


def _raw_bytes(mode: str, width: int, height: int) -> int | None:
    """Return the bytes of an image's raw pixels, None for a mode that is not known."""
    if mode == "1":
        return (width + 7) // 8 * height
    pixel = _PIXEL_BYTES.get(mode)
    return None if pixel is None else pixel * width * height


def _saved(image: Any, file_format: str) -> bytes:  # noqa: ANN401 - a Pillow image
    file = io.BytesIO()
    try:
        image.save(file, format=file_format)
    except OSError as error:  # Pillow's answer to a mode that the file format cannot hold
        msg = f"wanted an image that {file_format} can hold, came mode {image.mode!r}: {error}"
        raise ValueError(msg) from error
    return file.getvalue()


class PIL(Encoding):
    """Raw pixels with size and mode; palettes and metadata are lost."""

    _head = struct.Struct("<III")

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return width, height, mode and the raw pixels."""
        image = _image(obj)
        mode = image.mode.encode()
        head = self._head.pack(image.size[0], image.size[1], len(mode))
        return b"".join([head, mode, image.tobytes()])

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - a Pillow image
        """Return the image."""
        width, height, mode_size = self._head.unpack_from(data)
        at = self._head.size + mode_size
        if at > len(data):
            msg = f"an image's mode of {mode_size} bytes does not fit in {len(data)} bytes"
            raise ValueError(msg)
        mode = data[self._head.size : at].decode("ascii", "replace")
        # Sizes are checked before Pillow allocates an image of them.
        wanted = _raw_bytes(mode, width, height)
        if wanted is None:
            msg = f"unknown image mode {mode[:20]!r}"
            raise ValueError(msg)
        if wanted != len(data) - at:
            msg = (
                f"an image of {width} x {height} in mode {mode} has {wanted} bytes, "
                f"came {len(data) - at}"
            )
            raise ValueError(msg)
        if not wanted and max(width, height) > _MOST_ROWS_OF_NOTHING:
            msg = f"an image without pixels of {width} x {height}"
            raise ValueError(msg)
        return _pillow().frombytes(mode, (width, height), data[at:])


class JPEG(Encoding):
    """A JPEG file; an image that came from a JPEG file on disk keeps that file's bytes."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the file's own bytes where it has some, else those of a file saved anew."""
        image = _image(obj)
        name = getattr(image, "filename", None)
        if name and image.format in {"JPEG", "MPO"}:
            try:
                return Path(name).read_bytes()
            except OSError:  # the file has gone since; its pixels are still here
                pass
        return _saved(image, "JPEG")

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - a Pillow image
        """Return the image, its pixels not yet decoded."""
        return _open(data)


class PNG(Encoding):
    """A PNG file."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the bytes of a PNG file."""
        return _saved(_image(obj), "PNG")

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - a Pillow image
        """Return the image, its pixels not yet decoded."""
        return _open(data)


def _joined(items: Sequence[bytes | bytearray]) -> bytes:
    """Return the count, the sizes and the bytes of all items."""
    sizes = struct.pack(f"<{len(items) + 1}I", len(items), *map(len, items))
    return b"".join([sizes, *items])


def _parted(data: bytes, at: int) -> Iterator[bytes]:
    """Yield the items that `_joined` put at `at`; they must fill the bytes exactly."""
    if at + 4 > len(data):
        msg = f"a list needs at least {at + 4} bytes, came {len(data)}"
        raise ValueError(msg)
    count = int.from_bytes(data[at : at + 4], "little")
    at += 4
    if 4 * count > len(data) - at:
        msg = f"a list of {count} items does not fit in {len(data)} bytes"
        raise ValueError(msg)
    # A view, and items one by one, so that a count of empty items takes no memory.
    sizes = np.frombuffer(data, "<u4", count, at) if count else np.empty(0, "<u4")
    at += 4 * count
    end = at + int(sizes.sum(dtype=np.uint64))
    if end != len(data):
        msg = f"the items of a list end at byte {end} of {len(data)}"
        raise ValueError(msg)
    for size in sizes:
        stop = at + int(size)
        yield data[at:stop]
        at = stop


class JPEGArray(Encoding):
    """Several JPEG files, given as their bytes; decodes to a list of images."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return count, sizes and files."""
        if is_a(obj, str, bytes) or not is_a(obj, Sequence) or not obj:
            # The reference writes an empty one and then cannot read it back.
            msg = f"wanted a list of at least one JPEG file's bytes, came {came(obj)}"
            raise TypeError(msg)
        for item in obj:
            if not is_a(item, bytes, bytearray):
                msg = f"wanted a list of JPEG files' bytes, came one with {came(item)}"
                raise TypeError(msg)
        return _joined(obj)

    def decode(self, data: bytes) -> list[Any]:
        """Return the images."""
        return [_open(item) for item in _parted(data, 0)]


class _List(Encoding):
    """A list of images in one inner encoding; it may be empty."""

    item: ClassVar[Encoding]

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the reserved word, count, sizes and items."""
        if not is_a(obj, list):
            msg = f"wanted a list of images, came {came(obj)}"
            raise TypeError(msg)
        return bytes(4) + _joined([self.item.encode(image) for image in obj])

    def decode(self, data: bytes) -> list[Any]:
        """Return the images."""
        return [self.item.decode(item) for item in _parted(data, 4)]


class _ListPIL(_List):
    """A list of raw images."""

    item = PIL()


class _ListJPEG(_List):
    """A list of JPEG files."""

    item = JPEG()


class _ListPNG(_List):
    """A list of PNG files."""

    item = PNG()


IMAGES: dict[str, type[Encoding]] = {
    "pil": PIL,
    "jpeg": JPEG,
    "png": PNG,
    "jpeg_array": JPEGArray,
    "jpegarray": JPEGArray,
    "list[pil]": _ListPIL,
    "list[jpeg]": _ListJPEG,
    "list[png]": _ListPNG,
}
"""The image encodings by name."""
