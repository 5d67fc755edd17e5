"""What a fit brings to the driver, known from the shapes of its weights, against what Spark lets a job bring."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import jax
import numpy as np
from pyspark.sql import SparkSession

from sparkdl.arrays import kept_dtype
from sparkdl.network import BaseNetwork
from sparkdl.spark.driver.remote import setting
from sparkdl.training.options import Training

SETTING, DEFAULT = "spark.driver.maxResultSize", "1g"
ARRAY_BYTES = 512  # at most, of an array's headers in an archive
RESULT_BYTES = 9 << 10  # of a job's result besides the weights of a short fit
TASK_BYTES = 32 << 20  # that one task brings, or some more
UNITS = "bkmgtp"


def returned_bytes(network: BaseNetwork, dtype: str) -> int:
    """Bytes of the weights that a fit of this computeDtype returns; the network has an input_shape."""
    leaves, size = jax.tree.leaves(network.abstract_weights()), np.dtype(kept_dtype(dtype)).itemsize
    return sum(math.prod(leaf.shape) * size + ARRAY_BYTES for leaf in leaves)


def most_bytes(session: SparkSession) -> float:
    """Bytes of results that Spark lets a job bring to the driver."""
    text = setting(session, SETTING, DEFAULT).strip().lower()
    number, unit = re.fullmatch(rf"(\d+)\s*([{UNITS}]?)b?", text).groups()  # type: ignore[union-attr]  # Spark read it
    return (int(number) << 10 * UNITS.index(unit or "b")) or math.inf


def returning_tasks(plans: Sequence[Training]) -> int:
    """How many tasks are to bring the weights of these fits: Spark holds what a task brings several times over."""
    return 1 + _of_all(plans) // TASK_BYTES


def check_returned(session: SparkSession, plans: Sequence[Training]) -> None:
    """ValueError if the weights of these fits, trained in one job, are more than Spark would let them bring."""
    size = _of_all(plans) + RESULT_BYTES
    if size > most_bytes(session):
        raise ValueError(
            f"The network's weights take {size / (1 << 20):,.2f} MiB, but {SETTING} is "
            f"{setting(session, SETTING, DEFAULT)}, so that Spark would drop them after training; start the session "
            "with more, or with 0 for no limit, and with a spark.driver.memory that holds them."
        )


def _of_all(plans: Sequence[Training]) -> int:
    return sum(returned_bytes(plan.network, plan.dtype) for plan in plans)


def excess_in(text: str) -> str | None:
    """A sentence, if an exception's text is that of results that Spark dropped; None for all else."""
    found = re.search(r"Total size of serialized results of [^(]*\(([^)]*)\)", text)
    if found is None:
        return None
    return (
        f"The fit was trained, but its results, {found[1]} with histories and statistics, are more than {SETTING} "
        "allows, so that Spark dropped them; start the session with more, or with 0 for no limit."
    )
