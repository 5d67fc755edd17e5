"""DeepEstimator and DeepModel: a network trained with any loss, as a Spark ML Estimator and Transformer."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, Self, Unpack

from pyspark.ml import PredictionModel, Predictor
from pyspark.ml.linalg import Vector
from pyspark.ml.param import Param
from pyspark.sql import DataFrame, SparkSession

from sparkdl.evaluation import EvaluationOptions
from sparkdl.generation import Drawing
from sparkdl.interchange import save_onnx
from sparkdl.layers.base import Weights
from sparkdl.layers.ragged import is_ragged
from sparkdl.losses import Loss
from sparkdl.network import Network
from sparkdl.scoring.weight_rows import read_only
from sparkdl.spark.continuing import continued
from sparkdl.spark.driver import cluster, columns
from sparkdl.spark.driver.epoch_metrics import log_epochs
from sparkdl.spark.driver.preparation import prepare
from sparkdl.spark.driver.progress import wanted
from sparkdl.spark.driver.remote import Shipped
from sparkdl.spark.driver.tuning import given, shared_fits
from sparkdl.spark.params.params import DeepArguments, DeepParams
from sparkdl.spark.params.warm_start import WarmStart
from sparkdl.spark.saving.persistence import Saved
from sparkdl.spark.scoring import RowScoring, output_columns
from sparkdl.spark.summary import TrainingSummary
from sparkdl.training.options import Training

LOGGER = logging.getLogger("sparkdl.fit")

# What fields of Training are called as Params.
TRAINING_PARAMS = {
    "step_size": "stepSize",
    "step_factors": "stepSizeFactors",
    "unfreeze_after": "unfreezeAfter",
    "loss_weights": "lossWeights",
    "epochs": "maxIter",
    "batch_size": "batchSize",
    "tol": "tol",
    "seed": "seed",
    "dtype": "computeDtype",
    "length_buckets": "lengthBuckets",
    "truncated": "truncated",
}
# What goes by the outputs of a network, or by layers that a part of it may lack.
OF_THE_WHOLE = (
    *("loss", "lossWeights", "labelCols", "predictionCols", "probabilityCols", "activationCols"),
    *("stepSizeFactors", "unfreezeAfter"),
)


class DeepModel(RowScoring, PredictionModel, DeepParams, Saved):
    """A trained network as a Transformer; made by `DeepEstimator.fit` or `DeepModel.load`.

    `transform` adds `predictionCol`: the network's output, a double if there is one and a Vector if there are several;
    and the columns of `activationCols`.

    Attributes
    ----------
    weights : nested dict of NumPy arrays
        {layer name: {weight name: array}}. They are read-only; those of a `copy.deepcopy` can be changed before it is
        used.
    summary : TrainingSummary
        History of the fit; not kept by saving.
    """

    def __init__(self, weights: Weights | None = None, summary: TrainingSummary | None = None) -> None:
        super().__init__()
        self._weights = None if weights is None else read_only(weights)
        self._summary = summary
        self._shipped = Shipped()

    @property
    def weights(self) -> Weights | None:
        """The learned arrays, by layer and name; read-only, since workers keep them, but writable in a deep copy."""
        return self._weights

    @property
    def hasSummary(self) -> bool:
        """Whether the model still knows its training history; a loaded one does not."""
        return self._summary is not None

    @property
    def summary(self) -> TrainingSummary:
        """History and timings of the fit; RuntimeError for a model that was loaded."""
        if self._summary is None:
            raise RuntimeError(
                f"No training summary available for this {type(self).__name__}: it was loaded, not fitted."
            )
        return self._summary

    @property
    def numFeatures(self) -> int:
        """Values in a row of features; -1, as Spark has it, if rows are of any length."""
        shapes = self.getNetwork().input_shapes.values()
        return -1 if any(map(is_ragged, shapes)) else sum(map(math.prod, shapes))

    def predict(self, value: Vector) -> Any:
        """The prediction for one row of features; runs a Spark job, so give many rows to `transform` instead."""
        return self._one(value, "predictionCol")

    def evaluate(self, dataset: DataFrame, **options: Unpack[EvaluationOptions]) -> Any:
        """Measure how well the model predicts the labels of a DataFrame, in one pass of which only sums are collected.

        Parameters
        ----------
        dataset : DataFrame
            With `featuresCol`, `labelCol` and, if it is set, `weightCol`, as for `fit`.
        top_k : sequence of int, default (1, 3, 5)
            Of exclusive classes: accuracy among the k largest scores, for every k below the number of classes.
        bins : int, default 1000
            Of classes and labels: of the histograms that curves come from if there are more than `exact_rows` rows.
        exact_rows : int, default 10000
            Of classes and labels: up to this number of rows of positive weight, curves have every threshold, and the
            driver holds the scores of as many rows.

        Returns
        -------
        ClassificationEvaluation, MultilabelEvaluation, RegressionEvaluation or QuantileEvaluation
            The first for a loss that takes classes and labels that are classes, the second for one of several
            independent outputs and labels of as many 0 and 1, the last for `Quantile`, the third for other losses. Its
            `loss` is the mean by weight of the model's loss, without regularization. Of `EachPosition` of a loss of
            classes each position counts as a row; of another each has its own measures, and their mean. Of a network
            with several outputs a dict of these by output, each over the rows that have its label.

        Raises
        ------
        ValueError
            A column is missing or of another type, a row does not fit the network or the loss, no row has a positive
            weight, the network's outputs are not finite, or an option does not fit.
        """
        from sparkdl.spark.evaluation import evaluate  # not above: it knows the kinds of models

        return evaluate(self, dataset, options)

    def generate(
        self,
        dataset: DataFrame,
        steps: int,
        outputCol: str = "generated",
        *,
        temperature: float = 1.0,
        topK: int | None = None,
        topP: float | None = None,
        seed: int = 0,
        stop: int | None = None,
    ) -> DataFrame:
        """Add a column of what the network goes on with from each row of integers, such as the words of a text.

        Parameters
        ----------
        dataset : DataFrame
            With `featuresCol`: arrays of integers, each as long as it is.
        steps : int
            How many integers to draw for a row, at most.
        outputCol : str, default "generated"
            The new column, an array of integers, without those of `featuresCol` and without `stop`.
        temperature : float, default 1
            What the network's outputs are divided by before softmax makes probabilities of them; 0 takes the likeliest.
        topK : int, optional
            Draw from so many of the likeliest only.
        topP : float, optional
            Draw from the fewest of the likeliest only that have this share of the probability together.
        seed : int, default 0
            With the same one a row goes on alike, however the rows are partitioned; equal rows go on alike.
        stop : int, optional
            The integer at which a row ends.

        Returns
        -------
        DataFrame
            Lazy, like that of `transform`; `handleInvalid` says what becomes of rows that cannot be used, of which
            empty ones are, and those that would get more steps than the network's positions tell apart.

        Raises
        ------
        TypeError
            `dataset` is no DataFrame of Spark.
        ValueError
            The network does not choose integers (see `generate` of networks), an argument is not what is expected, the
            features column is missing or of another type, or `outputCol` is "" or exists already.
        """
        return continued(self, dataset, outputCol, Drawing(steps, temperature, topK, topP, seed, stop))

    def save_onnx(self, path: str, opset: int = 17) -> None:
        """Write the network and its weights to a file of ONNX on this machine; needs onnx, as of sparkdl-jax[onnx].

        The file has no Params: its outputs are the network's, as raw scores where the loss has the softmax, and its
        inputs what the workers make of the columns, such as the numbers of strings.

        Parameters
        ----------
        path : str
            The arrays of more than 2 GB go beside it, to `path` and ".data".
        opset : int, default 17
            Version of the operators; see `to_onnx` of networks, which tells of inputs and outputs, too.

        Raises
        ------
        ImportError
            The package onnx is missing.
        OSError
            The file cannot be written.
        ValueError
            The model has no weights, `opset` is out of range, or a layer cannot be written.
        """
        save_onnx(path, self.getNetwork(), self._own_weights(), opset)

    def up_to(self, *names: str) -> DeepModel:
        """The part of the network that some of its layers need, as a model of its own: a tower, or what makes features.

        It reads only the inputs that these layers need, from the same columns, and puts out what they compute: of one
        layer in `predictionCol`, of several nodes of a Graph in prediction_NAME. It has no loss, so it transforms
        only.

        Parameters
        ----------
        *names : str
            Nodes of a Graph, or one layer of a Network.

        Returns
        -------
        DeepModel
            With the weights of this one, which is left as it is, and a uid of its own.

        Raises
        ------
        ValueError
            There is no such layer, or the model has no weights.

        Examples
        --------
        >>> from sparkdl import DeepClassifier, Network
        >>> from sparkdl.layers import Dense, Relu
        >>> rows = spark.createDataFrame([([0.0, 1.0], 0), ([1.0, 0.0], 1)] * 30, ["features", "label"])
        >>> network = Network([Dense(8, name="hidden"), Relu(), Dense(2)], input_shape=(2,))
        >>> model = DeepClassifier(network=network, maxIter=1).fit(rows)
        >>> model.up_to("hidden").setPredictionCol("vector").transform(rows).first().vector.size
        8
        """
        network: Any = self.getNetwork()
        if not names or (isinstance(network, Network) and len(names) > 1):
            takes = "one layer" if isinstance(network, Network) else "one node or several"
            raise ValueError(f"up_to takes {takes} of the network, received {', '.join(names) or 'none'}.")
        own, part = self._own_weights(), network.up_to(*names)
        weights = {name: own[name] for name in part.abstract_weights()}
        model = self._copyValues(DeepModel(weights, self._summary))
        for param in OF_THE_WHOLE:
            model.clear(model.getParam(param))
        model._defaultParamMap.pop(model.loss, None)
        columns_of = self.getFeaturesCols()
        if isinstance(columns_of, dict):
            model.setFeaturesCols({name: columns_of[name] for name in part.input_shapes if name in columns_of})
        if self.getMaxLength() is not None:
            lengths = self._max_lengths(network)
            model.setMaxLength({name: lengths[name] for name in part.input_shapes if name in lengths})
        return model.setParams(network=part)

    def _one(self, value: Vector, param: str) -> Any:
        column, added = self.getOrDefault(param), output_columns(self)
        if column not in added:
            raise ValueError(
                f"{param} must be one of the columns that transform adds ({', '.join(added) or 'none'}), received "
                f"{column!r}; name it, or take a loss that gives it."
            )
        if len(inputs := self.getNetwork().input_shapes) > 1:
            raise ValueError(
                f"predict takes one Vector, but the network reads {', '.join(map(repr, inputs))}; give transform a "
                "DataFrame with their columns."
            )
        session = SparkSession.active()
        rows = session.createDataFrame([(value,)], [self.getFeaturesCol()])
        model = self.copy({self.featuresCols: [], self.handleInvalid: "error"})
        return model.transform(rows).first()[column]  # type: ignore[index]


class DeepEstimator(Predictor[DeepModel], WarmStart, DeepParams, Saved):
    """Trains a neural network on a DataFrame by synchronous stochastic gradient descent.

    `numWorkers` barrier tasks hold the rows; every step adds up their gradients, so that the update is that of one
    machine on the same global batch. Every row is seen exactly once an epoch.

    Parameters
    ----------
    network : Network or Graph
        Layers ending in raw scores, one per class or output.
    loss : Loss or str, or dict
        Of `sparkdl.losses`, required here: "squared_error", "huber", "softmax_cross_entropy", ... Of a Graph with
        several outputs a dict by output; their sum is minimized, each a mean over the rows that have its label.
    lossWeights : dict of float, optional
        By output what its loss counts in that sum, at least 0; 1 for those left out.
    optimizer : Optimizer or str, default "sgd"
        Of `sparkdl.optimizers`: "adam", Momentum(0.9, schedule=CosineDecay(), clip_norm=1.0), LBFGS(), ...
    featuresCol, labelCol, predictionCol : str
        Features are numeric, array<numeric>, nested arrays, Vector, binary (one uint8 a value, or a JPEG or PNG file),
        or image structs of Spark's image source, in the shape of the network's `input_shape` or to be reshaped to it.
        For rows of any length, `input_shape` (None,) or (None, n), they are arrays of numbers, arrays or Vectors; empty
        ones are rows, too. Layers of categories that hash, or have a vocabulary, take strings and array<string>.
        Labels are numeric or boolean, or array<numeric> or Vector for several numbers. Where the network ends in a
        prediction for each step of rows of any length, they are arrays with a label for each step, null for a step
        that has none, or arrays of arrays; a labelled step then counts as a row, and predictions are arrays, too.
    labelCols : dict of str, optional
        Of a Graph with several outputs the label column of each, instead of labelCol. Null there says that a row has no
        label for that output, for which it then counts nothing.
    predictionCols, probabilityCols : dict of str, optional
        By output, of several, the columns that `transform` makes; by default prediction_OUTPUT and, where the loss has
        probabilities, probability_OUTPUT. "" leaves one out.
    featuresCols : list of str, or dict, optional
        Numeric, array and Vector columns whose values together, in this order, are the features; instead of
        featuresCol. Of a Graph with several inputs a dict from every input to such a list, or to one column of any type
        that featuresCol may have: {"photo": "image", "facts": ["age", "income"]}. In a fit, each of several columns
        must hold as many values in every row. A model remembers no such widths: it scores every row whose values add up
        to what the network takes.
    binaryFormat : str, default "auto"
        What a binary features column holds: "raw" bytes, an "image" file, or "auto": a row is taken for a file if it
        starts like one and, where it has exactly as many bytes as the network takes values, also ends like one.
    imageResize : str, default "error"
        What becomes of images of another size: "nearest", "bilinear", "bicubic" or "lanczos" resize them by Pillow.
        Channels are converted as Pillow does: gray and RGB into one another, alpha dropped. A file of more than 2**26
        pixels, or as many as Spark's setting `sparkdl.maxImagePixels` says, counts as one that cannot be decoded.
    imageStorage : str, default "pixels"
        What the shuffle and the workers' disks hold of JPEG and PNG files: "pixels", each file being decoded once,
        before training; or "files", decoded once to be checked and again for every batch, in threads beside the
        training steps: for images whose pixels would fill the disks. The model is the same, bit for bit.
    handleInvalid : str, default "error"
        What becomes of rows with null, NaN, infinity, another width than the network takes, a category or string that
        it has no row for, more steps than its positions tell apart, or an image that cannot be decoded, also in labels
        and weights: "error"; "skip" leaves them out, counts them in `model.summary.skipped`
        and filters them out of what `transform` gives; "keep", on a model only, gives null in every output column.
    maxLength : int or dict of int, optional
        The most steps that are read of a row of any length, in a fit as in all that its model does: longer ones are
        cut, and `model.summary.truncated` counts them. Of a Graph with several such inputs for all, or by input. What
        is cut off is not looked at.
    truncationSide : str, default "right"
        Where longer rows lose steps, as Hugging Face's tokenizers call it: "right" keeps their first steps (Keras:
        truncating="post"), "left" their last ("pre").
    weightCol : str, optional
        Sample weights, finite and at least 0: a row of weight k counts like k rows.
    validationIndicatorCol : str, optional
        Boolean, or 0 and 1; rows marked true are scored after every epoch instead of trained on.
    maxIter : int, default 10
        Epochs; 0 returns the initial weights.
    batchSize : int, default 128
        Rows of a step over all workers, but for `LBFGS`, which takes all rows; also of a batch in transform.
    stepSize : float, default 0.01
        Learning rate.
    stepSizeFactors : dict of float, optional
        By name of layers what multiplies their steps, weight decay included: {"layer1": 0.1, "layer2": 0.3}; 0 moves
        nothing. A name stands for the layer of that path and for all within it, and where names go on with "_" and a
        number, for these, as "layer1" for "layer1_0" and "layer1_1"; of several the longest counts.
    unfreezeAfter : dict of int, optional
        By name, likewise, for how many epochs layers are frozen before they begin to learn: {"layer1": 4, "layer4": 2}.
        Until then no time is spent on what lies below the first layer that learns; their momenta start when they do.
    tol : float, default 0
        Stop after an epoch that lowers the objective by less than this part of it; 0 never stops.
    seed : int, default 0
        Of initial weights, order of rows, and random layers. The same rows, Params and number of workers give the
        same weights, bit for bit, however the DataFrame is partitioned.
    numWorkers : int, default 1
    lengthBuckets : int, default 6
        Where the network reads rows of any length: those of like lengths come to the same steps, whose batches are
        padded to at most so many lengths, each compiled for itself. `model.summary.fill` tells how full they were.
    truncated : int or list of int, optional
        Back-propagation through time is truncated: rows of any length are gone through in segments of so many steps,
        each from the state that the one before it left, with an update of its own. Of two numbers, the second, a
        divisor of the first, is over how many steps a gradient flows back.
    exchange : Exchange or str, default "all_reduce"
        Of `sparkdl.training`: AllReduce, ShardedAllReduce, ParameterAveraging, ThresholdSharing.
    earlyStopping : EarlyStopping, optional
        Of `sparkdl.training`: patience, target, time, divergence.
    checkpointDir : str, optional
        Folder, path or URI, that every machine reaches. Another fit of the same rows and Params goes on where the last
        one stopped, as does a stage that Spark runs again, and ends with the weights of a fit that was not disturbed,
        bit for bit. Fits that differ in more than maxIter share a folder without mixing.
    checkpointInterval, checkpointUnit, checkpointKeep : int, str, int; default 1, "epoch", 3
        Epochs or ("step") steps from one checkpoint to the next; how many of the newest stay, besides the best.
    collectTrainingStats : bool, default False
        Whether `model.summary.timeline` tells what every worker did when.
    logDir, logInterval : str, int; optional, default 100
        Folder, of the first worker's machine, or URI for TensorBoard, one for each run, and steps between two scalars;
        needs tensorboardX.
    computeDtype : str, default "float32"
        What layers compute in: "float32", "bfloat16" (weights, loss, sums and validation stay float32;
        what the model gives is computed in bfloat16, too) or "float64".
    deviceType : str, default "auto"
        "cpu", "gpu", or "auto": gpu where Spark assigned the task one.
    activationCols : dict of str, optional
        Further output columns of the model, Vectors of activations, by name of the layer; "outer/inner" for a layer of
        a network within the network.
    initialModel : DeepModel, dict or str, optional
        What training starts from: a model, nested weights, or the path of a saved model or of a safetensors file (see
        `sparkdl.interchange.load_weights`). Layers of the same names take its weights, all others start afresh; the
        optimizer does, too. No Param, but copied and saved like one.
    progress : str, default "auto"
        Progress bar: "on", "off", or "auto" in a terminal or notebook.
    workerLogs : str, default "off"
        "on" hands what workers print to the logger "sparkdl.worker" on the driver, as "[rank 1 on host] line".

    Raises
    ------
    ValueError
        In `fit`: a Param has no usable value, a column is missing or of another type, the rows do not fit the network
        or the loss, there are no rows, Spark cannot run that many workers at once, or no epoch stayed finite.
    RuntimeError
        In `fit`: a worker failed; the message names it and its reason.

    Examples
    --------
    >>> from sparkdl import DeepEstimator, Network
    >>> from sparkdl.layers import Dense
    >>> rows = spark.createDataFrame([([0.0], 1.0), ([1.0], 3.0), ([2.0], 5.0)] * 20, ["features", "label"])
    >>> estimator = DeepEstimator(
    ...     network=Network([Dense(1)], input_shape=(1,)), loss="squared_error", batchSize=20, stepSize=0.1, maxIter=50
    ... )
    >>> model = estimator.fit(rows)
    >>> round(model.transform(rows.limit(1)).first().prediction, 2)
    1.0
    """

    def __init__(self, **params: Unpack[DeepArguments]) -> None:
        super().__init__()
        self.setParams(**params)

    def _new_model(self, weights: Weights, summary: TrainingSummary) -> DeepModel:
        return DeepModel(weights, summary)

    def _check(self, dataset: DataFrame, plan: Training) -> None:
        """Raise ValueError for what this kind of estimator can see to be wrong before any Spark action."""

    def _classes(self, plan: Training) -> tuple[int, int] | None:
        """The least and the greatest label, if labels must be classes and the loss would take other numbers too."""
        return None

    def _plan(self) -> Training:
        loss, network = self.getLoss(), self.getNetwork()
        network.check_paths(self.getActivationCols())
        own = {field: self.getOrDefault(param) for field, param in TRAINING_PARAMS.items() if self.isDefined(param)}
        try:
            return Training(
                network,
                loss=loss,
                optimizer=self.getOptimizer(),
                exchange=self.getExchange(),
                **own,
                **self._run_options(),
            )
        except ValueError as error:  # a sentence begins with the field that it is about
            field = str(error).split(" ", 1)[0]
            if field not in TRAINING_PARAMS:
                raise
            rest = str(error).removeprefix(field).removeprefix(" of Training")
            raise ValueError(f"{TRAINING_PARAMS[field]}{rest}") from None

    def fitMultiple(self, dataset: DataFrame, paramMaps: Sequence[dict[Param[Any], Any]]) -> Iterator[tuple[int, Any]]:
        """Fit a model for every map of Params; fits that read the same rows share the reading, workers and programs.

        Parameters
        ----------
        dataset : DataFrame
        paramMaps : sequence of dict
            By Param, as of ParamGridBuilder.

        Returns
        -------
        iterator of (int, model)
            Of all indices of `paramMaps`; several threads may draw from it. It trains when it is first asked.
        """
        columns.check_frame(dataset, "fit")
        return shared_fits([self.copy(paramMap) for paramMap in paramMaps], dataset)

    def _fit(self, dataset: DataFrame) -> DeepModel:
        model = given(self._fit_all([self], dataset)[0])
        log_epochs(model.summary.history, model.summary.metric, model.summary.metrics)
        return model

    def _fit_all(self, stages: Sequence[Self], dataset: DataFrame) -> list[DeepModel | ValueError]:
        """The models, by one Spark job, of stages that differ in `tuning.MAY_DIFFER` only; or why one has none."""
        columns.check_rows(dataset, "fit")
        plans = [stage._checked_plan(dataset) for stage in stages]
        prepared = prepare(dataset, self, plans[0], self._classes(plans[0]))
        cluster.check_cluster(dataset.sparkSession, self.getNumWorkers())
        fitted = cluster.fit(
            prepared,
            self.getNumWorkers(),
            plans,
            self.getDeviceType(),
            wanted(self.getProgress()),
            self.getWorkerLogs() == "on",
            [stage._initial(plan.network) for stage, plan in zip(stages, plans, strict=True)],
        )
        return [stage._fitted_model(result) for stage, result in zip(stages, fitted, strict=True)]

    def _checked_plan(self, dataset: DataFrame) -> Training:
        plan = self._plan()
        stopping = plan.early_stopping
        validated = self.isDefined(self.validationIndicatorCol) and self.getValidationIndicatorCol()
        if stopping and stopping.validates and not validated:
            raise ValueError(
                f"earlyStopping monitors {stopping.monitor}, but validationIndicatorCol is not set; set it or monitor "
                "'loss' or 'metric'."
            )
        self._check(dataset, plan)
        self._label_columns()
        columns.check_outputs(dataset, output_columns(self))
        return plan

    def _fitted_model(self, fitted: cluster.Fitted) -> DeepModel | ValueError:
        if fitted.ending.failure:
            return ValueError(fitted.ending.failure)
        for note in fitted.ending.notes:
            warnings.warn(note, stacklevel=5)
        for name, count in fitted.cut.items():
            LOGGER.info("%d rows of the input %r were longer than maxLength and cut.", count, name)
        summary = TrainingSummary(
            fitted.history,
            self._objective().metric,
            fitted.workers,
            fitted.timings,
            fitted.ending,
            fitted.events,
            fitted.skipped,
            self._objective().metrics,
            fitted.cut,
        )
        model = self._new_model(fitted.weights, summary)
        model._resetUid(self.uid)
        return self._copyValues(model)


def only_loss(stage: DeepEstimator, plan: Training) -> Loss:
    """That of the only output.

    Raises
    ------
    ValueError
        There are several.
    """
    if plan.objective.several:
        raise ValueError(
            f"{type(stage).__name__} takes a network of one output, received one with "
            f"{', '.join(map(repr, plan.objective.losses))}; use a DeepEstimator, which predicts all of them."
        )
    (loss,) = plan.objective.losses.values()
    return loss  # type: ignore[no-any-return]
