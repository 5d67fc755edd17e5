"""Loads mutated copies of saved stages and says what came of each: refused in a sentence, as it was saved, or wrong."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import mutations
import numpy as np

from sparkdl import DeepClassificationModel, DeepClassifier, DeepEstimator, Network
from sparkdl.layers import Conv, Dense, Flatten, Relu
from sparkdl.optimizers import Momentum
from sparkdl.schedules import CosineDecay
from sparkdl.scoring.weight_rows import digest
from sparkdl.weights import named_arrays, nested_weights

NETWORK = Network([Conv(3, (2, 2)), Relu(), Flatten(), Dense(4), Relu(), Dense(3)], input_shape=(4, 4, 1))
LONGEST = 2000  # characters of an error


def weights(seed: int) -> Any:
    """Random weights of NETWORK."""
    chance = np.random.default_rng(seed)
    shapes = {name: array.shape for name, array in named_arrays(NETWORK.abstract_weights())}
    return nested_weights({name: chance.normal(size=shape).astype("float32") for name, shape in shapes.items()})


def stages(seed: int) -> dict[str, Any]:
    """What is saved and then mutated: models, and estimators with weights and without."""
    params: dict[str, Any] = {"network": NETWORK, "batchSize": 8 + seed, "stepSize": 0.01 / (seed + 1)}
    momentum = Momentum(0.8, schedule=CosineDecay(), clip_norm=1.0 + seed)
    return {
        "model": DeepClassificationModel(weights(seed)).setParams(loss="softmax_cross_entropy", **params),
        "estimator with weights": DeepClassifier(initialModel=weights(seed), optimizer=momentum, **params),
        "estimator": DeepEstimator(loss="squared_error", activationCols={"relu_1": "hidden"}, **params),
    }


def save(folder: Path) -> None:
    """Save every stage twice, the second time with other weights and Params to swap files with."""
    for seed, role in enumerate(("stage", "donor")):
        for name, stage in stages(seed).items():
            stage.save(str(folder / role / name))


def contents(session: Any, path: str, pattern: str, most: int = 1 << 31) -> list[bytes]:
    """`persistence._contents` of a local folder, without Spark."""
    found = [Path(path)] if Path(path).is_file() else sorted(Path(path).rglob("*"))
    read = [file for file in found if file.is_file() and file.name[0] not in "._" and fnmatch(file.name, pattern)]
    return [file.read_bytes() for file in read if file.stat().st_size <= most]


def names(session: Any, path: str, pattern: str = "*") -> list[str]:
    """`persistence._files` of a local folder, without Spark."""
    return sorted(file.name for file in Path(path).rglob(pattern) if file.is_file() and file.name[0] not in "._")


def described(stage: Any) -> tuple[Any, ...]:
    """All that loading must bring back."""
    own, defaults = (
        {param.name: value for param, value in values.items()} for values in (stage._paramMap, stage._defaultParamMap)
    )
    arrays = {name: (a.dtype, a.shape, a.tobytes()) for name, a in named_arrays(stage._weights or {})}
    return type(stage), stage.uid, own, defaults, arrays


@cache
def originals(folder: Path) -> dict[str, Any]:
    """The stages that are mutated, as they load before."""
    return {name: type(stage).load(str(folder / "stage" / name)) for name, stage in stages(0).items()}


def cases(folder: Path, kinds: dict[str, mutations.Mutation], seeds: range) -> Iterator[tuple[int, str, str]]:
    """Seed, what was done to which stage, and the verdict: "refused", "same", "forged", "WRONG" or "UNEXPLAINED: ...".

    "forged" is a stage that came with digests of its own making and the weights that they tell.
    """
    known = originals(folder)
    for seed in seeds:
        chance = Random(seed)
        kind, name = chance.choice(list(kinds)), chance.choice(list(known))
        copy = folder / "copies" / str(seed)
        shutil.copytree(folder / "stage" / name, copy)
        kinds[kind](copy, folder / "donor" / name, chance)
        yield seed, f"{kind} of {name}", verdict(copy, known[name], kind in mutations.FORGERY)
        shutil.rmtree(copy)


def verdict(folder: Path, original: Any, forged: bool) -> str:
    """What loading the folder comes to."""
    try:
        loaded = type(original).load(str(folder))
    except (ValueError, FileNotFoundError) as error:
        text = str(error)
        clear = str(folder) in text and "\n" not in text and len(text) < LONGEST
        return "refused" if clear else f"UNEXPLAINED: {text[:300]}"
    except Exception as error:
        return f"UNEXPLAINED: {type(error).__name__}: {str(error)[:300]}"
    if described(loaded) == described(original):
        return "same"
    told = mutations.read_metadata(folder).get("weightsDigest") if forged else None
    honest = forged and told == (None if loaded._weights is None else digest(loaded._weights))
    return "forged" if honest else "WRONG"


def trap(folder: Path) -> Path:
    """Plant the canary on this process's sys.path; the path returned exists as soon as any of it runs."""
    mark = folder / "executed"
    mutations.plant(folder / "canary", mark)
    sys.path.append(str(folder / "canary"))
    return mark
