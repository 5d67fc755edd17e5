"""A process with a Spark session on one of the hosts, which does the jobs that it is told of line by line.

Run as `python driver.py SETTINGS RESULTS`: JSON settings of the session, and the file to which results are appended, a
line of JSON a job. A line on standard input is {"id": ..., "job": name of a function in jobs.py, "arguments": {...}};
jobs run at the same time, in threads of their own. The end of standard input ends it.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from pathlib import Path

import jobs
from pyspark.sql import SparkSession


def main(settings: str, results: str) -> None:
    """Do jobs until nobody has any more."""
    builder = SparkSession.builder
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    lock = threading.Lock()

    def tell(**result: object) -> None:
        with lock, Path(results).open("a") as stream:
            stream.write(json.dumps(result) + "\n")

    def do(asked: dict) -> None:
        try:
            tell(id=asked["id"], value=getattr(jobs, asked["job"])(session, **asked["arguments"]))
        except BaseException as error:
            traceback.print_exc()
            tell(id=asked["id"], error=type(error).__name__, message=str(error))

    tell(id="session", value=None)
    threads = []
    for line in sys.stdin:
        threads.append(threading.Thread(target=do, args=(json.loads(line),), daemon=True))
        threads[-1].start()
    for thread in threads:
        thread.join(5)
    session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
