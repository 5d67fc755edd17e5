"""Images arrive byte for byte as their files hold them, and damaged files say so in a sentence."""

from __future__ import annotations

import gzip
import hashlib
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from sparkdl.datasets import (
    CIFAR10_CLASSES,
    FASHION_CLASSES,
    cifar10,
    data_directory,
    fashion_mnist,
    mnist,
    read_idx,
    sample,
)

SCHEMA = pa.schema({"image": pa.binary(), "label": pa.string(), "split": pa.string()})


def idx(array: np.ndarray) -> bytes:
    """`array` as an idx file, packed number by number."""
    header = bytes([0, 0, 8, array.ndim]) + b"".join(struct.pack(">I", length) for length in array.shape)
    return header + bytes(array.ravel().tolist())


def write(path: Path, content: bytes, zipped: bool = False) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(path.name + ".gz" * zipped)
    path.write_bytes(gzip.compress(content) if zipped else content)
    return path


def write_fashion(folder: Path, zipped: bool = False) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(0)
    written = {}
    for split, prefix, rows in (("train", "train", 5), ("test", "t10k", 3)):
        images, labels = generator.integers(0, 256, (rows, 28, 28), np.uint8), generator.integers(0, 10, rows, np.uint8)
        write(folder / f"{prefix}-images-idx3-ubyte", idx(images), zipped)
        write(folder / f"{prefix}-labels-idx1-ubyte", idx(labels), zipped)
        written[split] = images, labels
    return written


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5), (0, 28, 28)])
@pytest.mark.parametrize("zipped", [False, True])
def test_idx_holds_what_was_written(tmp_path: Path, shape: tuple[int, ...], zipped: bool) -> None:
    array = np.random.default_rng(1).integers(0, 256, shape, np.uint8)
    read = read_idx(write(tmp_path / "array", idx(array), zipped))
    assert read.dtype == np.uint8
    np.testing.assert_array_equal(read, array)


WHOLE = idx(np.arange(12, dtype=np.uint8).reshape(3, 4))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "received nothing"),
        (WHOLE[:3], "received 00 00 08"),
        (WHOLE[:9], "should be an idx file"),
        (b"\x00\x00\x0d" + WHOLE[3:], "received 00 00 0d 02"),
        (b"\x89PNG" + WHOLE, "should be an idx file"),
        (WHOLE[:-1], r"states the shape \(3, 4\) but holds 11 bytes"),
        (WHOLE + b"\x00", "holds 13 bytes"),
        (bytes([0, 0, 8, 4]) + b"\xff" * 16, "states the shape"),
    ],
)
def test_idx_names_the_damage(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        read_idx(write(tmp_path / "array", content))


ZIPPED = gzip.compress(WHOLE, mtime=0)  # else processes that collect a second apart name its tests differently


@pytest.mark.parametrize("content", [ZIPPED[:-10], ZIPPED[:12], b"no gzip", WHOLE])
def test_idx_names_a_damaged_gzip_file(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ValueError, match=r"array\.gz should be a whole gzip file"):
        read_idx(write(tmp_path / "array.gz", content))


@pytest.mark.parametrize("folder", [".", "fashion-mnist"])
@pytest.mark.parametrize("zipped", [False, True])
def test_fashion_mnist_keeps_bytes_and_order(tmp_path: Path, folder: str, zipped: bool) -> None:
    written = write_fashion(tmp_path / folder, zipped)
    table = fashion_mnist(tmp_path)
    table.validate(full=True)
    assert table.schema == SCHEMA
    assert table.to_pylist() == [
        {"image": image.tobytes(), "label": FASHION_CLASSES[label], "split": split}
        for split, (images, labels) in written.items()
        for image, label in zip(images, labels, strict=True)
    ]


@pytest.mark.parametrize("folder", [".", "mnist"])
def test_mnist_has_digits_for_labels(tmp_path: Path, folder: str) -> None:
    written = write_fashion(tmp_path / folder)
    write_fashion(tmp_path / "fashion-mnist", zipped=True)  # whose files have the same names
    table = mnist(tmp_path)
    assert table.schema == SCHEMA
    assert table["label"].to_pylist() == [str(label) for _, labels in written.values() for label in labels]
    assert table["image"].to_pylist() == [image.tobytes() for images, _ in written.values() for image in images]


def test_fashion_mnist_names_what_is_missing(tmp_path: Path) -> None:
    write_fashion(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match="t10k-labels-idx1-ubyte"):
        fashion_mnist(tmp_path)


@pytest.mark.parametrize(
    ("labels", "message"), [([0, 1], "2 labels for 3 images"), ([0, 10, 1], "less than 10, received 10")]
)
def test_labels_must_fit_the_images(tmp_path: Path, labels: list[int], message: str) -> None:
    write_fashion(tmp_path)
    write(tmp_path / "t10k-labels-idx1-ubyte", idx(np.array(labels, np.uint8)))
    with pytest.raises(ValueError, match=message):
        fashion_mnist(tmp_path)


@pytest.mark.parametrize("zipped", [False, True])
def test_cifar10_turns_planes_into_channels(tmp_path: Path, zipped: bool) -> None:
    records = np.random.default_rng(2).integers(0, 256, (6, 3073), np.uint8)
    records[:, 0] %= 10
    for name, rows in (("data_batch_2", records[2:4]), ("data_batch_1", records[:2]), ("test_batch", records[4:])):
        write(tmp_path / "cifar10" / f"{name}.bin", rows.tobytes(), zipped)
    table = cifar10(tmp_path)
    table.validate(full=True)
    assert table.schema == SCHEMA
    assert table["split"].to_pylist() == ["train"] * 4 + ["test"] * 2
    assert table["label"].to_pylist() == [CIFAR10_CLASSES[label] for label in records[:, 0]]
    for image, record in zip(table["image"].to_pylist(), records, strict=True):
        planes = [record[1 + 1024 * channel :][:1024] for channel in range(3)]
        assert image == bytes(plane[pixel] for pixel in range(1024) for plane in planes)


@pytest.mark.parametrize("content", [b"", b"\x00" * 3072])
def test_cifar10_names_a_broken_batch(tmp_path: Path, content: bytes) -> None:
    write(tmp_path / "data_batch_1.bin", content)
    with pytest.raises(ValueError, match=r"data_batch_1\.bin should hold records of 3,073 bytes"):
        cifar10(tmp_path)


def test_batches_gzipped_and_not_are_all_read_once(tmp_path: Path) -> None:
    rows = {1: 2, 2: 3, 3: 4}
    for number, count in rows.items():
        content = np.full((count, 3073), number, np.uint8).tobytes()
        for zipped in {1: (False,), 2: (True,), 3: (False, True)}[number]:
            write(tmp_path / f"data_batch_{number}.bin", content, zipped)
    write(tmp_path / "test_batch.bin", bytes(3073))
    labels = cifar10(tmp_path)["label"].to_pylist()
    names = ("automobile", "bird", "cat")
    assert labels == [name for name, count in zip(names, rows.values(), strict=True) for _ in range(count)] + [
        "airplane"
    ]


def test_the_sample_is_stratified_and_shuffled() -> None:
    table = sample()
    assert table.schema.remove_metadata() == SCHEMA
    counts = table.group_by(["label", "split"]).aggregate([([], "count_all")]).to_pylist()
    assert {(row["label"], row["split"]): row["count_all"] for row in counts} == {
        (label, split): count for label in FASHION_CLASSES for split, count in (("train", 500), ("test", 100))
    }
    images = table["image"].to_pylist()
    assert {len(image) for image in images} == {784}
    assert len(set(images)) > 5990, "only the few images that Fashion-MNIST itself repeats"
    assert len(set(table["label"][:100].to_pylist())) == 10, "the rows are in random order"


def test_data_directory_follows_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARKDL_DATA", str(tmp_path))
    assert data_directory() == tmp_path
    monkeypatch.setenv("SPARKDL_DATA", str(tmp_path / "absent"))
    with pytest.raises(ValueError, match="SPARKDL_DATA should name a folder"):
        data_directory()
    monkeypatch.setenv("SPARKDL_DATA", "")
    assert data_directory() is None
    monkeypatch.delenv("SPARKDL_DATA")
    assert data_directory() is None


# The MD5 sums that Fashion-MNIST's authors publish: https://github.com/zalandoresearch/fashion-mnist#get-the-data
PUBLISHED = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}


def test_the_sample_comes_from_the_published_files() -> None:
    directory = data_directory()
    if directory is None or not (directory / "fashion-mnist").is_dir():
        pytest.skip("SPARKDL_DATA names no folder with fashion-mnist")
    for name, published in PUBLISHED.items():
        content = (directory / "fashion-mnist" / name).read_bytes()
        assert hashlib.md5(content, usedforsecurity=False).hexdigest() == published
    table = fashion_mnist(directory)
    assert table.group_by("split", use_threads=False).aggregate([([], "count_all")]).to_pylist() == [
        {"split": "train", "count_all": 60_000},
        {"split": "test", "count_all": 10_000},
    ]
    rows = {tuple(row.values()) for row in table.to_pylist()}
    assert all(tuple(row.values()) in rows for row in sample().to_pylist())
