"""Images become the pixels that Pillow makes of them: files, Spark's structs, of any size and channels."""

from __future__ import annotations

import io
import struct
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from sparkdl.arrays import Array
from sparkdl.decoding import images
from sparkdl.decoding.columns import decode_features
from sparkdl.decoding.images import in_channels
from sparkdl.decoding.layout import KINDS, RESIZES, Layout

Image = pytest.importorskip("PIL.Image")

PIXELS = np.random.default_rng(4).integers(0, 256, (5, 6, 4), dtype=np.uint8)
BY_MODE = {mode: Image.fromarray(PIXELS).convert(mode) for mode in ("L", "RGB", "RGBA", "P", "1", "LA", "CMYK")}
CHANNELS = {"L": 1, "RGB": 3, "RGBA": 4}
STRUCT = pa.struct(
    {"origin": pa.string(), "height": pa.int32(), "width": pa.int32(), "nChannels": pa.int32(), "mode": pa.int32()}
    | {"data": pa.binary()}
)


def layout(channels: int, **options: Any) -> Layout:
    return Layout(("x",), (5, 6, channels), "float32", **options)


def file_of(image: Any, form: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, form, **options)
    return buffer.getvalue()


def struct_of(image: Any) -> dict[str, Any]:
    """As Spark's image source makes it: OpenCV's order of channels."""
    values = np.asarray(image).reshape(image.height, image.width, -1)
    channels = values.shape[2]
    swapped = values[..., {1: [0], 3: [2, 1, 0], 4: [2, 1, 0, 3]}[channels]]
    made = {"origin": "here", "height": image.height, "width": image.width, "nChannels": channels}
    return made | {"mode": 8 * (channels - 1), "data": swapped.tobytes()}


def decoded(rows: list[Any], kind: Any, layout: Layout) -> tuple[Array, list[str]]:
    made = decode_features([pa.array(rows, kind)], layout)
    return made.values, [KINDS[code] for code in made.status]


def pillow(image: Any, channels: int) -> Array:
    mode = {count: mode for mode, count in CHANNELS.items()}[channels]
    return np.asarray(image.convert(mode)).reshape(*image.size[::-1], channels)


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_are_converted_as_pillow_does(channels: int) -> None:
    for mode, image in BY_MODE.items():
        if (mode, channels) == ("CMYK", 4):
            continue  # which Pillow does not convert
        expected = pillow(image, channels)
        form = "TIFF" if mode == "CMYK" else "PNG"
        if form == "PNG":
            values, status = decoded([file_of(image)], pa.binary(), layout(channels))
            assert status == ["valid"]
            np.testing.assert_array_equal(values[0], expected)
        if mode in CHANNELS:
            values, status = decoded([struct_of(image)], STRUCT, layout(channels))
            assert status == ["valid"]
            np.testing.assert_array_equal(values[0], expected)
    every = np.stack(np.meshgrid(*[np.arange(0, 256, 5, dtype=np.uint8)] * 3), axis=-1).reshape(1, -1, 3)
    np.testing.assert_array_equal(in_channels(every, 1)[..., 0], np.asarray(Image.fromarray(every).convert("L")))


def test_rows_of_several_forms_stand_side_by_side() -> None:
    raw = PIXELS[..., :3].tobytes()
    jpeg = file_of(BY_MODE["RGB"], "JPEG")
    rows = [raw, None, file_of(BY_MODE["RGB"]), jpeg, raw[:-1], jpeg[: len(jpeg) // 2], b"\x89PNG\r\n\x1a\nrubbish"]
    values, status = decoded(rows, pa.binary(), layout(3))
    assert status[:5] == ["valid", "null", "valid", "valid", "wrong width"]
    assert status[5:] == ["undecodable image"] * 2
    for row in (0, 2):
        np.testing.assert_array_equal(values[row], PIXELS[..., :3])
    np.testing.assert_array_equal(values[3], np.asarray(Image.open(io.BytesIO(jpeg))))
    assert not values[[1, 4, 5, 6]].any()
    sliced, status = decoded([*rows[:4]], pa.binary(), layout(3))
    np.testing.assert_array_equal(decode_features([pa.array(rows)[1:4]], layout(3)).values, sliced[1:])


def test_bytes_are_taken_for_what_the_param_says_or_else_for_what_they_look_like() -> None:
    width = layout(3).width
    file = file_of(BY_MODE["L"], "JPEG", quality=1)
    as_long = np.frombuffer(file, np.uint8).size
    wide = Layout(("x",), (1, as_long, 1), "float32")  # whose raw rows are as long as the file
    assert decoded([file], pa.binary(), wide)[1] == ["wrong size"]
    values, status = decoded([file], pa.binary(), Layout(("x",), (1, as_long, 1), "float32", binary="raw"))
    assert (status, values.tobytes()) == (["valid"], file)
    unended = file[:-2] + b"\x00\x00"
    values, status = decoded([unended], pa.binary(), wide)
    assert (status, values.tobytes()) == (["valid"], unended)
    assert decoded([bytes(width)], pa.binary(), layout(3, binary="image"))[1] == ["undecodable image"]
    flat = Layout(("x",), (width,), "float32")
    assert decoded([bytes(width), file_of(BY_MODE["RGB"])], pa.binary(), flat)[1] == ["valid", "wrong width"]


@pytest.mark.parametrize("resize", RESIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_images_of_other_sizes_are_resized_by_pillow_or_named(resize: str, channels: int) -> None:
    large = Image.fromarray(np.random.default_rng(5).integers(0, 256, (13, 9, 3), dtype=np.uint8))
    mode = {1: "L", 3: "RGB"}[channels]
    expected = np.asarray(large.convert(mode).resize((6, 5), Image.Resampling[resize.upper()])).reshape(5, 6, channels)
    for kind, row in ((pa.binary(), file_of(large)), (STRUCT, struct_of(large))):
        values, status = decoded([row], kind, layout(channels, resize=resize))
        assert status == ["valid"]
        np.testing.assert_array_equal(values[0], expected)
        refused = decode_features([pa.array([row], kind)], layout(channels))
        assert KINDS[refused.status[0]] == "wrong size"
        sentence = "images of 5 x 6 pixels to fill the network's input_shape .* unless imageResize is set, .* 13 x 9"
        with pytest.raises(AssertionError, match=sentence):
            raise AssertionError(refused.problem(0))


def test_the_pixels_of_a_file_are_counted_by_its_header_before_any_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 10)  # of the process, of which Pillow warns: not asked
    files = [file_of(BY_MODE["RGB"]), file_of(BY_MODE["RGB"], "JPEG"), file_of(Image.new("L", (31, 1)))]
    header = b"IHDR" + struct.pack(">IIBBBBB", 13_000, 13_000, 1, 0, 0, 0, 0)  # of which not one pixel follows
    header = struct.pack(">I", 13) + header + struct.pack(">I", zlib.crc32(header))
    files.append(b"\x89PNG\r\n\x1a\n" + header + struct.pack(">I", 9) + b"IDAT")
    small, large = (
        decode_features([pa.array(files)], layout(3, resize="bilinear", **limit)) for limit in ({"most_pixels": 30}, {})
    )
    bad = "undecodable image"
    assert [KINDS[code] for code in small.status] == ["valid", "valid", bad, bad]
    assert [KINDS[code] for code in large.status] == ["valid", "valid", "valid", bad]
    np.testing.assert_array_equal(large.values[0], PIXELS[..., :3])
    assert not small.values[2:].any()
    sentence = "holds an undecodable image (1 x 31, more than the 30 pixels that sparkdl.maxImagePixels allows)"
    assert small.problem(2) == f"featuresCol 'x' {sentence}"
    assert "(13000 x 13000, more than the 67,108,864 pixels" in large.problem(3)


def test_files_are_decoded_by_as_many_threads_as_the_task_has_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of which the environment tells XLA, too."""
    threads = []

    def pool(count: int, name: str) -> ThreadPoolExecutor:
        threads.append(count)
        return ThreadPoolExecutor(count, name)

    monkeypatch.setattr(images, "ThreadPoolExecutor", pool)
    for cpus in ("1", "3", "99"):
        monkeypatch.setenv("PJRT_NPROC", cpus)
        assert decoded([file_of(BY_MODE["RGB"])] * 5, pa.binary(), layout(3))[1] == ["valid"] * 5
    assert threads == [1, 3, 5]


def test_structs_that_hold_no_such_image_are_told_apart() -> None:
    good = struct_of(BY_MODE["RGB"])
    unread = {"origin": "bad.jpg", "height": -1, "width": -1, "nChannels": -1, "mode": -1, "data": b""}  # as Spark says
    rows = [good, None, unread, good | {"mode": 21}, good | {"data": b"abc"}, good | {"data": None}, good]
    made = decode_features([pa.array(rows, STRUCT)], layout(3))
    bad = "undecodable image"
    assert [KINDS[code] for code in made.status] == ["valid", "null", bad, bad, bad, "null", "valid"]
    assert "height -1, width -1, nChannels -1 and mode -1 with 0 bytes" in made.problem(2)
    assert not made.values[1:6].any()
    np.testing.assert_array_equal(made.values[[0, 6]], [PIXELS[..., :3]] * 2)
    sixteen = file_of(Image.fromarray(np.full((5, 6), 300, np.uint16)))
    made = decode_features([pa.array([sixteen])], layout(1))
    assert KINDS[made.status[0]] == bad
    assert "more than 8 bits a channel" in made.problem(0)
