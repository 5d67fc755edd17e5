"""Params of how a fit runs: when it stops, where it saves what it needs to go on, what it tells of itself."""

from __future__ import annotations

from typing import Any, Self

from pyspark.ml.param import Param, Params, TypeConverters
from pyspark.ml.param.shared import HasCheckpointInterval

from sparkdl.spark.params.converters import one_of, spec_text
from sparkdl.training.checkpoints.checkpoints import Checkpoints
from sparkdl.training.records.logs import Logs
from sparkdl.training.stopping import EarlyStopping


class HasRun(HasCheckpointInterval):
    """Early stopping, checkpoints, statistics and logs."""

    earlyStopping: Param[str] = Param(
        Params._dummy(),
        "earlyStopping",
        "when to stop before maxIter: an EarlyStopping of sparkdl.training.",
        spec_text(EarlyStopping),  # type: ignore[arg-type]
    )
    checkpointDir: Param[str] = Param(
        Params._dummy(),
        "checkpointDir",
        "folder that every machine reaches, a path or a URI, for what a later fit of the same rows and Params needs to "
        "go on where this one stops.",
        TypeConverters.toString,  # type: ignore[arg-type]
    )
    checkpointInterval: Param[int] = Param(
        Params._dummy(),
        "checkpointInterval",
        "epochs, or steps as checkpointUnit says, from one checkpoint to the next (> 0).",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )
    checkpointUnit: Param[str] = Param(
        Params._dummy(),
        "checkpointUnit",
        "what checkpointInterval counts: epoch or step.",
        one_of("checkpointUnit", "epoch", "step"),  # type: ignore[arg-type]
    )
    checkpointKeep: Param[int] = Param(
        Params._dummy(),
        "checkpointKeep",
        "how many of the newest checkpoints stay (> 0); the best stays as well.",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )
    collectTrainingStats: Param[bool] = Param(
        Params._dummy(),
        "collectTrainingStats",
        "whether workers take down what they do when, for model.summary.timeline.",
        TypeConverters.toBoolean,  # type: ignore[arg-type]
    )
    logDir: Param[str] = Param(
        Params._dummy(),
        "logDir",
        "folder or URI for TensorBoard events, which the first worker writes; needs tensorboardX.",
        TypeConverters.toString,  # type: ignore[arg-type]
    )
    logInterval: Param[int] = Param(
        Params._dummy(),
        "logInterval",
        "steps from one point of TensorBoard's scalars to the next (> 0).",
        TypeConverters.toInt,  # type: ignore[arg-type]
    )

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._setDefault(
            checkpointInterval=1,
            checkpointUnit="epoch",
            checkpointKeep=3,
            collectTrainingStats=False,
            logInterval=100,
        )

    def getEarlyStopping(self) -> EarlyStopping | None:
        """When to stop early, if at all."""
        return EarlyStopping.from_json(self.getOrDefault("earlyStopping")) if self.isDefined("earlyStopping") else None

    def getCheckpointDir(self) -> str | None:
        """Folder of checkpoints; None without such."""
        return self.getOrDefault(self.checkpointDir) if self.isDefined(self.checkpointDir) else None

    def getCheckpointUnit(self) -> str:
        """What checkpointInterval counts."""
        return self.getOrDefault(self.checkpointUnit)

    def getCheckpointKeep(self) -> int:
        """How many of the newest checkpoints stay."""
        return self.getOrDefault(self.checkpointKeep)

    def getCollectTrainingStats(self) -> bool:
        """Whether workers take down what they do when."""
        return self.getOrDefault(self.collectTrainingStats)

    def getLogDir(self) -> str | None:
        """Folder of TensorBoard events; None without such."""
        return self.getOrDefault(self.logDir) if self.isDefined(self.logDir) else None

    def getLogInterval(self) -> int:
        """Steps between TensorBoard's scalars."""
        return self.getOrDefault(self.logInterval)

    def setEarlyStopping(self, value: EarlyStopping | str | None) -> Self:
        """Set when to stop early; None takes it back."""
        return self._set(earlyStopping=value)

    def setCheckpointDir(self, value: str | None) -> Self:
        """Set the folder of checkpoints; None takes it back."""
        return self._set(checkpointDir=value)

    def setCheckpointInterval(self, value: int) -> Self:
        """Set the epochs or steps from one checkpoint to the next."""
        return self._set(checkpointInterval=value)

    def setCheckpointUnit(self, value: str) -> Self:
        """Set what checkpointInterval counts."""
        return self._set(checkpointUnit=value)

    def setCheckpointKeep(self, value: int) -> Self:
        """Set how many of the newest checkpoints stay."""
        return self._set(checkpointKeep=value)

    def setCollectTrainingStats(self, value: bool) -> Self:
        """Set whether workers take down what they do when."""
        return self._set(collectTrainingStats=value)

    def setLogDir(self, value: str | None) -> Self:
        """Set the folder of TensorBoard events; None takes it back."""
        return self._set(logDir=value)

    def setLogInterval(self, value: int) -> Self:
        """Set the steps between TensorBoard's scalars."""
        return self._set(logInterval=value)

    def _run_options(self) -> dict[str, Any]:
        """The fields of `Training` that these Params make; ValueError for values that cannot be."""
        for name in ("checkpointInterval", "checkpointKeep", "logInterval"):
            if self.getOrDefault(name) < 1:
                raise ValueError(f"{name} must be at least 1, received {self.getOrDefault(name)}.")
        checkpoints = logs = None
        if folder := self.getCheckpointDir():
            checkpoints = Checkpoints(
                folder,
                every=self.getCheckpointInterval(),
                unit=self.getCheckpointUnit(),
                keep=self.getCheckpointKeep(),
            )
        if folder := self.getLogDir():
            logs = Logs(folder, self.getLogInterval())
        return {
            "early_stopping": self.getEarlyStopping(),
            "checkpoints": checkpoints,
            "logs": logs,
            "statistics": self.getCollectTrainingStats(),
        }
