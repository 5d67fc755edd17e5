"""Batches hold every row once an epoch whatever the shares, and a shard on disk gives what was written."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from row_cases import chosen, rows_of

from sparkdl.decoding.image_files import ImageFiles
from sparkdl.decoding.layout import Layout
from sparkdl.training.data.batches import Rows, Shard, Steps, batches, epoch_order, prefetched
from sparkdl.training.data.shard_file import ShardWriter, open_shard

RANDOM = np.random.default_rng(5)
SHARES = [(1,), (128,), (129,), (7, 0, 1), (1, 1000), (0, 0, 3), (1,) * 8]
SHARES += [tuple(int(share) for share in RANDOM.integers(0, 300, RANDOM.integers(1, 6))) + (1,) for _ in range(40)]
DIVISIONS = [Steps(shares, batch_size) for shares in SHARES for batch_size in (1, 7, 128)]


def numbered(count: int) -> Shard:
    """Rows whose features and label are their number, from 1."""
    numbers = np.arange(1, count + 1)
    return Shard.from_arrays(np.stack([numbers, -numbers], axis=1), numbers)


@pytest.mark.parametrize("steps", DIVISIONS[::4], ids=str)
def test_every_row_comes_once_an_epoch_and_padding_weighs_nothing(steps: Steps) -> None:
    for worker, share in enumerate(steps.shares):
        epoch = list(batches(numbered(share), steps, worker, epoch_order(share, 3, 1, worker)))
        assert len(epoch) == steps.count
        seen: list[int] = []
        for features, labels, weights in (rows.each().values() for rows in epoch):
            real = weights > 0
            assert len(features) == len(labels) == len(weights) == steps.rows
            assert set(weights) <= {0.0, 1.0}
            assert not features[~real].any() and not labels[~real].any()
            np.testing.assert_array_equal(features, np.stack([labels, -labels], axis=1))
            seen += labels[real].tolist()
        assert sorted(seen) == list(range(1, share + 1))


def test_every_step_takes_its_even_part_of_all_rows_and_of_each_worker() -> None:
    for steps in DIVISIONS:
        workers, each = range(len(steps.shares)), range(steps.count)
        taken = np.array([[np.subtract(*steps.bounds(worker, step)[::-1]) for step in each] for worker in workers])
        assert tuple(taken.sum(axis=1)) == steps.shares
        assert (np.ptp(taken, axis=1) <= 1).all()
        assert np.ptp(taken.sum(axis=0)) <= 1
        assert 0 < taken.sum(axis=0).min() <= taken.sum(axis=0).max() <= steps.batch_size
        assert taken.max() == steps.rows


def test_the_order_is_a_permutation_of_seed_epoch_and_worker() -> None:
    orders = [epoch_order(50, *numbers) for numbers in ((7, 0, 0), (8, 0, 0), (7, 1, 0), (7, 0, 1))]
    for order in orders:
        np.testing.assert_array_equal(np.sort(order), np.arange(50))
    assert len({tuple(order) for order in orders}) == 4
    np.testing.assert_array_equal(epoch_order(50, 7, 0, 0), orders[0])


def test_an_order_is_kept() -> None:
    order = np.array([4, 0, 3, 1, 2])
    taken = np.concatenate([rows.labels["label"] for rows in batches(numbered(5), Steps((5,), 1), 0, order)])
    np.testing.assert_array_equal(taken, order + 1)


# Prefetching


def prefetching() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sparkdl-prefetch"]


def test_prefetched_items_come_in_order_and_the_thread_ends() -> None:
    assert list(prefetched(iter(range(100)))) == list(range(100))
    assert prefetching() == []


def test_an_error_of_the_source_reaches_the_consumer_after_the_items_before_it() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise OSError("the disk is gone")

    items = prefetched(source())
    assert next(items) == 1
    with pytest.raises(OSError, match="the disk is gone"):
        next(items)
    assert prefetching() == []


def test_closing_early_ends_the_thread() -> None:
    with closing(prefetched(iter(range(10**9)))) as items:
        assert next(items) == 0
        assert len(prefetching()) == 1
    assert prefetching() == []


@pytest.mark.parametrize("ahead", [1, 3])
def test_a_slow_consumer_is_never_outrun_by_more_than_asked(ahead: int) -> None:
    made = threading.Semaphore(0)

    def source() -> Iterator[int]:
        for number in range(50):
            made.release()
            yield number

    with closing(prefetched(source(), ahead)) as items:
        for _ in range(5):
            next(items)
        for _ in range(5 + ahead + 1):  # those taken, those waiting, and the one that finds no place
            assert made.acquire(timeout=10)
        assert not made.acquire(timeout=0.3)


# Shards


@pytest.mark.parametrize("features", ["uint8", "float32", "float64"])
@pytest.mark.parametrize(("label_dtype", "label_shape"), [("int32", ()), ("float64", (3,)), ("float64", (1,))])
@pytest.mark.parametrize("sizes", [(), (1,), (4, 0, 3, 5)], ids=str)
def test_a_shard_on_disk_gives_what_was_written_in_the_order_of_keys(
    features: str, label_dtype: str, label_shape: tuple[int, ...], sizes: tuple[int, ...], tmp_path: Path
) -> None:
    count = sum(sizes)
    rows = rows_of(
        RANDOM.integers(0, 256, (count, 2, 3, 1)).astype(features),
        RANDOM.integers(0, 9, (count, *label_shape)).astype(label_dtype),
        RANDOM.random(count),
    )
    rows.features["places"] = RANDOM.integers(-9, 9, (count, 2)).astype("int32")
    keys = RANDOM.permutation(count) * 10**15
    writer = ShardWriter(tmp_path / "shard.arrow", chosen(rows, slice(0)))
    for part in np.split(np.arange(count), np.cumsum(sizes)[:-1]) if sizes else []:
        writer.append(chosen(rows, part), keys[part])
    writer.close()
    shard = open_shard([tmp_path / "shard.arrow"])
    assert writer.rows == len(shard) == count
    every = shard.take(np.arange(count), count)
    for got, written in zip(every.each().values(), rows.each().values(), strict=True):
        assert got.dtype == written.dtype
        np.testing.assert_array_equal(got, written[np.argsort(keys)])


def test_a_shard_of_image_files_gives_their_pixels_when_they_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pillow = pytest.importorskip("PIL.Image")
    pixels = RANDOM.integers(0, 256, (7, 4, 5, 3), dtype=np.uint8)
    contents = [io.BytesIO() for _ in pixels]
    for content, image in zip(contents, pixels, strict=True):
        pillow.fromarray(image).save(content, "PNG")
    files = [content.getvalue() for content in contents]
    files[3] = pixels[3].tobytes()  # a row may hold its values, too
    layout, labels = Layout(("x",), (4, 5, 3), "float32"), np.arange(7)

    def rows(which: slice) -> Rows:
        part = ImageFiles(pa.array(files[which], pa.binary()), layout)
        return rows_of(part, labels[which], np.ones(7)[which])

    writer = ShardWriter(tmp_path / "shard", rows(slice(0)))
    for which in (slice(0, 4), slice(4, 7)):
        writer.append(rows(which), -np.arange(7)[which])
    writer.close()
    assert writer.bytes < len(b"".join(files)) + 7 * 100
    shard = open_shard([tmp_path / "shard"])
    taken = shard.take(np.array([0, 6, 3, 2]), 5)
    np.testing.assert_array_equal(taken.labels["label"], [6, 0, 3, 4, 0])
    np.testing.assert_array_equal(taken.features["features"], [*pixels[[6, 0, 3, 4]], np.zeros((4, 5, 3))])
    assert taken.features["features"].dtype == np.uint8 and shard.chunks[0].features["features"].shape == (4, 4, 5, 3)

    decoding: list[str] = []
    monkeypatch.setattr(ImageFiles, "__getitem__", lambda self, rows: decoding.append(threading.current_thread().name))
    with pytest.raises(TypeError):  # None are no pixels
        next(prefetched(batches(shard, Steps((7,), 2), 0, np.arange(7))))
    assert decoding == ["sparkdl-prefetch"]  # beside the steps


def test_an_image_file_that_can_no_longer_be_decoded_is_named() -> None:
    pytest.importorskip("PIL.Image")
    files = ImageFiles(pa.array([b"\x89PNG\r\n\x1a\n and nothing else"]), Layout(("x",), (4, 5, 3), "float32"))
    with pytest.raises(ValueError, match="featuresCol 'x' holds an undecodable image .* the same Pillow on every mach"):
        files[np.array([0])]


def test_arrival_order_does_not_matter(tmp_path: Path) -> None:
    labels, keys = np.arange(9), np.array([5, 3, 8, 1, 0, 7, 2, 6, 4])
    taken = []
    for name, arrival in (("one", np.arange(9)), ("other", np.arange(9)[::-1])):
        writer = ShardWriter(tmp_path / name, rows_of(np.zeros((0, 1)), labels[:0], np.zeros(0)))
        for chunk in np.split(arrival, 3):
            writer.append(rows_of(np.zeros((3, 1)), labels[chunk], np.ones(3)), keys[chunk])
        writer.close()
        taken.append(open_shard([tmp_path / name]).take(np.array([0, 8, 4, 4, 1]), 6).labels["label"])
    np.testing.assert_array_equal(taken, [[4, 2, 8, 8, 3, 0]] * 2)


def test_an_open_shard_is_a_view_of_the_file(tmp_path: Path) -> None:
    writer = ShardWriter(tmp_path / "shard", rows_of(np.zeros((0, 4), "uint8"), np.zeros(0, "int32"), np.zeros(0)))
    for first in (0, 8):
        writer.append(
            rows_of(np.full((8, 4), first, "uint8"), np.arange(8, dtype="int32"), np.ones(8)), np.arange(8) + first
        )
    writer.close()
    for chunk in open_shard([tmp_path / "shard"]).chunks:
        for part in chunk.each().values():
            assert not part.flags.owndata and not part.flags.writeable


def test_chunks_are_one_shard() -> None:
    chunks = [numbered(size).chunks[0] for size in (3, 0, 4)]
    shard = Shard(chunks)
    assert len(shard) == 7
    rows = shard.take(np.array([6, 0, 2, 3]), 5)
    np.testing.assert_array_equal(rows.labels["label"], [4, 1, 3, 1, 0])
    np.testing.assert_array_equal(rows.weights, [1, 1, 1, 1, 0])


@pytest.mark.parametrize(
    ("labels", "weights", "message"),
    [
        ([1, 2], None, "must have one entry a row, received 3, 2 and 3"),
        ([1, 2, 3], [1, 1], "must have one entry a row, received 3, 3 and 2"),
        ([1, 2, 3], [1, -0.1, 1], "weights must be finite and at least 0"),
        ([1, 2, 3], [1, np.nan, 1], "weights must be finite and at least 0"),
        ([1, 2, 3], [1, np.inf, 1], "weights must be finite and at least 0"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(labels: Any, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shard.from_arrays(np.zeros((3, 2)), labels, weights)
