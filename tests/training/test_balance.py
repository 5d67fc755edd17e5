"""Rows move from workers that hold more than their share to those that hold less, none is lost, and the same do so."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from sparkdl.decoding.ragged_rows import RaggedRows
from sparkdl.training.data.batches import Rows, Shard, even_shares
from sparkdl.training.data.shard_file import ShardWriter
from sparkdl.training.group import balance
from sparkdl.training.group.balance import moves, shared_shard

HELD = [(266, 246), (8, 0), (0, 8), (4, 0, 3), (1, 0, 0, 0), (0, 0), (5, 5), (100, 1, 1, 60, 0, 7), (7,)]


@pytest.mark.parametrize("held", HELD, ids=str)
def test_shares_differ_by_one_row_at_most_and_the_fewest_move(held: tuple[int, ...]) -> None:
    shares = even_shares(held)
    assert sum(shares) == sum(held) and max(shares) - min(shares) <= 1
    made = moves(held, shares)
    after = np.array(held)
    for move in made:
        assert move.rows > 0
        after[move.giver] -= move.rows
        after[move.taker] += move.rows
    assert tuple(after) == shares
    assert not {move.giver for move in made} & {move.taker for move in made}
    over = sum(held) % len(held)  # no other even shares ask for fewer: these give the spare rows to the fullest
    most = sorted(held, reverse=True)
    each = sum(held) // len(held)
    assert sum(move.rows for move in made) == sum(max(0, n - each - (at < over)) for at, n in enumerate(most))


def rows_of(count: int, seed: int) -> Rows:
    draw = np.random.default_rng(seed)
    texts = RaggedRows.of([draw.integers(1, 9, length).astype("int32") for length in draw.integers(0, 6, count)])
    features = {"image": draw.integers(0, 256, (count, 4, 3)).astype("uint8"), "text": texts}
    return Rows(features, {"label": draw.normal(size=count)}, draw.uniform(1, 2, count))


def written(folder: Path, held: tuple[int, ...]) -> list[list[tuple[int, float]]]:
    """A file a worker, of several batches in no order; of each the (key, label) by key."""
    found = []
    for rank, count in enumerate(held):
        draw, pairs = np.random.default_rng(rank), []
        folder.joinpath(str(rank)).mkdir()
        writer = ShardWriter(folder / str(rank) / "training.arrow", jax.tree.map(lambda part: part[:0], rows_of(3, 0)))
        for number, size in enumerate((count // 3, count - count // 3)):
            rows, keys = rows_of(size, 100 * rank + number), draw.integers(-(2**62), 2**62, size)
            writer.append(rows, keys)
            pairs += zip(keys.tolist(), rows.labels["label"].tolist(), strict=True)
        writer.close()
        found.append(sorted(pairs))
    return found


@pytest.fixture
def together(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[tuple[int, ...]], list[Shard]]:
    """Runs `shared_shard` for all workers at once, each in a thread in place of a process."""

    def run(held: tuple[int, ...]) -> list[Shard]:
        barrier, sent, who = threading.Barrier(len(held), timeout=60), {}, threading.local()

        def from_worker(data: bytes | None, giver: int, mesh: Any) -> bytes | None:
            if giver == who.rank:
                sent["data"] = data
            else:
                assert data is None
            barrier.wait()
            got = sent["data"]
            barrier.wait()
            return got

        def shard(rank: int) -> Shard:
            who.rank = rank
            path: Path = tmp_path / str(rank) / "training.arrow"
            found = shared_shard(path, held, even_shares(held), rank, None)  # type: ignore[arg-type]
            return found.padded_to({"text": 6})

        monkeypatch.setattr(balance, "from_worker", from_worker)
        with ThreadPoolExecutor(len(held)) as pool:
            return list(pool.map(shard, range(len(held))))

    return run


@pytest.mark.parametrize("piece", [1, 400, 1 << 20])
@pytest.mark.parametrize("held", HELD, ids=str)
def test_every_row_is_with_one_worker_and_those_of_the_largest_keys_moved(
    held: tuple[int, ...], piece: int, together: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(balance, "PIECE_BYTES", piece)
    before = written(tmp_path, held)
    shards = together(held)
    shares = even_shares(held)
    assert [len(shard) for shard in shards] == list(shares)
    labels = [shard.take(np.arange(len(shard)), len(shard)).labels["label"].tolist() for shard in shards]
    for own, share, after in zip(before, shares, labels, strict=True):
        if len(own) >= share:
            assert after == [label for _, label in own[:share]]
        else:
            assert Counter(label for _, label in own) <= Counter(after)
    every = {label: key for own in before for key, label in own}
    assert Counter(label for after in labels for label in after) == Counter(list(every))
    for after in labels:
        assert [every[label] for label in after] == sorted(every[label] for label in after)


def test_rows_arrive_whole(together: Any, tmp_path: Path) -> None:
    held = (12, 0)
    written(tmp_path, held)
    parts = [rows_of(4, 0), rows_of(8, 1)]
    whole = {}
    for part in parts:
        texts, lengths = part.features["text"].padded()
        for row in range(len(part.weights)):
            label = part.labels["label"][row]
            text = texts[row, : lengths[row]].tolist()
            whole[label] = (part.features["image"][row].tolist(), text, part.weights[row])
    for shard in together(held):
        taken = shard.take(np.arange(6), 6)
        for row in range(6):
            text = taken.features["text"]
            found = text.values[row, : text.lengths[row]].tolist()
            image = taken.features["image"][row].tolist()
            assert whole[taken.labels["label"][row]] == (image, found, taken.weights[row])
        assert len(shard.lengths("text")) == 6


def test_the_order_in_which_rows_came_decides_nothing(together: Any, tmp_path: Path) -> None:
    held = (9, 2)
    written(tmp_path, held)
    first = [shard.digest() for shard in together(held)]
    for rank in range(2):
        for came in (tmp_path / str(rank)).glob("*.came.arrow"):
            came.unlink()
    assert [shard.digest() for shard in together(held)] == first
    assert len(set(first)) == 2
