"""Data larger than memory trains: a worker's own memory does not grow with its rows, which stay on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

LIMIT = 320 << 20  # bytes of a worker
ROW = 64 * 64 * 3

# Anonymous memory is the process's own; pages of a mapped file are the system's to drop. It is looked at all the time.
SCRIPT = """
import json, re, sys, threading, time
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from sparkdl import Network
from sparkdl.layers import Dense, Flatten
from sparkdl.training import Training
from sparkdl.training.data.batches import Rows
from sparkdl.training.data.shard_file import ShardWriter, open_shard
from sparkdl.training.exchanges.exchange import WORKERS
from sparkdl.training.loop import Share, train

most = 0

def watch():
    global most
    while True:
        status = Path("/proc/self/status").read_text()
        most = max(most, 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]))
        time.sleep(0.002)

threading.Thread(target=watch, daemon=True).start()
path, rows, shape = Path(sys.argv[1]), int(sys.argv[2]), (64, 64, 3)
random = np.random.default_rng(0)
classes = np.arange(1000, dtype="int32") % 2
part = Rows({"features": random.integers(0, 256, (1000, *shape), dtype="uint8")}, {"label": classes}, np.ones(1000))
writer = ShardWriter(path, jax.tree.map(lambda array: array[:0], part))
for _ in range(rows // 1000):
    writer.append(part, random.integers(-(2**62), 2**62, 1000))
writer.close()
plan = Training(Network([Flatten(), Dense(2)], input_shape=shape), epochs=1, batch_size=256, step_size=1e-6)
mesh = Mesh(np.array(jax.local_devices()[:1]), (WORKERS,))
result = train(plan, Share([open_shard([path])], (rows,), 0), Share([], (), 0), mesh)
print(json.dumps({"most": most, "rows": result.history[0].rows}))
"""


def most_memory(folder: Path, rows: int) -> int:
    """Bytes of anonymous memory that a process has at most while it writes and trains on so many rows."""
    path = folder / "rows.arrow"
    command = [sys.executable, "-c", SCRIPT, str(path), str(rows)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, env={"JAX_PLATFORMS": "cpu", "PJRT_NPROC": "1"}
        )
        assert done.returncode == 0, done.stderr
        assert path.stat().st_size > rows * ROW
    finally:
        path.unlink(missing_ok=True)
    told = json.loads(done.stdout)
    assert told["rows"] == rows
    return told["most"]


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells a process's anonymous memory")
def test_four_times_the_memory_of_a_worker_trains_within_it(tmp_path: Path) -> None:
    rows = -(-4 * LIMIT // ROW // 1000) * 1000
    large, small = most_memory(tmp_path, rows), most_memory(tmp_path, 3000)
    assert large < LIMIT
    assert large - small < 0.1 * rows * ROW  # 24 bytes a row for the key and two orders; runs differ by some 40 MB
