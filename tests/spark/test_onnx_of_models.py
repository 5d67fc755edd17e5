"""Models write the network that they transform with as ONNX."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from pyspark.sql import SparkSession
from spark_cases import FEATURES, NETWORK, a_model, arrays, outputs

from sparkdl import DeepModel


@pytest.fixture(scope="module", autouse=True)
def _session(spark: SparkSession) -> None:
    """pyspark builds stages of a running session only."""


def test_the_file_gives_the_scores_of_the_models_weights(tmp_path: Path) -> None:
    model, path = a_model(), str(tmp_path / "model.onnx")
    model.save_onnx(path, opset=15)
    assert onnx.load(path).opset_import[0].version == 15
    (scores,) = onnxruntime.InferenceSession(path).run(["label"], {"features": FEATURES.astype("float32")})
    np.testing.assert_allclose(scores, outputs(arrays(model), FEATURES), rtol=0, atol=1e-5)


def test_a_model_without_weights_has_none_to_write(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="This DeepModel has no weights"):
        DeepModel().setParams(network=NETWORK).save_onnx(str(tmp_path / "model.onnx"))
    assert not list(tmp_path.iterdir())
