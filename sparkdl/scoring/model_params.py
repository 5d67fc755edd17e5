"""Which Params of a saved model scoring reads, of which kinds their values are, and which say how a fit runs."""

from __future__ import annotations

from typing import Any, NamedTuple

from sparkdl.arrays import DTYPES
from sparkdl.decoding.layout import RESIZES, SIDES
from sparkdl.scoring.input_layouts import FEATURES_COL
from sparkdl.scoring.saved_stage import short


class _Param(NamedTuple):
    kinds: tuple[type, ...]
    default: Any = None
    choices: tuple[str, ...] = ()


# What scoring reads of a model's Params, with the values of those that an older sparkdl did not save.
READ = {
    "network": _Param((str,)),
    "loss": _Param((str,)),
    "lossWeights": _Param((dict,)),
    "featuresCol": _Param((str,), FEATURES_COL),
    "featuresCols": _Param((list, dict), []),
    "binaryFormat": _Param((str,), "auto", ("auto", "raw", "image")),
    "imageResize": _Param((str,), "error", ("error", *RESIZES)),
    "maxLength": _Param((int, dict)),
    "truncationSide": _Param((str,), "right", SIDES),
    "handleInvalid": _Param((str,), "error", ("error", "skip", "keep")),
    "predictionCol": _Param((str,), "prediction"),
    "rawPredictionCol": _Param((str,), "rawPrediction"),
    "probabilityCol": _Param((str,), "probability"),
    "predictionCols": _Param((dict,), {}),
    "probabilityCols": _Param((dict,), {}),
    "thresholds": _Param((list,)),
    "activationCols": _Param((str,), "{}"),
    "batchSize": _Param((int,), 128),
    "computeDtype": _Param((str,), "float32", tuple(DTYPES)),
    "deviceType": _Param((str,), "auto", ("auto", "cpu", "gpu")),
}
# The others: how a fit runs, and labels.
NOT_READ = {
    "checkpointDir",
    "checkpointInterval",
    "checkpointKeep",
    "checkpointUnit",
    "collectTrainingStats",
    "earlyStopping",
    "exchange",
    "imageStorage",
    "labelCol",
    "labelCols",
    "lengthBuckets",
    "logDir",
    "logInterval",
    "maxIter",
    "numWorkers",
    "optimizer",
    "progress",
    "seed",
    "stepSize",
    "stepSizeFactors",
    "tol",
    "truncated",
    "unfreezeAfter",
    "validationIndicatorCol",
    "weightCol",
    "workerLogs",
}


def checked_params(given: dict[str, Any], kind: str) -> dict[str, Any]:
    """The values of `READ`; ValueError for one of another kind, or a Param that is not known."""
    for name in given:
        if name not in READ and name not in NOT_READ:
            raise ValueError(f"{kind} has no Param {name!r}; a newer sparkdl may have saved it")
    params = {name: given.get(name, param.default) for name, param in READ.items()}
    for name, value in params.items():
        param = READ[name]
        fits = isinstance(value, param.kinds) and not isinstance(value, bool)
        if name in given and (not fits or (param.choices and value not in param.choices)):
            raise ValueError(f"its Param {name} holds {short(repr(value))}")
    if params["network"] is None:
        raise ValueError(f"network of {kind} is not set")
    return params
