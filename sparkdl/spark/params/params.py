"""The Params of every sparkdl stage. Specs are kept in Params as JSON, so Spark ML saves and copies them unaided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, TypedDict

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import (
    HasLabelCol,
    HasMaxIter,
    HasPredictionCol,
    HasSeed,
    HasStepSize,
    HasTol,
    HasValidationIndicatorCol,
    HasWeightCol,
)

from sparkdl.arrays import DTYPES
from sparkdl.losses import Loss
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective, read_losses
from sparkdl.optimizers import Optimizer
from sparkdl.spark.params.activations import HasActivationCols
from sparkdl.spark.params.converters import one_of, spec_text, specs_text, to_steps
from sparkdl.spark.params.input_params import HasInputs
from sparkdl.spark.params.layer_params import HasLayerSteps
from sparkdl.spark.params.named_params import NamedParams
from sparkdl.spark.params.output_params import HasOutputs
from sparkdl.spark.params.run_params import HasRun
from sparkdl.specs import Named
from sparkdl.training.exchanges.exchange import Exchange
from sparkdl.training.stopping import EarlyStopping


class DeepArguments(TypedDict, total=False):
    """Keyword arguments of every estimator: its Params by name."""

    network: BaseNetwork | str
    loss: Loss | str | Mapping[str, Loss | str]
    lossWeights: Mapping[str, float]
    optimizer: Optimizer | str
    exchange: Exchange | str
    featuresCol: str
    featuresCols: Sequence[str] | Mapping[str, str | Sequence[str]]
    binaryFormat: str
    imageResize: str
    imageStorage: str
    maxLength: int | Mapping[str, int]
    truncationSide: str
    handleInvalid: str
    labelCol: str
    labelCols: Mapping[str, str]
    predictionCol: str
    predictionCols: Mapping[str, str]
    probabilityCols: Mapping[str, str]
    weightCol: str
    validationIndicatorCol: str
    maxIter: int
    batchSize: int
    stepSize: float
    stepSizeFactors: Mapping[str, float]
    unfreezeAfter: Mapping[str, int]
    tol: float
    seed: int
    numWorkers: int
    lengthBuckets: int
    truncated: int | Sequence[int]
    computeDtype: str
    deviceType: str
    progress: str
    workerLogs: str
    earlyStopping: EarlyStopping | str
    checkpointDir: str
    checkpointInterval: int
    checkpointUnit: str
    checkpointKeep: int
    collectTrainingStats: bool
    logDir: str
    logInterval: int
    activationCols: Mapping[str, str]
    initialModel: Any


class HasNetwork(HasOutputs, HasLabelCol):
    """The network and its loss: what a model needs as well as its estimator."""

    network: Param[str] = Param(
        Params._dummy(),
        "network",
        "the network, a sparkdl.Network or its JSON; it ends in raw scores, one per class or output.",
        spec_text(BaseNetwork),  # type: ignore[arg-type]
    )
    loss: Param[str] = Param(
        Params._dummy(),
        "loss",
        "what training minimizes: a name such as softmax_cross_entropy, sigmoid_cross_entropy, squared_error, "
        "absolute_error, huber, or an object of sparkdl.losses; of a network with several outputs a dict of them.",
        specs_text(Loss),  # type: ignore[arg-type]
    )

    def getNetwork(self) -> BaseNetwork:
        """The network."""
        if not self.isDefined(self.network):
            raise ValueError(
                f"network of {type(self).__name__} is not set; pass network=Network([...], input_shape=(...))."
            )
        return BaseNetwork.from_json(self.getOrDefault(self.network))

    def getLoss(self) -> Loss | dict[str, Loss]:
        """The loss; of a network with several outputs, by output."""
        if not self.isDefined(self.loss):
            raise ValueError(f"loss of {type(self).__name__} is not set; pass loss='squared_error' or another.")
        return read_losses(self.getOrDefault(self.loss))

    def _objective(self) -> Objective:
        """What the network's outputs are trained to; nothing without a loss, as of a part of a model."""
        if not self.isDefined(self.loss):
            return Objective(Named({}), Named({}))
        return Objective.of(self.getLoss(), self.getLossWeights(), self.getNetwork().output_names)

    def _label_columns(self) -> dict[str, str]:
        """The label column of every output.

        Raises
        ------
        ValueError
            Outputs have none, or what is no output has one.
        """
        outputs, given = self.getNetwork().output_names, self.getLabelCols()
        if not given and len(outputs) == 1:
            return {outputs[0]: self.getLabelCol()}
        if given.keys() != set(outputs):
            raise ValueError(
                f"labelCols must name a column for each of {', '.join(map(repr, outputs))}, received some for "
                f"{', '.join(map(repr, given)) or 'none'}."
            )
        return {name: given[name] for name in outputs}


class HasBatches(Params):
    """Rows handled together."""

    batchSize: Param[int] = Param(
        Params._dummy(),
        "batchSize",
        "rows of a training step over all workers, unless the optimizer takes all, and of a batch in transform (> 0).",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )

    def getBatchSize(self) -> int:
        """Rows of a batch."""
        return self.getOrDefault(self.batchSize)


class DeepParams(
    NamedParams,
    HasNetwork,
    HasBatches,
    HasActivationCols,
    HasInputs,
    HasPredictionCol,
    HasWeightCol,
    HasValidationIndicatorCol,
    HasMaxIter,
    HasStepSize,
    HasLayerSteps,
    HasTol,
    HasSeed,
    HasRun,
):
    """Params that every sparkdl estimator shares, and that its model keeps."""

    numWorkers: Param[int] = Param(
        Params._dummy(),
        "numWorkers",
        "barrier tasks that train together, each on its part of the rows (> 0).",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )
    optimizer: Param[str] = Param(
        Params._dummy(),
        "optimizer",
        "the update rule: a name such as sgd, momentum, nesterov, adam, adamw, rmsprop, adagrad, lamb, lion, lbfgs, or "
        "an object of sparkdl.optimizers, which also holds schedule, weight decay and clipping; stepSize is its rate.",
        spec_text(Optimizer),  # type: ignore[arg-type]
    )
    exchange: Param[str] = Param(
        Params._dummy(),
        "exchange",
        "how workers agree: all_reduce (synchronous SGD), or an object of sparkdl.training, such as "
        "ParameterAveraging().",
        spec_text(Exchange),  # type: ignore[arg-type]
    )
    lengthBuckets: Param[int] = Param(
        Params._dummy(),
        "lengthBuckets",
        "to at most how many lengths batches of rows of any length are padded, each with a program of its own; "
        "1 pads all to the longest row (from 1 to 64).",
        TypeConverters.toInt,
    )
    truncated: Param[Any] = Param(
        Params._dummy(),
        "truncated",
        "steps of the segments in which rows of any length are gone through, an update for each; or a list of them and "
        "of over how many steps a gradient flows back, a divisor. Unset, rows are whole.",
        to_steps,
    )
    computeDtype: Param[str] = Param(
        Params._dummy(),
        "computeDtype",
        f"float type that layers compute in, weights being float64 or else float32: {' or '.join(DTYPES)}.",
        one_of("computeDtype", *DTYPES),  # type: ignore[arg-type]
    )
    deviceType: Param[str] = Param(
        Params._dummy(),
        "deviceType",
        "where workers train: cpu, gpu (the GPUs Spark assigned to the task or, without such, worker i takes the i-th "
        "of its machine), or auto (gpu where Spark assigned one, else cpu).",
        one_of("deviceType", "auto", "cpu", "gpu"),  # type: ignore[arg-type]
    )
    progress: Param[str] = Param(
        Params._dummy(),
        "progress",
        "progress bar on the driver during fit: auto (in a terminal or notebook), on, or off.",
        one_of("progress", "auto", "on", "off"),  # type: ignore[arg-type]
    )
    workerLogs: Param[str] = Param(
        Params._dummy(),
        "workerLogs",
        "whether what workers print reaches the driver during fit, with rank and host, by the logger sparkdl.worker: "
        "on or off.",
        one_of("workerLogs", "on", "off"),  # type: ignore[arg-type]
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            optimizer="sgd",
            exchange="all_reduce",
            batchSize=128,
            maxIter=10,
            stepSize=0.01,
            tol=0.0,
            seed=0,
            numWorkers=1,
            lengthBuckets=6,
            computeDtype="float32",
            deviceType="auto",
            progress="auto",
            workerLogs="off",
        )

    def getNumWorkers(self) -> int:
        """Barrier tasks that train together."""
        return self.getOrDefault(self.numWorkers)

    def getLengthBuckets(self) -> int:
        """To at most how many lengths batches of rows of any length are padded."""
        return self.getOrDefault(self.lengthBuckets)

    def getTruncated(self) -> int | list[int] | None:
        """Steps of the segments of rows of any length, or these and over how many of them a gradient flows back.

        None where rows are whole.
        """
        return self.getOrDefault(self.truncated) if self.isDefined(self.truncated) else None

    def getOptimizer(self) -> Optimizer:
        """The update rule."""
        return Optimizer.from_json(self.getOrDefault(self.optimizer))

    def getExchange(self) -> Exchange:
        """How workers agree."""
        return Exchange.from_json(self.getOrDefault(self.exchange))

    def getComputeDtype(self) -> str:
        """Float type that layers compute in."""
        return self.getOrDefault(self.computeDtype)

    def getDeviceType(self) -> str:
        """Where workers train."""
        return self.getOrDefault(self.deviceType)

    def getProgress(self) -> str:
        """Whether fit shows a progress bar."""
        return self.getOrDefault(self.progress)

    def getWorkerLogs(self) -> str:
        """Whether what workers print reaches the driver."""
        return self.getOrDefault(self.workerLogs)

    def setNetwork(self, value: BaseNetwork | str) -> Self:
        """Set the network."""
        return self._set(network=value)

    def setLoss(self, value: Loss | str | Mapping[str, Loss | str]) -> Self:
        """Set the loss, or that of every output."""
        return self._set(loss=value)

    def setOptimizer(self, value: Optimizer | str) -> Self:
        """Set the update rule."""
        return self._set(optimizer=value)

    def setExchange(self, value: Exchange | str) -> Self:
        """Set how workers agree."""
        return self._set(exchange=value)

    def setMaxIter(self, value: int) -> Self:
        """Set the number of epochs; 0 returns the initial weights."""
        return self._set(maxIter=value)

    def setBatchSize(self, value: int) -> Self:
        """Set the rows of a batch, over all workers."""
        return self._set(batchSize=value)

    def setStepSize(self, value: float) -> Self:
        """Set the learning rate."""
        return self._set(stepSize=value)

    def setTol(self, value: float) -> Self:
        """Set the relative improvement of the objective under which training stops; 0 never stops."""
        return self._set(tol=value)

    def setSeed(self, value: int) -> Self:
        """Set the seed of initial weights, order of rows, and random layers."""
        return self._set(seed=value)

    def setNumWorkers(self, value: int) -> Self:
        """Set the number of barrier tasks that train together."""
        return self._set(numWorkers=value)

    def setLengthBuckets(self, value: int) -> Self:
        """Set to at most how many lengths batches of rows of any length are padded."""
        return self._set(lengthBuckets=value)

    def setTruncated(self, value: int | Sequence[int] | None) -> Self:
        """Set the steps of the segments of rows of any length, and perhaps over how many of them a gradient flows.

        None leaves rows whole.
        """
        return self._set(truncated=value)

    def setWeightCol(self, value: str) -> Self:
        """Set the column of sample weights."""
        return self._set(weightCol=value)

    def setValidationIndicatorCol(self, value: str) -> Self:
        """Set the boolean column that marks rows to validate on instead of training."""
        return self._set(validationIndicatorCol=value)

    def setComputeDtype(self, value: str) -> Self:
        """Set the float type that layers compute in."""
        return self._set(computeDtype=value)

    def setDeviceType(self, value: str) -> Self:
        """Set where workers train."""
        return self._set(deviceType=value)

    def setProgress(self, value: str) -> Self:
        """Set whether fit shows a progress bar."""
        return self._set(progress=value)

    def setWorkerLogs(self, value: str) -> Self:
        """Set whether what workers print reaches the driver."""
        return self._set(workerLogs=value)
