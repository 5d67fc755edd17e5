"""Masks as labels: whatever form the classes of an image's positions come in, they are the same numbers."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from sparkdl.decoding.labels import LabelPart, MaskLayout, decode_labels
from sparkdl.decoding.layout import Layout

ROWS, HEIGHT, WIDTH = 3, 5, 7
CLASSES = np.random.default_rng(0).integers(0, 2, (ROWS, HEIGHT, WIDTH)).astype(np.uint8)
PALETTE = [200, 10, 10, 10, 220, 90] + [77] * 762  # of which no brightness is a class
OPENCV = pa.struct(
    [("origin", pa.string()), *((name, pa.int32()) for name in ("height", "width", "nChannels", "mode"))]
)


def part(resize: str = "error") -> LabelPart:
    images = Layout(("photo",), (HEIGHT, WIDTH, 3), "float32", resize=resize)
    return LabelPart("mask", HEIGHT * WIDTH, mask=MaskLayout.beside({"features": images}, "mask", (HEIGHT, WIDTH)))


def file_of(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return buffer.getvalue()


def in_palette(classes: np.ndarray) -> Any:
    image = Image.fromarray(classes, "P")
    image.putpalette(PALETTE)
    return image


def struct_of(classes: np.ndarray, channels: int = 1) -> dict[str, Any]:
    data = np.repeat(classes[..., None], channels, axis=-1).tobytes()
    sizes = {"height": classes.shape[0], "width": classes.shape[1], "nChannels": channels}
    return {"origin": "", **sizes, "mode": {1: 0, 3: 16}[channels], "data": data}


def structs(rows: list[Any]) -> pa.Array:
    return pa.array(rows, pa.struct([*OPENCV, ("data", pa.binary())]))


FORMS = {
    "array": pa.array(CLASSES.reshape(ROWS, -1).tolist()),
    "array of arrays": pa.array(CLASSES.tolist(), pa.list_(pa.list_(pa.int16()))),
    "raw bytes": pa.array([own.tobytes() for own in CLASSES]),
    "gray PNG": pa.array([file_of(Image.fromarray(own)) for own in CLASSES]),
    "PNG of a palette": pa.array([file_of(in_palette(own)) for own in CLASSES]),
    "PNG of a palette with a transparent color": pa.array(
        [file_of(in_palette(own), transparency=0) for own in CLASSES]
    ),
    "PNG of one bit": pa.array([file_of(Image.fromarray(own * 255).convert("1")) for own in CLASSES]),
    "large binary": pa.array([own.tobytes() for own in CLASSES], pa.large_binary()),
    "image source": structs([struct_of(own) for own in CLASSES]),
}


@pytest.mark.parametrize("column", FORMS.values(), ids=FORMS.keys())
def test_all_forms_give_the_same_numbers(column: pa.Array) -> None:
    found = decode_labels(column, part())
    assert not found.status.any() and found.values.dtype == np.float64
    np.testing.assert_array_equal(found.values, CLASSES.reshape(ROWS, -1))


def test_where_images_are_resized_masks_take_the_nearest_class() -> None:
    large = CLASSES.repeat(2, axis=1).repeat(2, axis=2)
    for column in (pa.array([file_of(in_palette(own)) for own in large]), structs([struct_of(own) for own in large])):
        found = decode_labels(column, part("bilinear"))
        np.testing.assert_array_equal(found.values, CLASSES.reshape(ROWS, -1))
        wrong = decode_labels(column, part())
        assert wrong.status.all()
        assert wrong.problem(0).startswith("labelCol 'mask' must hold images of 5 x 7 pixels for the 5 x 7 positions")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            file_of(Image.new("RGB", (WIDTH, HEIGHT))),
            "undecodable image .its mode is RGB, but classes are of one channel",
        ),
        (file_of(Image.new("I;16", (WIDTH, HEIGHT))), "more than 8 bits a channel"),
        (b"\x00" * 4, "must hold 35 values a row for the 5 x 7 positions that the network .* received a row of 4"),
        (None, "labelCol 'mask' holds null"),
    ],
)
def test_what_is_no_mask_is_told(row: bytes | None, message: str) -> None:
    found = decode_labels(pa.array([row, CLASSES[0].tobytes()]), part())
    assert found.status.tolist()[1] == 0 and found.status[0]
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(found.problem(0))


def test_a_struct_of_colors_is_no_mask() -> None:
    found = decode_labels(structs([struct_of(CLASSES[0], channels=3)]), part())
    assert found.status.all() and "nChannels 3 and mode 16" in found.problem(0)


def test_a_row_without_one_of_several_labels_is_no_bad_row() -> None:
    column = pa.array([None, CLASSES[1].tobytes()])
    found = decode_labels(column, replace(part(), optional=True))
    assert not found.status.any() and np.isnan(found.values[0]).all()
    np.testing.assert_array_equal(found.values[1], CLASSES[1].reshape(-1))
