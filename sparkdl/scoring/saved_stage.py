"""The format of saved stages: what their files must hold to be believed, whoever reads these."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from sparkdl.layers.base import Weights
from sparkdl.scoring.weight_rows import assembled, digest
from sparkdl.specs import MissingClass

FORMAT = 2  # of the directory; 1 had neither paramsDigest nor weightsFiles
METADATA_BYTES = 64 << 20  # more than any network's description has
UNSIGNED = ("timestamp", "sparkVersion", "paramsDigest")  # what paramsDigest does not cover


def read_metadata(path: str, found: list[bytes]) -> dict[str, Any]:
    """The metadata of a stage, Spark's own included, from what is in the files `metadata/part-*` at `path`.

    Raises
    ------
    FileNotFoundError
        There are none.
    ValueError
        There are several, or they are damaged.
    """
    if not found:
        raise FileNotFoundError(
            f"{path} holds no saved stage, as there is no {path}/metadata with content; check the path."
        )
    with explained(path):
        if len(found) > 1:
            raise ValueError(f"there are {len(found)} files of metadata.")
        metadata = json.loads(found[0].decode())
        if not isinstance(metadata, dict) or not isinstance(metadata.get("class"), str):
            raise ValueError("its metadata name no class.")
        return metadata


def check_metadata(path: str, metadata: dict[str, Any]) -> None:
    """ValueError unless this format is known and the metadata are as they were saved."""
    version = metadata.get("sparkdlFormat")
    if type(version) is not int or not 1 <= version <= FORMAT:
        raise ValueError(
            f"{path} is in format {short(version)}, this sparkdl reads formats 1 to {FORMAT}; upgrade sparkdl."
        )
    with explained(path):
        if (version > 1 or "paramsDigest" in metadata) and metadata.get("paramsDigest") != params_digest(metadata):
            raise ValueError("its metadata are not those that were saved.")


def params_digest(metadata: dict[str, Any]) -> str:
    """SHA-256 over all metadata but those that it does not cover."""
    signed = {name: value for name, value in metadata.items() if name not in UNSIGNED}
    return hashlib.sha256(json.dumps(signed, sort_keys=True).encode()).hexdigest()


def verified_weights(
    path: str,
    metadata: dict[str, Any],
    names: Callable[[], Iterable[str]],
    content: Callable[[str], bytes],
    most: float = math.inf,
) -> Weights:
    """The weights that were saved at a path.

    Parameters
    ----------
    path : str
        For messages.
    metadata : dict
        Checked ones, with `weightsDigest`.
    names : callable
        Gives the names of the Parquet files there are, for a format whose metadata do not tell them.
    content : callable
        Gives the bytes of a file, by its name; none of one that is not there.
    most : float
        Bytes that the weights have at most.

    Raises
    ------
    ValueError
        They are not those that were saved.
    """
    with explained(path):
        digests = metadata.get("weightsFiles")
        weights = assembled(_weight_files(names() if digests is None else digests, digests, content), most)
        if digest(weights) != metadata["weightsDigest"]:
            raise ValueError("its weights are not those that were saved.")
    return weights


def _weight_files(
    names: Iterable[str], digests: dict[str, str] | None, content: Callable[[str], bytes]
) -> Iterator[bytes]:
    """The Parquet files, one at a time, each only when its bytes are known to be those that were saved."""
    for name in names:
        if not re.fullmatch(r"part-[\w.-]+\.parquet", name):
            raise ValueError(f"{name!r} is no name of a file of weights.")
        found = content(name)
        if digests is not None and hashlib.sha256(found).hexdigest() != digests[name]:
            raise ValueError(f"file weights/{name} is {'not as it was saved' if found else 'missing or empty'}.")
        yield found


def short(value: Any) -> str:
    """As text on one line that is not too long to read."""
    text = " ".join(str(value).split())
    return text if len(text) <= 500 else f"{text[:500]}..."


@contextmanager
def explained(path: str) -> Iterator[None]:
    """Turns whatever damaged metadata or rows make readers, parsers and constructors raise into one sentence."""
    try:
        yield
    except (ConnectionError, ImportError):  # to Spark; of an extra
        raise
    except MissingClass as error:
        raise ValueError(f"{path} cannot be loaded: {error}") from None
    except Exception as error:
        kind = "" if isinstance(error, (ValueError, TypeError)) else f"{type(error).__name__} "
        reason = short(f"{kind}{error}").rstrip(".")
        remedy = "save the stage again, or upgrade sparkdl if a newer one saved it"
        if re.search(r"No FileSystem for scheme|Class org\.apache\.hadoop\.fs\.\S+ not found", reason):
            remedy = "give Spark the jars of this file system, as hadoop-aws for s3a://, or copy the folder to another"
        raise ValueError(f"{path} cannot be loaded: {reason}; {remedy}.") from None
