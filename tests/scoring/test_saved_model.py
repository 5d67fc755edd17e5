"""A saved model is read without Spark from any file system, and what is damaged or newer is refused by name."""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sparkdl
from sparkdl.scoring.saved_model import read_model
from sparkdl.scoring.saved_stage import params_digest

SAVED = Path(__file__).parents[1] / "saved_by_0.1" / "model"  # of a network of four inputs and two classes
ROW = {"features": np.array([[1.0, 2.0, 3.0, 4.0]])}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(SAVED, tmp_path / "saved"))


def test_what_an_older_sparkdl_saved_is_read() -> None:
    model = read_model(SAVED)
    assert model.kind == "DeepClassificationModel"
    assert list(model.network.input_shapes.values()) == [(4,)]
    assert model.params["truncationSide"] == "right"  # which there was none of
    assert not model.weights["dense_1"]["kernel"].flags.writeable


def test_it_is_read_from_a_file_system_of_fsspec_and_by_uri(copy: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fsspec.filesystem("memory").put(str(copy), "/models/saved", recursive=True)
    expected = sparkdl.load(str(copy)).predict(ROW)["chances"]
    for uri in ("memory://models/saved", copy.as_uri(), f"{copy}/"):
        np.testing.assert_array_equal(sparkdl.load(uri).predict(ROW)["chances"], expected)


@pytest.mark.parametrize("name", ["a model", "a%20model"])
def test_a_uri_leads_where_spark_saved_by_it_and_else_where_it_says(name: str, copy: Path) -> None:
    copy.rename(copy.with_name(name))
    assert sparkdl.load(f"{copy.parent.as_uri()}/a%20model").predict(ROW)["chances"].shape == (1, 2)


def metadata_file(folder: Path) -> Path:
    (found,) = (folder / "metadata").glob("part-*")
    return found


def changed(**values: Any) -> Callable[[Path], None]:
    """Metadata with other values, and a digest that fits them."""

    def change(folder: Path) -> None:
        path = metadata_file(folder)
        metadata = json.loads(path.read_text())
        for name, value in values.items():
            metadata[name] = metadata[name] | value if isinstance(value, dict) else value
        path.write_text(json.dumps(metadata | {"paramsDigest": params_digest(metadata)}))

    return change


def flipped(folder: Path) -> None:
    (found,) = (folder / "weights").glob("*.parquet")
    content = bytearray(found.read_bytes())
    content[len(content) // 3] ^= 1
    found.write_bytes(content)


def cut(folder: Path) -> None:
    path = metadata_file(folder)
    path.write_text(path.read_text()[:100])


DAMAGES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "weights": (flipped, "saved cannot be loaded: .*"),
    "no weights": (lambda folder: shutil.rmtree(folder / "weights"), "saved cannot be loaded: .*"),
    "half": (cut, "saved cannot be loaded: .*save the stage again"),
    "newer": (changed(sparkdlFormat=99), "saved is in format 99, this sparkdl reads formats 1 to 2; upgrade sparkdl."),
    "a Param": (changed(paramMap={"zoom": 3}), "has no Param 'zoom'; a newer sparkdl may have saved it"),
    "a value": (changed(paramMap={"batchSize": "8"}), "its Param batchSize holds '8'"),
    "a choice": (changed(paramMap={"handleInvalid": "guess"}), "its Param handleInvalid holds 'guess'"),
    "a class": (changed(**{"class": "os.system"}), "saved holds a os.system, but without Spark only fitted models"),
    "a layer": (
        changed(paramMap={"network": '{"type": "mine.Net"}'}),
        "'Net' is defined in module 'mine', which is not imported",
    ),
    "another network": (
        changed(paramMap={"network": '{"type": "Network", "format": 1, "input_shape": [4], "layers": []}'}),
        "saved cannot be loaded",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_what_is_damaged_is_said_in_a_sentence(name: str, copy: Path) -> None:
    damage, message = DAMAGES[name]
    damage(copy)
    with pytest.raises(ValueError, match=message) as refused:
        sparkdl.load(copy)
    assert "\n" not in str(refused.value)


def test_a_pipeline_leads_nowhere_but_into_its_own_folder(tmp_path: Path) -> None:
    folder = tmp_path / "pipeline" / "metadata"
    folder.mkdir(parents=True)
    uids = {"stageUids": ["../../../elsewhere"]}
    (folder / "part-0").write_text(json.dumps({"class": "pyspark.ml.pipeline.PipelineModel", "paramMap": uids}))
    with pytest.raises(ValueError, match="'../../../elsewhere' is no name of a stage"):
        sparkdl.load(tmp_path / "pipeline")


def test_nothing_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nowhere holds no saved stage, as there is no .*; check the path."):
        sparkdl.load(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="nonesuch://saved' is opened neither by pyarrow .* nor by fsspec"):
        sparkdl.load("nonesuch://saved")
