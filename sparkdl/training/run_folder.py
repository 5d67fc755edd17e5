"""A run's checkpoints in their folder. The first worker alone reads and writes them; the others learn what it read."""

from __future__ import annotations

from jax.sharding import Mesh

from sparkdl.layers.base import Weights
from sparkdl.training.checkpoints.checkpoints import CheckpointFolder, decode
from sparkdl.training.data.batches import Steps
from sparkdl.training.group.collectives import from_worker
from sparkdl.training.options import Training
from sparkdl.training.resumption import Arrays, Position, Share, fingerprint


class RunFolder:
    """That of a run, which every process of the mesh opens.

    Parameters
    ----------
    plan : Training
        With `checkpoints`.
    shares : (Share, Share)
        Of the rows to train and to validate on.
    initial : nested dict of arrays or None
        The weights that the run starts from.
    mesh : Mesh
    leads : bool
        Whether the first worker is of this process.
    """

    def __init__(
        self, plan: Training, shares: tuple[Share, Share], initial: Weights | None, mesh: Mesh, leads: bool
    ) -> None:
        assert plan.checkpoints is not None
        self._directory, self._mesh = plan.checkpoints.directory, mesh
        self._steps = Steps(shares[0].lengths, plan.step_rows).count * plan.epochs
        run = fingerprint(plan, shares, initial, mesh)
        self._unknown = run.unknown
        self._folder = CheckpointFolder(plan.checkpoints, run.digest) if leads else None
        self._notes: list[str] = []

    @property
    def notes(self) -> list[str]:
        """What went otherwise than expected so far, a sentence each."""
        return self._notes + (self._folder.notes if self._folder else [])

    def read(self) -> tuple[Position, Arrays] | None:
        """How far the run was at its newest checkpoint and what it went on from there, if it has one.

        Raises
        ------
        ValueError
            Checkpoints cannot be written.
        """
        data = from_worker(self._newest(self._folder) if self._folder else None, 0, self._mesh)
        if data is None:
            return None
        meta, arrays = decode(data)
        return Position.from_json(meta["position"]), arrays

    def write(self, position: Position, steps: int, arrays: Arrays, is_best: bool) -> None:
        """Write a checkpoint; `steps` is how many of them the run has taken."""
        if self._folder:
            meta = {"epoch": position.epoch, "step": steps, "position": position.to_json()}
            self._folder.save(meta, arrays, is_best)

    def close(self) -> None:
        """Wait for what is being written."""
        if self._folder:
            self._folder.close()

    def _newest(self, folder: CheckpointFolder) -> bytes | None:
        folder.check()
        found = folder.newest(steps=self._steps)
        if not found and folder.others():
            self._notes.append(
                f"The checkpoint directory {self._directory!r} holds checkpoints of other runs only (with another "
                "network, other code of its own classes, other settings, rows or number of workers, another number of "
                "epochs where a schedule depends on it, or another version of sparkdl or jax); this one started "
                "anew."
            )
        if found and self._unknown:
            self._notes.append(
                f"The run went on from a checkpoint in {self._directory!r}, though whether its code is the same could "
                f"not be told of {', '.join(self._unknown)}; name another directory if that has changed."
            )
        return found.data if found else None
