"""Pictures through Pillow, which is imported where a picture is first touched."""

from __future__ import annotations

import functools
import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from streaming_core._extras import require
from streaming_core._format._mds._encoding import Encoding, came

__all__ = ["IMAGES", "JPEG", "PIL", "PNG", "JPEGArray"]


@functools.cache
def _pillow() -> Any:  # noqa: ANN401 - a module of an optional dependency
    return require("PIL.Image", extra="images", purpose="an image column")


def _image(obj: Any) -> Any:  # noqa: ANN401 - a Pillow image
    if not isinstance(obj, _pillow().Image):
        msg = f"wanted a PIL.Image.Image, came {came(obj)}"
        raise TypeError(msg)
    return obj


def _open(data: bytes) -> Any:  # noqa: ANN401 - a Pillow image
    return _pillow().open(io.BytesIO(data))


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
        return head + mode + bytes(image.tobytes())

    def decode(self, data: bytes) -> Any:  # noqa: ANN401 - a Pillow image
        """Return the image."""
        width, height, mode_size = self._head.unpack_from(data)
        at = self._head.size + mode_size
        if at > len(data):
            msg = f"an image's mode of {mode_size} bytes does not fit in {len(data)} bytes"
            raise ValueError(msg)
        mode = data[self._head.size : at].decode()
        # A pixel takes at least one bit in every mode: refuse sizes before anything is allocated.
        if width * height > 8 * (len(data) - at):
            msg = f"an image of {width} x {height} does not fit in {len(data) - at} bytes"
            raise ValueError(msg)
        try:
            return _pillow().frombytes(mode, (width, height), data[at:])
        except KeyError as error:
            msg = f"unknown image mode {mode!r}"
            raise ValueError(msg) from error


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


def _joined(items: Sequence[bytes]) -> bytes:
    """Return the count, the sizes and the bytes of all items."""
    sizes = struct.pack(f"<{len(items) + 1}I", len(items), *map(len, items))
    return b"".join([sizes, *items])


def _parted(data: bytes, at: int) -> list[bytes]:
    """Return the items that `_joined` put at `at`; they must fill the bytes exactly."""
    (count,) = struct.unpack_from("<I", data, at)
    at += 4
    if 4 * count > len(data) - at:
        msg = f"a list of {count} items does not fit in {len(data)} bytes"
        raise ValueError(msg)
    sizes = struct.unpack_from(f"<{count}I", data, at)
    at += 4 * count
    if at + sum(sizes) != len(data):
        msg = f"the items of a list end at byte {at + sum(sizes)} of {len(data)}"
        raise ValueError(msg)
    items: list[bytes] = []
    for size in sizes:
        items.append(data[at : at + size])
        at += size
    return items


class JPEGArray(Encoding):
    """Several JPEG files, given as their bytes; decodes to a list of images."""

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return count, sizes and files."""
        if isinstance(obj, str | bytes) or not isinstance(obj, Sequence) or not obj:
            # The reference writes an empty one and then cannot read it back.
            msg = f"wanted a list of at least one JPEG file's bytes, came {came(obj)}"
            raise TypeError(msg)
        for item in obj:
            if not isinstance(item, bytes | bytearray):
                msg = f"wanted a list of JPEG files' bytes, came one with {came(item)}"
                raise TypeError(msg)
        return _joined([bytes(item) for item in obj])

    def decode(self, data: bytes) -> list[Any]:
        """Return the images."""
        return [_open(item) for item in _parted(data, 0)]


class _List(Encoding):
    """A list of images in one inner encoding; it may be empty."""

    item: ClassVar[Encoding]

    def encode(self, obj: Any) -> bytes:  # noqa: ANN401 - any user's value
        """Return the reserved word, count, sizes and items."""
        if not isinstance(obj, list):
            msg = f"wanted a list of images, came {came(obj)}"
            raise TypeError(msg)
        return bytes(4) + _joined([self.item.encode(image) for image in obj])

    def decode(self, data: bytes) -> list[Any]:
        """Return the images."""
        if len(data) < 8:  # noqa: PLR2004 - the reserved word and the count
            msg = f"a list needs at least 8 bytes, but there are {len(data)}"
            raise ValueError(msg)
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
