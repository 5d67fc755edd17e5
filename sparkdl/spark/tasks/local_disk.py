"""Where a task may keep files on its machine: Spark's own local disk, which Spark cleans when the session ends."""

from __future__ import annotations

import errno
import os
import re
import shutil

LEAST_FREE = 16 << 20  # bytes that a task takes besides its rows, and Spark for what it returns


def local_directory() -> str | None:
    """A folder of Spark's on this machine's disk; None where Spark does not say which."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]
    return first if os.path.isdir(first) else None


def check_free(directory: str) -> None:
    """OSError if the disk of this folder is as good as full, which Spark would say only once a fit is over."""
    free = shutil.disk_usage(directory).free
    if free < LEAST_FREE:
        raise OSError(errno.ENOSPC, f"{free / (1 << 20):.1f} MiB are left there")


def full_disk_in(text: str) -> str | None:
    """A sentence, if an exception's text is that of Spark's having found its local disk full; None for all else."""
    if "No space left on device" not in text:
        return None
    found = re.search(r"\(([^\s()]+) executor [^()]*\): [\w.]*IOException: No space left on device", text)
    where = f" of {found[1]}" if found else " of one of its machines"
    return f"Spark cannot write to the local disk{where}: no space is left; free or add disk there."


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
