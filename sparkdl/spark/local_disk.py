"""Where a task may keep files on its machine: Spark's own local disk, which Spark cleans when the session ends."""

from __future__ import annotations

import os


def local_directory() -> str | None:
    """A folder of Spark's on this machine's disk; None where Spark does not say which."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if os.path.isdir(first) else None


def programs_directory() -> str | None:
    """The folder for compiled programs, of fits and of transform; None without a local disk of Spark's to have it on.

    Nobody else may write there, as what is found in it is run.
    """
    parent = local_directory()
    if parent is None:
        return None
    folder = os.path.join(parent, "jax-compilation-cache")
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        os.chmod(folder, 0o700)  # whatever the umask, and if it was there; another's folder refuses
    except OSError:
        return None
    return folder
