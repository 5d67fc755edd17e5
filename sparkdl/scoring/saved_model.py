"""A saved model as plain values: its Params, network and weights, with neither Spark nor the stages' classes."""

from __future__ import annotations

import json
import os
import re
from dataclasses import dataclass
from typing import Any

from sparkdl.layers.base import Weights
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective, read_losses
from sparkdl.scoring.input_layouts import Reading
from sparkdl.scoring.model_params import checked_params
from sparkdl.scoring.outputs import Outputs, heads_of
from sparkdl.scoring.saved_stage import check_metadata, explained, short
from sparkdl.scoring.stage_files import StageFiles
from sparkdl.scoring.weight_rows import read_only
from sparkdl.specs import Named
from sparkdl.weights import count_weights

# By the class that metadata name, the kind of `outputs.py`.
CLASSES = {
    "sparkdl.spark.estimator.DeepModel": "DeepModel",
    "sparkdl.spark.classification.DeepClassificationModel": "DeepClassificationModel",
    "sparkdl.spark.regression.DeepRegressionModel": "DeepRegressionModel",
    "sparkdl.spark.featurizer.Featurizer": "Featurizer",
}
PIPELINES = {f"{package}.PipelineModel" for package in ("pyspark.ml.pipeline", "org.apache.spark.ml")}
TUNED = {
    f"{package}.{name}"
    for package in ("pyspark.ml.tuning", "org.apache.spark.ml.tuning")
    for name in ("CrossValidatorModel", "TrainValidationSplitModel")
}


@dataclass(frozen=True)
class SavedModel:
    """What scoring needs of a saved model.

    Attributes
    ----------
    uid : str
    kind : str
        One of the values of `CLASSES`.
    params : dict
        The values of `READ`, by name.
    network : BaseNetwork
    objective : Objective
        Without losses for a part of a model.
    weights : dict
        Nested, read-only.
    activations : dict of str
        Column by path of a layer.
    """

    uid: str
    kind: str
    params: dict[str, Any]
    network: BaseNetwork
    objective: Objective
    weights: Weights
    activations: dict[str, str]

    @property
    def reading(self) -> Reading:
        """Which columns the model reads, and how."""
        own = self.params
        return Reading(
            features_col=own["featuresCol"],
            features_cols=own["featuresCols"],
            binary=own["binaryFormat"],
            resize=own["imageResize"],
            max_length=own["maxLength"],
            truncation_side=own["truncationSide"],
            dtype=own["computeDtype"],
        )

    @property
    def outputs(self) -> Outputs:
        """Which columns the model adds, but for activations."""
        own = self.params
        return Outputs(
            network=self.network,
            objective=self.objective,
            prediction=own["predictionCol"],
            raw_prediction=own["rawPredictionCol"],
            probability=own["probabilityCol"],
            predictions=own["predictionCols"],
            probabilities=own["probabilityCols"],
            thresholds=None if own["thresholds"] is None else tuple(own["thresholds"]),
        )


def read_model(path: str | os.PathLike[str]) -> SavedModel:
    """The model saved at a path: of a PipelineModel its last stage, of a tuned model the best.

    Raises
    ------
    FileNotFoundError
        There is no saved stage.
    ValueError
        The folder holds something else, or what comes last in a pipeline is no model of sparkdl's, is of a newer
        format, or is damaged; the message says which.
    """
    files = StageFiles.open(path)
    metadata = files.metadata()
    while inner := _folder_within(files.shown, metadata):
        files = files.folder(inner)
        metadata = files.metadata()
    found, shown = metadata["class"], files.shown
    if found not in CLASSES:
        raise ValueError(
            f"{shown} holds a {short(found)}, but without Spark only fitted models of sparkdl score rows, such as a "
            "DeepClassificationModel; name one, or a PipelineModel that ends in one."
        )
    check_metadata(shown, metadata)
    with explained(shown):
        kind = CLASSES[found]
        params = checked_params({**metadata["defaultParamMap"], **metadata["paramMap"]}, kind)
        network: Any = BaseNetwork.from_json(params["network"])
        objective = Objective(Named({}), Named({}))
        if params["loss"] is not None:
            objective = Objective.of(read_losses(params["loss"]), params["lossWeights"], network.output_names)
        if "weightsDigest" not in metadata:
            raise ValueError("it has no weights")
        most = 8 * count_weights(network.abstract_weights())
    weights = files.weights(metadata, most)
    with explained(shown):
        network.check_weights(weights)
        activations = json.loads(params["activationCols"])
        network.check_paths(activations)
        asked = {str(layer): str(name) for layer, name in activations.items() if name}
        model = SavedModel(str(metadata["uid"]), kind, params, network, objective, read_only(weights), asked)
        model.reading.layouts(network), heads_of(kind, model.outputs)  # which refuse what does not fit
        return model


def _folder_within(shown: str, metadata: dict[str, Any]) -> str:
    """Where in the folder of a pipeline or a tuned model the stage lies that makes its predictions; "" of others."""
    if metadata["class"] in TUNED:
        return "bestModel"
    if metadata["class"] not in PIPELINES:
        return ""
    with explained(shown):
        uids = metadata["paramMap"]["stageUids"]
        if not uids:
            raise ValueError("it is a pipeline without stages")
        if not re.fullmatch(r"[^/\\]+", uids[-1]):
            raise ValueError(f"{short(repr(uids[-1]))} is no name of a stage")
        return f"stages/{len(uids) - 1:0{len(str(len(uids)))}d}_{uids[-1]}"
