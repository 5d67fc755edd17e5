"""From bytes and images to uint8 pixels, on the workers: raw values, JPEG and PNG files, Spark's image structs."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from sparkdl.decoding.arrow_types import bounds_and_bytes
from sparkdl.decoding.layout import (
    CHANNELS,
    IMAGE,
    KINDS,
    NULL,
    PIXELS_SETTING,
    SIZE,
    VALID,
    WIDTH,
    Array,
    Decoded,
    Layout,
)

MODES = {1: "L", 3: "RGB", 4: "RGBA"}  # Pillow's, by channels
OPENCV = {0: 1, 16: 3, 24: 4}  # channels by OpenCV's mode: CV_8UC1, CV_8UC3, CV_8UC4
PNG, JPEG, JPEG_END = b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"\xff\xd9"


class _Bad(Exception):
    """What is wrong with an image: its status and a sentence's end."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def decode_bytes(column: pa.Array, subject: str, layout: Layout) -> Decoded:
    """(n, width) of uint8 from a binary column, each row of which holds raw values, or a JPEG or PNG file."""
    bounds, data = bounds_and_bytes(column)
    lengths = np.diff(bounds)
    status = np.zeros(len(column), np.uint8)
    null = column.is_null().to_numpy(zero_copy_only=False)
    encoded = _encoded(bounds, data, lengths, layout) & ~null
    status[~encoded & (lengths != layout.width)] = WIDTH
    status[null] = NULL
    texts: dict[int, str] = {}
    raw = ~encoded & (status == VALID)
    if raw.all():
        values = data[bounds[0] : bounds[-1]].reshape(-1, layout.width)
    else:
        values = np.zeros((len(column), layout.width), np.uint8)
        if raw.any():
            values[raw] = contiguous(column.filter(pa.array(raw))).reshape(-1, layout.width)

        def pixels(row: int) -> Array:
            return _decoded(data[bounds[row] : bounds[row + 1]].tobytes(), layout)

        _fill(values, status, texts, np.flatnonzero(encoded).tolist(), pixels)

    def problem(row: int) -> str:
        if status[row] != WIDTH:
            return _problem(subject, layout, status[row], texts.get(row, ""))
        forms = " or a JPEG or PNG" if layout.binary == "auto" and layout.pixels else ""
        return (
            f"{subject} must hold {layout.width} values a row {layout.purpose}{forms}, received a row of {lengths[row]}"
        )

    return Decoded(values, status, problem)


def decode_images(column: pa.Array, subject: str, layout: Layout) -> Decoded:
    """(n, width) of uint8 from structs as Spark's image source makes them, whose pixels are BGR, BGRA or gray."""
    assert layout.pixels is not None
    high, wide, channels = layout.pixels
    fields = {name: column.field(name) for name in ("height", "width", "nChannels", "mode", "data")}
    null = np.any([part.is_null().to_numpy(zero_copy_only=False) for part in (column, *fields.values())], axis=0)
    h, w, c, mode = (
        fields[name].fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("height", "width", "nChannels", "mode")
    )
    bounds, data = bounds_and_bytes(fields["data"])
    known = np.zeros(len(column), bool)
    modes = {mode: count for mode, count in OPENCV.items() if count == 1 or not layout.pixels_are_classes}
    for opencv, count in modes.items():
        known |= (mode == opencv) & (c == count)
    whole = known & (h > 0) & (w > 0) & (np.diff(bounds) == h * w * c)
    same = whole & (h == high) & (w == wide)
    status = np.where(whole, VALID, IMAGE).astype(np.uint8)
    if layout.resize == "error":
        status[whole & ~same] = SIZE
    status[null] = NULL
    values = np.zeros((len(column), layout.width), np.uint8)
    for count in CHANNELS:
        rows = same & (c == count) & ~null
        if rows.any():
            part = fields["data"] if rows.all() else fields["data"].filter(pa.array(rows))
            pixels = in_channels(_rgb(contiguous(part).reshape(-1, high, wide, count)), channels)
            if rows.all():
                values = pixels.reshape(-1, layout.width)  # of gray ones, those that were sent
            else:
                values[rows] = pixels.reshape(-1, layout.width)
    texts: dict[int, str] = {}
    other = np.flatnonzero((status == VALID) & ~same)

    def resized(row: int) -> Array:
        pixels = _rgb(data[bounds[row] : bounds[row + 1]].reshape(h[row], w[row], c[row]))
        converted = in_channels(pixels, channels)
        return _resized(_pillow().fromarray(converted[..., 0] if channels == 1 else converted), layout)

    _fill(values, status, texts, other.tolist(), resized)

    def problem(row: int) -> str:
        text = f"{h[row]} x {w[row]}" if status[row] == SIZE else texts.get(row, "")
        if status[row] == IMAGE and not text:
            text = (
                f"height {h[row]}, width {w[row]}, nChannels {c[row]} and mode {mode[row]} with "
                f"{bounds[row + 1] - bounds[row]} bytes; of modes there are {', '.join(map(str, modes))}"
            )
        return _problem(subject, layout, status[row], text)

    return Decoded(values, status, problem)


def in_channels(pixels: Array, channels: int) -> Array:
    """(..., channels) of uint8 from gray, RGB or RGBA (..., 1, 3 or 4), as Pillow converts: alpha is dropped."""
    found = pixels.shape[-1]
    if found == channels:
        return pixels
    if channels == 1:
        shares = np.array([19595, 38470, 7471], np.uint32)  # of 65536: ITU-R 601-2 luma
        return ((pixels[..., :3] @ shares + 0x8000) >> 16).astype(np.uint8)[..., None]
    colours = np.repeat(pixels, 3, axis=-1) if found == 1 else pixels[..., :3]
    if channels == 3:
        return colours
    return np.concatenate([colours, np.full((*colours.shape[:-1], 1), 255, np.uint8)], axis=-1)


def _rgb(pixels: Array) -> Array:
    """Gray, RGB or RGBA from gray, BGR or BGRA."""
    return pixels[..., [2, 1, 0, 3]] if pixels.shape[-1] == 4 else pixels[..., ::-1]


def _encoded(bounds: Array, data: Array, lengths: Array, layout: Layout) -> Array:
    """(n,) of bool: rows that hold an image file.

    A row of exactly as many bytes as there are values must look like a file from start to end to be taken for one.
    """
    if layout.binary != "auto" or layout.pixels is None:
        return np.full(len(lengths), layout.binary == "image")
    png, jpeg = (_has(bounds[:-1], data, lengths, magic) for magic in (PNG, JPEG))
    if (unsure := jpeg & (lengths == layout.width)).any():
        jpeg &= ~unsure | _has(bounds[1:] - len(JPEG_END), data, lengths, JPEG_END)
    return png | jpeg


def _has(starts: Array, data: Array, lengths: Array, magic: bytes) -> Array:
    """(n,) of bool: rows of which these bytes stand at `starts`."""
    found = lengths >= len(magic)
    for place, byte in enumerate(magic):
        rows = np.flatnonzero(found)
        if not len(rows):
            break
        found[rows] = data[starts[rows] + place] == byte
    return found


def _fill(values: Array, status: Array, texts: dict[int, str], rows: list[int], pixels: Callable[[int], Array]) -> None:
    """Put the images of some rows in their places, several at a time: Pillow works outside of Python's lock."""

    def filled(row: int) -> tuple[int, str]:
        try:
            values[row] = pixels(row).reshape(-1)
        except _Bad as error:
            return error.status, str(error)
        except MemoryError:
            raise
        except Exception as error:  # whatever Pillow raises for files that are damaged
            return IMAGE, f"{type(error).__name__}: {error}"
        return VALID, ""

    if not rows:
        return
    try:
        require_pillow("A column of images")
    except ImportError as error:
        raise ValueError(str(error)) from None
    threads = int(os.environ.get("PJRT_NPROC") or os.cpu_count() or 1)  # as many as XLA is given: the task's CPUs
    with ThreadPoolExecutor(min(len(rows), threads), "sparkdl-images") as pool:
        for row, (found, text) in zip(rows, pool.map(filled, rows), strict=True):
            status[row] = found
            if text:
                texts[row] = text


def _decoded(content: bytes, layout: Layout) -> Array:
    assert layout.pixels is not None
    high, wide, channels = layout.pixels
    with _opened(content) as image:
        if layout.resize == "error" and image.size != (wide, high):
            raise _Bad(SIZE, f"{image.height} x {image.width}")
        if image.height * image.width > layout.most_pixels:
            most = f"{layout.most_pixels:,} pixels that {PIXELS_SETTING} allows"
            raise _Bad(IMAGE, f"{image.height} x {image.width}, more than the {most}")
        if image.mode[0] in "IF":
            raise _Bad(IMAGE, f"its mode is {image.mode}, more than 8 bits a channel")
        if layout.pixels_are_classes:
            if image.mode not in ("1", "L", "P"):
                raise _Bad(IMAGE, f"its mode is {image.mode}, but classes are of one channel, gray or of a palette")
            return _resized(_pillow().fromarray(np.asarray(image).astype(np.uint8)), layout)
        opaque = "transparency" not in image.info
        # Pillow warns of palettes that hold alpha unless it may first make that a channel, to be dropped.
        return _resized((image if opaque else image.convert("RGBA")).convert(MODES[channels]), layout)


def _opened(content: bytes) -> Any:
    """Pillow's image of a file, of which no more than the header is read yet.

    Not by Pillow's own `open`, whose limit of pixels is the process's, and a warning up to twice as many.
    """
    from PIL import JpegImagePlugin, PngImagePlugin

    try:
        if content.startswith(PNG):
            return PngImagePlugin.PngImageFile(io.BytesIO(content))
        if content.startswith(JPEG):
            return JpegImagePlugin.JpegImageFile(io.BytesIO(content))
    except SyntaxError:  # Pillow's word, about the file
        raise _Bad(IMAGE, "its header is damaged") from None
    raise _Bad(IMAGE, "it begins as neither a JPEG nor a PNG file does")


def _resized(image: Any, layout: Layout) -> Array:
    assert layout.pixels is not None
    high, wide, _ = layout.pixels
    if image.size != (wide, high):
        image = image.resize((wide, high), _pillow().Resampling[layout.resize.upper()])
    return np.asarray(image)


def require_pillow(reason: str) -> None:
    """ImportError where Pillow is missing, which `reason` needs."""
    try:
        _pillow()
    except ImportError:
        raise ImportError(f"{reason} needs Pillow; pip install 'sparkdl-jax[image]' on every machine.") from None


def _pillow() -> Any:
    """Pillow's module Image, an extra."""
    from PIL import Image

    return Image


def _problem(subject: str, layout: Layout, status: int, text: str) -> str:
    if status == SIZE:
        assert layout.pixels is not None
        high, wide, _ = layout.pixels
        return (
            f"{subject} must hold images of {high} x {wide} pixels {layout.purpose}, unless imageResize is set, "
            f"received one of {text}"
        )
    return f"{subject} holds an undecodable image ({text})" if status == IMAGE else f"{subject} holds {KINDS[status]}"


def contiguous(column: pa.Array) -> Array:
    """The bytes of a binary column without nulls, without a copy."""
    bounds, data = bounds_and_bytes(column)
    return data[bounds[0] : bounds[-1]]
