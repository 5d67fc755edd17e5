"""What it costs to keep images as files during a fit, beside decoding each of them once before it.

    python benchmarks/images.py [--quick] [--json FILE]

Both fit the same small CNN for one epoch and for several, with two workers, on photographs of 128 x 128 pixels in a
column of JPEG files: `imageStorage="pixels"`, which decodes before the shuffle, and "files", which shuffles and stores
the files and decodes each batch beside the training steps. They take turns; weights must come out equal.

Figures, of medians: `files_over_pixels_1` and `files_over_pixels_5` (time of a fit of so many epochs) and
`bytes_over_pixels` (what the workers wrote to their disks).
"""

from __future__ import annotations

import io
import statistics
import time

import numpy as np
import pyarrow as pa
from PIL import Image
from pyspark.sql import DataFrame, SparkSession
from reporting import arguments, write

from sparkdl import DeepClassificationModel, DeepClassifier, Network
from sparkdl.layers import Conv, Dense, GlobalAvgPool, MaxPool, Relu, Rescale
from sparkdl.spark import local_session
from sparkdl.weights import named_arrays

SIDE = 128
NETWORK = Network(
    [Rescale(1 / 255), Conv(16, (5, 5), 2), Relu(), MaxPool(2), Conv(32, (3, 3)), Relu(), GlobalAvgPool(), Dense(2)],
    input_shape=(SIDE, SIDE, 3),
)
EPOCHS = (1, 5)


def photographs(session: SparkSession, count: int) -> DataFrame:
    """Cached rows of image (a JPEG file) and label; smooth pictures, as photographs are, of one of two colours."""
    rng = np.random.default_rng(0)
    files, labels = [], rng.integers(0, 2, count)
    for label in labels:
        small = rng.integers(0, 200, (8, 8, 3)).astype(np.uint8)
        small[..., label] += 50
        buffer = io.BytesIO()
        Image.fromarray(small).resize((SIDE, SIDE), Image.Resampling.BICUBIC).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
    table = pa.table({"image": pa.array(files, pa.binary()), "label": labels.astype(np.float64)})
    rows = session.createDataFrame(table).repartition(2).cache()
    rows.count()
    return rows


def fit(rows: DataFrame, storage: str, epochs: int) -> tuple[float, DeepClassificationModel]:
    """Seconds of a fit, and its model."""
    classifier = DeepClassifier(
        network=NETWORK,
        featuresCol="image",
        imageStorage=storage,
        optimizer="adam",
        stepSize=1e-3,
        maxIter=epochs,
        batchSize=64,
        numWorkers=2,
        seed=1,
        collectTrainingStats=True,
    )
    started = time.perf_counter()
    model = classifier.fit(rows)
    return time.perf_counter() - started, model


def written(model: DeepClassificationModel) -> float:
    """Bytes that the workers put on their disks."""
    timeline = model.summary.timeline
    return float(timeline[timeline["phase"] == "write"]["bytes"].sum())


def main() -> None:
    """Measure, print, write."""
    options = arguments(__doc__).parse_args()
    count, turns = (400, 1) if options.quick else (4_000, 3)
    rows = photographs(local_session("local[2]"), count)
    figures = {}
    for epochs in EPOCHS:
        seconds: dict[str, list[float]] = {"pixels": [], "files": []}
        models = {}
        for turn in range(turns + 1):
            for name in list(seconds)[:: 1 if turn % 2 else -1]:
                took, models[name] = fit(rows, name, epochs)
                if turn:  # the first compiles
                    seconds[name].append(took)
        arrays = [dict(named_arrays(model.weights)) for model in models.values()]
        assert all(np.array_equal(arrays[0][name], arrays[1][name]) for name in arrays[0]), "the weights differ"
        medians = {name: statistics.median(own) for name, own in seconds.items()}
        print(
            f"{count:,} images, {epochs} epochs: " + ", ".join(f"{name} {own:.1f} s" for name, own in medians.items())
        )
        figures[f"files_over_pixels_{epochs}"] = medians["files"] / medians["pixels"]
        figures["bytes_over_pixels"] = written(models["files"]) / written(models["pixels"])
    for name, value in figures.items():
        print(f"{name} {value:.3f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
