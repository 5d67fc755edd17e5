"""What other libraries call the Params, losses and optimizers there are, so that an error can say what is meant."""

from __future__ import annotations

import re

# By name in lower case, without underscores and the like.
PARAMS = {
    "batch": "batchSize",
    "blocksize": "batchSize",
    "minibatchsize": "batchSize",
    "callbacks": "earlyStopping",
    "patience": "earlyStopping",
    "checkpointpath": "checkpointDir",
    "criterion": "loss",
    "lossfn": "loss",
    "lossfunction": "loss",
    "objective": "loss",
    "maxlen": "maxLength",
    "maxseqlen": "maxLength",
    "maxsequencelength": "maxLength",
    "modelmaxlength": "maxLength",
    "sequencelength": "maxLength",
    "truncating": "truncationSide",
    "truncation": "truncationSide",
    "device": "deviceType",
    "dtype": "computeDtype",
    "precision": "computeDtype",
    "epoch": "maxIter",
    "epochs": "maxIter",
    "iterations": "maxIter",
    "maxepochs": "maxIter",
    "nepochs": "maxIter",
    "niter": "maxIter",
    "numepochs": "maxIter",
    "numiterations": "maxIter",
    "eta": "stepSize",
    "learningrate": "stepSize",
    "lr": "stepSize",
    "inputcol": "featuresCol",
    "inputcols": "featuresCols",
    "features": "featuresCol",
    "label": "labelCol",
    "target": "labelCol",
    "targetcol": "labelCol",
    "outputcol": "predictionCol",
    "initialweights": "initialModel",
    "pretrained": "initialModel",
    "warmstart": "initialModel",
    "layers": "network",
    "model": "network",
    "net": "network",
    "randomseed": "seed",
    "randomstate": "seed",
    "sampleweight": "weightCol",
    "sampleweightcol": "weightCol",
    "solver": "optimizer",
    "tensorboarddir": "logDir",
    "tolerance": "tol",
    "validationcol": "validationIndicatorCol",
    "validationdata": "validationIndicatorCol",
    "validationsplit": "validationIndicatorCol",
    "verbose": "progress",
    "nworkers": "numWorkers",
    "workers": "numWorkers",
}
SPECS = {
    "bce": "sigmoid_cross_entropy",
    "binarycrossentropy": "sigmoid_cross_entropy",
    "logistic": "sigmoid_cross_entropy",
    "sigmoid": "sigmoid_cross_entropy",
    "xent": "sigmoid_cross_entropy",
    "categoricalcrossentropy": "softmax_cross_entropy",
    "crossentropy": "softmax_cross_entropy",
    "log": "softmax_cross_entropy",
    "mcxent": "softmax_cross_entropy",
    "negativeloglikelihood": "softmax_cross_entropy",
    "nll": "softmax_cross_entropy",
    "softmax": "softmax_cross_entropy",
    "sparsecategoricalcrossentropy": "softmax_cross_entropy",
    "l2": "squared_error",
    "meansquarederror": "squared_error",
    "mse": "squared_error",
    "squared": "squared_error",
    "absolute": "absolute_error",
    "l1": "absolute_error",
    "mae": "absolute_error",
    "meanabsoluteerror": "absolute_error",
    "smoothl1": "huber",
    "poissonnll": "poisson",
    "cosine": "cosine_similarity",
    "cosineproximity": "cosine_similarity",
    "kl": "kl_divergence",
    "kld": "kl_divergence",
    "kldiv": "kl_divergence",
    "kullbackleiblerdivergence": "kl_divergence",
    "gd": "sgd",
    "gradientdescent": "sgd",
    "stochasticgradientdescent": "sgd",
    "sgdm": "momentum",
    "nag": "nesterov",
    "nesterovs": "nesterov",
}


def bare(name: str) -> str:
    """A name as it is compared: without case, underscores and the like."""
    return re.sub(r"[\W_]", "", name).lower()


def spec_meant(name: str) -> str:
    """What is called so elsewhere, as it is called here; else the name itself, without what others add to such."""
    short = bare(name).removesuffix("loss").removesuffix("withlogits").removesuffix("optimizer")
    return SPECS.get(short, short)
