"""Makes sparkdl/samples/fashion_mnist.parquet from the whole of Fashion-MNIST, so that the sample can be made again.

SPARKDL_DATA=... python tests/make_sample.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from sparkdl.datasets import FASHION_CLASSES, data_directory, fashion_mnist

ROWS = {"train": 500, "test": 100}  # of each class
TARGET = Path(__file__).parents[1] / "sparkdl/samples/fashion_mnist.parquet"


def main() -> None:
    """Draw the rows, stratified by class, and write them in random order."""
    directory = data_directory()
    if directory is None:
        raise SystemExit("Set SPARKDL_DATA to the folder that holds fashion-mnist.")
    table = fashion_mnist(directory)
    labels, splits = (np.array(table[name].to_pylist()) for name in ("label", "split"))
    generator = np.random.default_rng(0)
    rows = [
        generator.choice(np.flatnonzero((labels == label) & (splits == split)), count, replace=False)
        for split, count in ROWS.items()
        for label in FASHION_CLASSES
    ]
    drawn = table.take(generator.permutation(np.concatenate(rows)))
    # Bytes of an image hardly ever repeat as a whole: a dictionary of them would only cost space.
    pq.write_table(drawn, TARGET, compression="zstd", compression_level=19, use_dictionary=["label", "split"])
    print(f"{TARGET}: {drawn.num_rows:,} rows, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
