"""Write Spark's classes, loaded and verified, for the Javas of tests to share: sessions start in half of the time.

    python tests/share_classes.py FILE

Javas take no notice of a file that is not of their own version and Spark; where this one cannot write it, it is empty.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from sparkdl import DeepClassificationModel, DeepClassifier, Network
from sparkdl.layers import Dense
from sparkdl.spark import local_session

SECONDS = 120.0


def main(archive: Path) -> None:
    """Do what most tests do, in a session whose Java writes the file when it ends."""
    written = archive.with_suffix(".new")
    written.unlink(missing_ok=True)
    options = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+IgnoreUnrecognizedVMOptions -Xlog:disable"
    os.environ["SPARK_SUBMIT_OPTS"] = f"{options} -XX:ArchiveClassesAtExit={written}"
    session = local_session("local[1]")
    java = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    rows = session.createDataFrame([([0.0, 1.0], 0.0), ([1.0, 0.0], 1.0)] * 8, ["features", "label"])
    network = Network([Dense(2)], input_shape=(2,))
    model = DeepClassifier(network=network, numWorkers=1, maxIter=1, progress="off").fit(rows.repartition(2))
    with TemporaryDirectory() as folder:
        model.save(f"{folder}/model")
        scored = DeepClassificationModel.load(f"{folder}/model").transform(rows).drop("features")
        scored.write.parquet(f"{folder}/rows")
        stream = session.readStream.schema(scored.schema).parquet(f"{folder}/rows")
        query = stream.writeStream.format("memory").queryName("scored").trigger(availableNow=True).start()
        assert query.awaitTermination(SECONDS)
        session.sql("SELECT label, count(prediction) FROM scored GROUP BY label ORDER BY label").toPandas()
    session.stop()
    java.stdin.close()  # at which it ends
    java.wait(SECONDS)
    written.touch()
    written.replace(archive)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
