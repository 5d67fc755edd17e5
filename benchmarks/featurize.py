"""Rows a second that a Featurizer makes Vectors of, beside PyTorch in Spark's `predict_batch_udf`, on equal weights.

    python benchmarks/featurize.py [--quick] [--json FILE] [--only NAMES] [--rounds N]

In one session of two slots, over one cached DataFrame of two partitions, both take turns:

- `resnet50`: images of 224 x 224 x 3 as raw bytes, to the 2,048 numbers before the classes;
- `minilm`: texts of 128 numbers of words, to the 384 of their vector.

The weights are random. PyTorch's networks are those of `transformers`, read from the files that `save_weights` writes
by Hugging Face's names, one thread a task, under `inference_mode`; images are scaled in either network. Before the
clock runs, both must come to the same numbers. Each also computes in bfloat16, ours by computeDtype="bfloat16",
PyTorch's as `net.bfloat16()`, which a CPU takes less time for if it has instructions of that.

Figures: for each case `featurize_<case>_rows_per_s`, `..._torch_udf_rows_per_s`, medians of rounds, and
`featurize_<case>_over_torch_udf`, ours over theirs (more is better); `featurize_<case>_bfloat16_over_torch_udf` and
`featurize_<case>_bfloat16_over_torch_udf_bfloat16`, ours in bfloat16 over theirs in float32, and in bfloat16.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.ml.functions import predict_batch_udf, vector_to_array
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, FloatType
from reporting import arguments, write

from sparkdl import Featurizer, Graph, Network, models
from sparkdl.interchange import load_weights, save_weights
from sparkdl.layers import Normalization, Rescale
from sparkdl.spark import local_session

Array = np.ndarray[Any, Any]
SIDE, WORDS, VOCABULARY = 224, 128, 30_522
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of torchvision's networks
SLOTS = 2


@dataclass(frozen=True)
class Case:
    """A network, and what is asked of it.

    Attributes
    ----------
    network : Network or Graph
        Whose weights the file has.
    asked : Network or Graph
        The same, which prepares its rows.
    layer : str
        Whose output is wanted.
    config : dict
        Hugging Face's, of the same network.
    rows, quick, batch : int
        In a turn, in one of --quick, and at a time.
    """

    network: Network | Graph
    asked: Network | Graph
    layer: str
    config: dict[str, Any]
    rows: int
    quick: int
    batch: int


def cases() -> dict[str, Case]:
    """By name."""
    residual = models.resnet50((SIDE, SIDE, 3), small=False)
    scaled = [Rescale(1 / 255), Normalization(MEAN, tuple(each**2 for each in DEVIATION)), *residual.layers]
    text = models.minilm()
    return {
        "resnet50": Case(residual, Network(scaled, (SIDE, SIDE, 3)), "avgpool", {"model_type": "resnet"}, 128, 8, 16),
        "minilm": Case(
            text,
            text,
            "pooled",
            {
                "model_type": "bert",
                "hidden_size": 384,
                "num_hidden_layers": 6,
                "num_attention_heads": 12,
                "intermediate_size": 1536,
            },
            512,
            8,
            32,
        ),
    }


def frame(session: SparkSession, name: str, count: int) -> DataFrame:
    """Cached rows in two partitions, in the column "row"."""
    draw = np.random.default_rng(0)
    if name == "resnet50":
        rows: Any = [draw.integers(0, 256, SIDE * SIDE * 3, "uint8").tobytes() for _ in range(count)]
    else:
        rows = [[101, *draw.integers(1000, VOCABULARY, WORDS - 2).tolist(), 102] for _ in range(count)]
    kind = pa.binary() if name == "resnet50" else pa.list_(pa.int32())
    dataset = session.createDataFrame(pa.table({"id": range(count), "row": pa.array(rows, kind)}))
    dataset = dataset.repartition(SLOTS, "id").cache()
    dataset.count()
    return dataset


def ours(case: Case, file: Path, dtype: str) -> Callable[[DataFrame], DataFrame]:
    """The Featurizer."""
    weights = load_weights(file, case.asked)
    featurizer = Featurizer(
        network=case.asked, weights=weights, outputLayer=case.layer, featuresCol="row", batchSize=case.batch,
        deviceType="cpu", computeDtype=dtype,
    )  # fmt: skip
    return lambda dataset: featurizer.transform(dataset).select(
        "id", vector_to_array("vector", "float32").alias("made")
    )


def theirs(name: str, case: Case, file: Path, dtype: str) -> Callable[[DataFrame], DataFrame]:
    """The model of `transformers`, which reads the file."""
    config, size = case.config, {"resnet50": 2048, "minilm": 384}[name]

    def make() -> Callable[[Array], Array]:
        os.environ["OMP_NUM_THREADS"] = "1"
        import torch
        import transformers

        torch.set_num_threads(1)
        transformers.utils.logging.disable_progress_bar()
        settings = transformers.AutoConfig.for_model(**config)
        net = transformers.AutoModel.from_pretrained(file.parent, config=settings, weights_only=True).eval()
        net = net.to(getattr(torch, dtype))
        mean, deviation = (torch.tensor(each).view(1, 3, 1, 1) for each in (MEAN, DEVIATION))

        def images(values: Array) -> Array:
            pixels = np.frombuffer(b"".join(values), np.uint8).reshape(-1, SIDE, SIDE, 3)
            with torch.inference_mode():
                x = (torch.from_numpy(pixels.copy()).permute(0, 3, 1, 2).float() / 255 - mean) / deviation
                made: Array = net(x.to(net.dtype)).pooler_output.reshape(-1, size).float().numpy()
            return made

        def texts(values: Array) -> Array:
            ids = torch.from_numpy(np.stack(values).astype(np.int64).reshape(-1, WORDS))
            with torch.inference_mode():
                made: Array = net(ids).pooler_output.float().numpy()
            return made

        return images if name == "resnet50" else texts

    shapes = [[WORDS]] if name == "minilm" else None
    udf = predict_batch_udf(make, return_type=ArrayType(FloatType()), batch_size=case.batch, input_tensor_shapes=shapes)
    return lambda dataset: dataset.select("id", udf("row").alias("made"))


def seconds(made: DataFrame) -> float:
    """Of a pass over all rows, whose numbers Spark adds up."""
    started = time.perf_counter()
    made.select(F.sum(F.aggregate("made", F.lit(0.0), lambda total, each: total + each))).first()
    return time.perf_counter() - started


def compare(session: SparkSession, name: str, case: Case, rounds: int, quick: bool) -> dict[str, float]:
    """Take turns, print a line, return the figures."""
    count = case.quick if quick else case.rows
    dataset = frame(session, name, count)
    with TemporaryDirectory() as folder:
        file = Path(folder) / "model.safetensors"
        save_weights(file, case.network.init(0), case.network, names="huggingface")
        make = {"ours": ours(case, file, "float32"), "bfloat16": ours(case, file, "bfloat16")}
        if find_spec("torch") and find_spec("transformers"):
            make["torch_udf"] = theirs(name, case, file, "float32")
            make["torch_udf_bfloat16"] = theirs(name, case, file, "bfloat16")
        else:
            print("PyTorch or transformers is not installed and left out; pip install 'sparkdl-jax[benchmarks]'.")
        found = {
            who: np.array([row.made for row in made(dataset).orderBy("id").collect()]) for who, made in make.items()
        }
        for who, values in found.items():
            allowed = 0.1 if "bfloat16" in who else 1e-3
            np.testing.assert_allclose(values, found["ours"], rtol=0, atol=allowed * np.abs(found["ours"]).max())
        times: dict[str, list[float]] = {who: [] for who in make}
        for _ in range(rounds):
            for who, made in make.items():
                times[who].append(seconds(made(dataset)))
    dataset.unpersist()
    rates = {who: count / statistics.median(taken) for who, taken in times.items()}
    figures = {f"featurize_{name}_rows_per_s": rates["ours"]}
    line = f"{name:<10}{rates['ours']:10.2f}{rates['bfloat16']:10.2f}"
    if "torch_udf" in rates:
        figures[f"featurize_{name}_torch_udf_rows_per_s"] = rates["torch_udf"]
        pairs = ("ours", "torch_udf"), ("bfloat16", "torch_udf"), ("bfloat16", "torch_udf_bfloat16")
        ratios = {f"{one}_over_{other}": rates[one] / rates[other] for one, other in pairs}
        figures |= {f"featurize_{name}_{pair.removeprefix('ours_')}": ratio for pair, ratio in ratios.items()}
        line += f"{rates['torch_udf']:10.2f}{rates['torch_udf_bfloat16']:10.2f}"
        line += "".join(f"{ratio:10.2f}" for ratio in ratios.values())
    print(line, flush=True)
    return figures


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    every = cases()
    parser.add_argument("--only", default=",".join(every), metavar="NAMES", help="only these: a,b")
    parser.add_argument("--rounds", type=int, metavar="N", help="turns of each (default: 5; quick: 1)")
    chosen = parser.parse_args()
    names = chosen.only.split(",")
    if unknown := [name for name in names if name not in every]:
        parser.error(f"--only must be of {', '.join(every)}, received {unknown[0]!r}.")
    session = local_session(f"local[{SLOTS}]", "sparkdl-benchmark")
    titles = ("ours", "bfloat16", "PyTorch", "bfloat16", "ratio", "bf16/f32", "bf16/bf16")
    print(f"{'rows a s':<10}" + "".join(f"{title:>10}" for title in titles))
    figures: dict[str, float] = {}
    for name in names:
        figures |= compare(session, name, every[name], chosen.rounds or (1 if chosen.quick else 5), chosen.quick)
    write(chosen.json, figures)
    session.stop()


if __name__ == "__main__":
    main()
