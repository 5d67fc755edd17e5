"""Which windows a task is to make of which columns: plain values, as tasks are sent them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SeriesPlan:
    """Which windows are made of which columns; see `SeriesWindows`, whose names of columns these are.

    Attributes
    ----------
    keys, values, targets, known : tuple of str
        Columns of the rows; no targets where no column of the future is made.
    time : str
    window : int or None
        Steps; None for whole series.
    horizon : int
        Steps behind a window that must be there for it to be made.
    stride : int
    partial : bool
    every : str
        As a user wrote it; "" if the time between steps does not count.
    split : bool
        Whether a step at another time begins a series, instead of being refused.
    skip : bool
        Whether windows with invalid numbers are left out, instead of being refused.
    history, future, ahead, until : str
        Columns that are made.
    """

    keys: tuple[str, ...]
    time: str
    values: tuple[str, ...]
    targets: tuple[str, ...]
    known: tuple[str, ...]
    window: int | None
    horizon: int
    stride: int
    partial: bool
    every: str
    split: bool
    skip: bool
    history: str
    future: str
    ahead: str
    until: str

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns of numbers, each once."""
        return tuple(dict.fromkeys((*self.values, *self.targets, *self.known)))

    @property
    def reads(self) -> list[str]:
        """Names of the columns of the rows, as `windowed` takes them: keys, time, those beside it if any, numbers."""
        return [
            *(f"key/{at}" for at in range(len(self.keys))),
            "time",
            *(["next", "previous"] if self.every else []),
            *(f"number/{at}" for at in range(len(self.numbers))),
        ]

    @property
    def makes(self) -> dict[str, str]:
        """Names of the columns that come out besides keys and time, by what they are."""
        there = {"future": self.targets, "known": self.known, "until": self.until and self.horizon}
        names = {"history": self.history, "future": self.future, "known": self.ahead, "until": self.until}
        return {each: name for each, name in names.items() if there.get(each, True)}

    @property
    def behind(self) -> int:
        """Steps of a series that the windows to come may hold."""
        return max(1, (self.window or 0) + self.horizon - 1)
