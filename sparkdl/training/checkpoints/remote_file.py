"""A file that grows on a file system whose files are put in place whole: a thread replaces it now and then."""

from __future__ import annotations

import threading

from sparkdl.training.checkpoints.storage import open_folder, within

OPEN_SECONDS, CLOSE_SECONDS = 30.0, 60.0
PAUSE_SECONDS = 15.0  # from one replacement to the next, each of which sends the whole file


class RemoteFile:
    """Is written to like a file, whose `flush` sees to it that what is there appears soon, without waiting.

    Parameters
    ----------
    uri : str
        Of the folder and the file in it.

    Raises
    ------
    ValueError
        Neither pyarrow nor fsspec opens it.
    OSError
        It cannot be written.
    """

    def __init__(self, uri: str) -> None:
        folder, _, self._name = uri.rpartition("/")
        self._content = bytearray()
        self._changed = threading.Condition()  # guards all below, and the content
        self._due = self._closed = False
        self._error: Exception | None = None

        def create() -> None:
            self._folder = open_folder(folder)
            self._folder.write(self._name, b"")

        within(OPEN_SECONDS, create)
        self._thread = threading.Thread(target=self._send, name="logs", daemon=True)
        self._thread.start()

    def write(self, data: bytes) -> None:
        """Append."""
        with self._changed:
            self._content += data

    def flush(self) -> None:
        """Have it replaced soon; OSError if the last time failed."""
        with self._changed:
            if self._error is not None:
                raise OSError(str(self._error))
            self._due = True
            self._changed.notify_all()

    def close(self) -> None:
        """Wait until all is there; OSError if it is not within `CLOSE_SECONDS`."""
        with self._changed:
            self._due = self._due and self._error is None
            self._closed = True
            self._changed.notify_all()
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            raise TimeoutError(f"the file system gave no answer within {CLOSE_SECONDS:g} s")
        if self._error is not None:
            raise OSError(str(self._error))

    def _send(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._due or self._closed)
                if not self._due:
                    return
                self._due = False
                content = bytes(self._content)
            try:
                self._folder.write(self._name, content)
            except Exception as error:
                with self._changed:
                    self._error, self._due = error, False
                return
            with self._changed:
                self._changed.wait_for(lambda: self._closed, PAUSE_SECONDS)
