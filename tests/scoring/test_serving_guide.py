"""The guide's code runs as written, and its server answers clients that ask at the same time."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest

import sparkdl

pytestmark = pytest.mark.usefixtures("unoptimized")
ROOT = Path(__file__).parents[2]
SAVED = str(ROOT / "tests" / "saved_by_0.1" / "model")
GUIDE = (ROOT / "docs" / "guides" / "serving.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def namespace() -> Iterator[dict[str, Any]]:
    """What the guide's code leaves, its server running."""
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL):
        exec(block.replace('"served-model"', repr(SAVED)).replace('["probability"]', '["chances"]'), names)
    thread = threading.Thread(target=names["server"].serve_forever, daemon=True)
    thread.start()
    yield names
    names["server"].shutdown()
    names["server"].server_close()
    thread.join()


def ask(server: Any, rows: Any) -> Any:
    request = Request(f"http://127.0.0.1:{server.server_port}", json.dumps(rows).encode())
    with urlopen(request, timeout=60) as answer:
        return json.load(answer)


def test_it_answers_clients_at_the_same_time(namespace: dict[str, Any]) -> None:
    features = np.random.default_rng(0).normal(size=(24, 4))
    expected = sparkdl.load(SAVED).predict({"features": features})
    with ThreadPoolExecutor(8) as clients:
        parts = [features[at : at + 3].tolist() for at in range(0, 24, 3)]
        answers = list(clients.map(lambda part: ask(namespace["server"], {"features": part}), parts))
    assert answers[0].keys() == {"rawPrediction", "chances", "prediction"}
    for name in answers[0]:
        found = np.array([row for answer in answers for row in answer[name]])
        np.testing.assert_array_equal(found, expected[name])


def test_it_tells_a_client_what_is_wrong(namespace: dict[str, Any]) -> None:
    with pytest.raises(HTTPError) as refused:
        ask(namespace["server"], {"features": [[1.0]]})
    with refused.value as answer:
        assert answer.code == 400
        assert "featuresCol 'features' must hold 4 values a row" in json.load(answer)["error"]
