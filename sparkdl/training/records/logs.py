"""What TensorBoard shows of a run: scalars, and once an epoch the spread of weights, gradients and activations."""

from __future__ import annotations

import contextlib
import math
import os
import secrets
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from sparkdl.layers.base import Weights
from sparkdl.network import BaseNetwork
from sparkdl.objective import Objective
from sparkdl.specs import Spec, check_integers
from sparkdl.training.checkpoints.remote_file import RemoteFile
from sparkdl.training.data.batches import Rows
from sparkdl.training.records.probe import BINS, Histogram, Probed, make_probe

SCHEME = "sparkdl"  # under which tensorboardX finds our way to other file systems
PROBED_ROWS = 128  # at most, so that a probe costs the same whatever the batch


@dataclass(frozen=True)
class Logs(Spec):
    """Where and how often a run writes TensorBoard events; the first worker writes them.

    A run that starts at step k hides what the same directory holds of later steps, so that a resumed run goes on with
    the curves of the interrupted one; give unrelated runs a directory each.

    Parameters
    ----------
    directory : str
        A local path, of the machine on which the first worker runs, or a URI that pyarrow or fsspec opens. It is made
        if it is missing. Behind a URI the file is replaced as a whole, a few times a minute, as stores append nothing.
    every : int, default 100
        Steps between two scalars; spreads and validation are written once an epoch.
    """

    directory: str
    every: int = 100

    def __post_init__(self) -> None:
        if isinstance(self.directory, os.PathLike):
            object.__setattr__(self, "directory", os.fspath(self.directory))
        super().__post_init__()
        if not isinstance(self.directory, str) or not self.directory:
            raise ValueError(f"directory of Logs must be a path or URI, received {self.directory!r}; name one.")
        check_integers(self, 1, "every")


class NullWriter:
    """A writer that writes nothing: of every worker but the first, and of a run without logs.

    Attributes
    ----------
    active : bool
        Whether anything is written; ask before working out what `compile` and `epoch` take.
    """

    active = False

    def due(self, step: int) -> bool:
        """Whether `scalars` is to be called after this step."""
        return False

    def watch(self, network: BaseNetwork) -> None:
        """Look at this network from now on, in which other layers are frozen than before."""

    def compile(self, weights: Weights, rows: Rows) -> None:
        """Compile the probe, so that the others do not wait for it at the first epoch's end."""

    def scalars(self, step: int, values: Mapping[str, float | None]) -> None:
        """Write numbers by name, and the learning rate, of the step that made it `step` steps."""

    def epoch(self, step: int, record: Mapping[str, Any], before: Weights, after: Weights, rows: Rows) -> None:
        """Write an epoch that ended after `step` steps."""

    def close(self) -> None:
        """Finish the file."""


class LogWriter(NullWriter):
    """Writes the events of one run, through tensorboardX; it needs no other worker.

    Tags are step/..., epoch/..., weights/LAYER/NAME and gradients/LAYER/NAME (histograms), update_ratio/LAYER/NAME
    (log10 of mean |update| / mean |weight| in the epoch's last step, around -3 where the step size suits), and
    activations/LAYER/mean and .../standard_deviation. A file system that takes no more ends the logs with a warning,
    and not the training.

    Parameters
    ----------
    logs : Logs
    network : Network or Graph
    objective : Objective
    rate : callable
        The learning rate at a step, 0 for the first one.
    seed : int, default 0
        Of random layers in the probe.
    dtype : str, optional
        What layers compute in; by default that of the weights.
    first_step : int, default 0
        Steps taken before this run, if it is resumed.

    Raises
    ------
    ValueError
        tensorboardX is not installed, or the directory cannot be made or written.
    """

    active = True

    def __init__(
        self,
        logs: Logs,
        network: BaseNetwork,
        objective: Objective,
        rate: Callable[[int], float],
        *,
        seed: int = 0,
        dtype: str | None = None,
        first_step: int = 0,
    ) -> None:
        try:
            from tensorboardX import event_file_writer, record_writer, summary
            from tensorboardX.proto import event_pb2
        except ImportError:
            raise ValueError(
                "Logs need the package tensorboardX where workers run, which is not installed; "
                "install sparkdl-jax[tensorboard]."
            ) from None
        self._logs, self._metric, self._rate, self._seed = logs, objective.metric, rate, np.uint32(seed % 2**32)
        self._objective, self._dtype = objective, dtype
        self.watch(network)
        self._summary, self._event = summary, event_pb2.Event
        try:
            if "://" in logs.directory:
                record_writer.register_writer_factory(SCHEME, SimpleNamespace(open=_open_remote))
                place = f"{SCHEME}:{logs.directory.rstrip('/')}"
            else:
                os.makedirs(logs.directory, exist_ok=True)
                place = logs.directory
            # Not SummaryWriter, whose queue blocks for ever once the thread that empties it has met a full disk.
            self._file: Any = event_file_writer.EventsWriter(os.path.join(place, "events"), f".{secrets.token_hex(4)}")
        except Exception as error:  # a package behind fsspec raises what it likes
            raise ValueError(
                f"directory of Logs must be a folder that workers can write, received {logs.directory!r} "
                f"({' '.join(str(error).split())}); choose another."
            ) from None
        start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
        self._write(first_step + 1, [{"session_log": start}])  # TensorBoard then hides earlier runs' later steps

    def due(self, step: int) -> bool:
        return step % self._logs.every == 0

    def watch(self, network: BaseNetwork) -> None:
        self._probe = make_probe(network, self._objective, self._dtype)

    def compile(self, weights: Weights, rows: Rows) -> None:
        """Compile the probe for weights and for one worker's batch, both arrays or the like with shape and dtype."""
        zeros = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), (weights, rows))
        jax.block_until_ready(self._probed(zeros[0], zeros[0], zeros[1], 0))

    def scalars(self, step: int, values: Mapping[str, float | None]) -> None:
        """Write what is known of a step.

        Parameters
        ----------
        step : int
            Steps taken, this one with them.
        values : dict
            By name, such as loss, metric, rows_per_second, bytes; None is left out. "metric" is renamed as the loss
            calls it. The learning rate is added.
        """
        rate = {"learning_rate": self._rate(step - 1)}
        self._write(step, self._numbers("step", {**values, **rate}))

    def epoch(self, step: int, record: Mapping[str, Any], before: Weights, after: Weights, rows: Rows) -> None:
        """Write means over the epoch, and the spread of weights, gradients, updates and activations in its last step.

        Parameters
        ----------
        step : int
            Steps taken, this epoch with them.
        record : dict
            Fields of the trainer's `Epoch`: rows and seconds become rows_per_second, steps are left out, other numbers
            are written as such.
        before, after : nested dict of arrays
            Weights before and after the epoch's last step.
        rows : Rows
            This worker's rows of that step. Gradients and activations are those of `before` over the first
            `PROBED_ROWS` of them, each by its weight; where these weigh nothing, there are none.
        """
        speed = {"rows_per_second": record["rows"] / record["seconds"]} if record.get("seconds") else {}
        means = {name: value for name, value in record.items() if name not in ("rows", "steps", "seconds", "outputs")}
        for output, values in (record.get("outputs") or {}).items():
            means |= {f"{output}/{name}": value for name, value in values.items()}
        events = self._numbers("epoch", {**means, **speed})
        found = jax.device_get(self._probed(before, after, rows, step))
        for name, (change, size) in found.updates.items():
            if 0 < change < math.inf and 0 < size < math.inf:
                events += self._numbers("update_ratio", {name: math.log10(change / size)})
        histograms = {"weights": found.weights}
        if np.sum(rows.weights[:PROBED_ROWS]) > 0:
            histograms["gradients"] = found.gradients
            events += self._numbers("activations", found.activations)
        for group, spreads in histograms.items():
            events += [self._histogram(f"{group}/{name}", spread) for name, spread in spreads.items()]
        self._write(step, events)

    def close(self) -> None:
        """Finish the file; what does not get there in time is missed with a warning."""
        file, self._file = self._file, None
        if file is not None:
            try:
                file.close()
            except OSError as error:
                warnings.warn(f"The last logs are missing in {self._logs.directory} ({error}).", stacklevel=3)

    def _probed(self, before: Weights, after: Weights, rows: Rows, step: int) -> Probed:
        few = jax.tree.map(lambda part: np.asarray(part)[:PROBED_ROWS], rows)
        return self._probe(before, after, few, self._seed, np.uint32(step))

    def _numbers(self, group: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        names = {name: name.replace("metric", self._metric) if group in ("step", "epoch") else name for name in values}
        return [
            {"summary": self._summary.scalar(f"{group}/{names[name]}", float(value))}
            for name, value in values.items()
            if isinstance(value, (int, float, np.number, np.ndarray))
        ]

    def _histogram(self, tag: str, spread: Histogram) -> dict[str, Any]:
        edges = spread.bound * (2 * np.arange(1, BINS + 1) / BINS - 1)
        numbers = (spread.least, spread.most, spread.counts.sum(), spread.total, spread.squares)
        made = self._summary.histogram_raw(tag, *map(float, numbers), edges.tolist(), spread.counts.tolist())
        return {"summary": made}

    def _write(self, step: int, contents: list[dict[str, Any]]) -> None:
        if self._file is None:
            return
        try:
            for content in contents:
                self._file.write_event(self._event(step=step, wall_time=time.time(), **content))
            self._file.flush()
        except OSError as error:
            warnings.warn(f"Logs end at step {step}: {self._logs.directory} takes no more ({error}).", stacklevel=3)
            file, self._file = self._file, None
            with contextlib.suppress(OSError):
                file.close()


def _open_remote(path: str) -> RemoteFile:
    return RemoteFile(path.removeprefix(f"{SCHEME}:"))
