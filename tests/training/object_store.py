"""An S3 server of this process that can stall, refuse and lose what it says it has kept."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

BUCKET = "bucket"
ACCOUNT = "123456789012"  # moto's


class Store:
    """moto's server.

    Attributes
    ----------
    requests : list of str
        "GET /bucket/key" and so on, as they came.
    lost : float or None
        What part of every object is lost once its upload has been acknowledged; 1 for all of it.
    """

    def __init__(self, application: Callable[..., Iterable[bytes]], backend: Any) -> None:
        self._application, self._backend = application, backend
        self.requests: list[str] = []
        self.lost: float | None = None
        self.refuses = False
        self._answers = threading.Event()
        self._answers.set()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        self.requests.append(f"{method} {path}")
        self._answers.wait(60)
        if self.refuses:
            body = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            start("403 Forbidden", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
            return [body]
        answer = list(self._application(environ, start))
        if method == "POST" and "uploadId=" in environ["QUERY_STRING"] and self.lost is not None:
            self._lose(path.removeprefix(f"/{BUCKET}/"), self.lost)
        return answer

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Answer nobody until the end."""
        self._answers.clear()
        try:
            yield
        finally:
            self._answers.set()

    def _lose(self, key: str, part: float) -> None:
        value = self._backend.get_object(BUCKET, key).value
        self._backend.delete_object(BUCKET, key)
        if part < 1:
            self._backend.put_object(BUCKET, key, value[: int(len(value) * (1 - part))])


@contextmanager
def served(patch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store with an empty bucket, which pyarrow finds at "s3://bucket"."""
    pytest.importorskip("moto", reason="needs moto[s3], flask and flask-cors")
    from moto.s3 import s3_backends
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    backend = s3_backends[ACCOUNT]["aws"]
    backend.reset()
    store = Store(DomainDispatcherApplication(create_backend_app), backend)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, store, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    settings = {"ACCESS_KEY_ID": "any", "SECRET_ACCESS_KEY": "any", "EC2_METADATA_DISABLED": "true"}
    settings |= {"ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}", "DEFAULT_REGION": "us-east-1"}
    for name, value in settings.items():
        patch.setenv(f"AWS_{name}", value)
    backend.create_bucket(BUCKET, "us-east-1")
    yield store
    server.shutdown()
    server.server_close()
