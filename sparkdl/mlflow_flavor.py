"""Models of sparkdl in MLflow, to be scored by its pyfunc models and servers without Spark.

`mlflow.spark` logs them as Spark's, for clusters; this flavor logs what `sparkdl.load` reads.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from inspect import signature as signature_of
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyarrow import fs

import sparkdl
from sparkdl.file_systems import open_filesystem
from sparkdl.scoring.predictor import Predictor, load

if TYPE_CHECKING:
    import pandas as pd

FLAVOR_NAME = "sparkdl"
DATA = "model"  # the folder of the saved model within MLflow's
ENVIRONMENT, REQUIREMENTS = "python_env.yaml", "requirements.txt"


def save_model(
    model: Any,
    path: str | os.PathLike[str],
    mlflow_model: Any = None,
    signature: Any = None,
    pip_requirements: Sequence[str] | None = None,
    metadata: dict[str, Any] | None = None,
) -> None:
    """Save a model as one of MLflow.

    Parameters
    ----------
    model : DeepModel, DeepClassificationModel, DeepRegressionModel, Featurizer, PipelineModel or str
        Of Spark, whose executors write into `path`: where they have other disks than this program, save the model where
        all of them reach it, and give its path or URI here, as to `sparkdl.load`.
    path : str
        A local folder that is not there, or empty.
    mlflow_model : mlflow.models.Model, optional
        That to which the flavors are added.
    signature : mlflow.models.ModelSignature, optional
    pip_requirements : sequence of str, optional
        Of whoever loads the model; by default this version of sparkdl.
    metadata : dict, optional

    Raises
    ------
    FileExistsError
        There are files at `path`.
    FileNotFoundError
        There is nothing at the path of the saved model.
    ValueError
        The model is none that `sparkdl.load` reads; nothing is left at `path`.
    ImportError
        MLflow is missing.
    """
    mlflow = _mlflow()
    folder = Path(path).absolute()
    if folder.exists() and any(folder.iterdir()):
        raise FileExistsError(f"{folder} holds files already; save to another folder.")
    from_path = isinstance(model, (str, os.PathLike))
    if not from_path and not callable(getattr(model, "save", None)):
        raise ValueError(
            f"model must be a model of sparkdl, a PipelineModel that ends in one, or the path of a saved one, received "
            f"{model!r:.60}; give what fit returned."
        )
    with _undone_if_refused(folder):
        if from_path:
            source, at = open_filesystem(os.fspath(model))
            fs.copy_files(at, str(folder / DATA), source_filesystem=source, destination_filesystem=fs.LocalFileSystem())
        else:
            model.save(f"file://{folder / DATA}")  # not as_uri(): Spark takes %20 for itself
        load(folder / DATA, device="cpu")  # which refuses what could not be scored later
        described = mlflow.models.Model() if mlflow_model is None else mlflow_model
        if signature is not None:
            described.signature = signature
        if metadata is not None:
            described.metadata = metadata
        mlflow.pyfunc.add_to_model(described, loader_module=__name__, data=DATA, python_env=ENVIRONMENT)
        described.add_flavor(FLAVOR_NAME, sparkdl_version=sparkdl.__version__, data=DATA)
        described.save(str(folder / "MLmodel"))
        needed = [f"sparkdl-jax=={sparkdl.__version__}"] if pip_requirements is None else pip_requirements
        (folder / REQUIREMENTS).write_text("".join(f"{requirement}\n" for requirement in needed), encoding="utf-8")
        python = ".".join(map(str, sys.version_info[:3]))
        environment = f"python: {python}\nbuild_dependencies:\n- pip\ndependencies:\n- -r {REQUIREMENTS}\n"
        (folder / ENVIRONMENT).write_text(environment, encoding="utf-8")


@contextmanager
def _undone_if_refused(folder: Path) -> Iterator[None]:
    """Makes the folder, which may be there and empty, and leaves it as it was where what goes into it is refused."""
    there = folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    except BaseException:
        for entry in folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        if not there:
            folder.rmdir()
        raise


def log_model(model: Any, name: str = "model", registered_model_name: str | None = None, **options: Any) -> Any:
    """Log a model to the active run, or to a new one.

    Parameters
    ----------
    model : DeepModel, ..., PipelineModel or str
        As of `save_model`.
    name : str, default "model"
        What MLflow calls it.
    registered_model_name : str, optional
        Under which it is registered, too.
    **options
        Of `save_model`.

    Returns
    -------
    mlflow.models.model.ModelInfo
        Whose `model_uri` `load_model` and `mlflow.pyfunc.load_model` take.

    Raises
    ------
    ValueError
        The model is none that `sparkdl.load` reads.
    ImportError
        MLflow is missing.
    """
    log, flavor = _mlflow().models.Model.log, sys.modules[__name__]
    since_3 = "name" in signature_of(log).parameters  # MLflow 3 warns of artifact_path, which MLflow 2 knows alone
    named = {"artifact_path": None, "name": name} if since_3 else {"artifact_path": name}
    return log(**named, flavor=flavor, registered_model_name=registered_model_name, model=model, **options)


def load_model(model_uri: str, **options: Any) -> Predictor:
    """The Predictor of a model that was logged or saved by this module.

    Parameters
    ----------
    model_uri : str
        Such as "runs:/.../model", "models:/name/1" or a local folder.
    **options
        Of `sparkdl.load`.

    Raises
    ------
    FileNotFoundError
        There is no model of this flavor.
    ImportError
        MLflow is missing.
    """
    folder = _mlflow().artifacts.download_artifacts(model_uri)
    return load(os.path.join(folder, DATA), **options)


class Scorer:
    """What `mlflow.pyfunc.load_model` gives of our models, behind MLflow's own interface.

    Parameters
    ----------
    predictor : Predictor
    """

    def __init__(self, predictor: Predictor) -> None:
        self.predictor = predictor

    def predict(self, model_input: Any, params: dict[str, Any] | None = None) -> pd.DataFrame | dict[str, Any]:
        """The model's columns for rows: of a frame as one, by its index, and of a dict as one.

        Parameters
        ----------
        model_input : pd.DataFrame or dict of arrays
            As of `Predictor.predict`; MLflow gives a dict where the signature is of tensors.
        params : dict, optional
            There are none: MLflow gives None or {}.

        Raises
        ------
        ValueError
            There are params, or the rows cannot be scored.
        """
        if params:
            raise ValueError(f"params must be empty, as the model has none, received {params!r}; leave them out.")
        found = self.predictor.predict(model_input)
        columns = self.predictor.columns
        return {name: found[name] for name in columns} if isinstance(found, dict) else found[list(columns)]


def _load_pyfunc(path: str) -> Scorer:
    """What MLflow calls to load a model of ours, by the name of this module."""
    return Scorer(load(path))


def _mlflow() -> Any:
    """MLflow, with what of it is used; ImportError where it is missing."""
    try:
        import mlflow.artifacts
        import mlflow.models
        import mlflow.pyfunc
    except ImportError:
        raise ImportError("Models in MLflow need the package mlflow; pip install 'sparkdl-jax[mlflow]'.") from None
    return mlflow
