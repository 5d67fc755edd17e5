"""The figure of a fit shows what its history says."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sparkdl.training.records.learning_curves import learning_figure
from sparkdl.training.results import Epoch

pytest.importorskip("matplotlib")

HISTORY = [
    Epoch(1 / epoch, 1 - 0.5 / epoch, 1.2 / epoch, 0.9 - 0.5 / epoch, 64, 1.0, 0.1, steps=8) for epoch in range(1, 6)
]


def curves(axes: Any) -> dict[str, tuple[list[float], list[float]]]:
    return {line.get_label(): (list(line.get_xdata()), list(line.get_ydata())) for line in axes.lines}


def test_loss_and_metric_are_drawn_in_training_and_validation() -> None:
    figure = learning_figure(HISTORY, "accuracy")
    loss, metric = figure.axes
    assert (loss.get_title(), metric.get_title()) == ("loss", "accuracy")
    epochs = [1, 2, 3, 4, 5]
    assert curves(loss) == {
        "training": (epochs, [1 / epoch for epoch in epochs]),
        "validation": (epochs, [1.2 / epoch for epoch in epochs]),
    }
    assert curves(metric)["validation"] == (epochs, [0.9 - 0.5 / epoch for epoch in epochs])
    assert figure._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("best, where", [([4, 0, 0.3], 4.0), ([3, 2, 0.3], 3.25), ([5, 0, 0.3], 5.0)])
def test_the_best_check_is_marked_where_it_was(best: list[Any], where: float) -> None:
    for axes in learning_figure(HISTORY, "accuracy", best).axes:
        assert curves(axes)["best check (0.3)"][0] == [where, where]


def test_what_there_is_not_is_not_drawn() -> None:
    alone = [epoch._replace(validation_loss=None, validation_metric=None) for epoch in HISTORY]
    assert curves(learning_figure(alone, "mse").axes[1]).keys() == {"training"}
    assert not curves(learning_figure([], "mse").axes[0])


def test_of_several_outputs_each_has_its_curves() -> None:
    def told(epoch: int, least: float) -> dict[str, float | None]:
        return {
            "loss": least + 1 / epoch,
            "metric": least - 0.5 / epoch,
            "validation_loss": least + 1.2 / epoch,
            "validation_metric": None,
        }

    outputs = [{"kind": told(epoch, 1.0), "price": told(epoch, 2.0)} for epoch in range(1, 6)]
    history = [epoch._replace(metric=None, outputs=own) for epoch, own in zip(HISTORY, outputs, strict=True)]
    figure = learning_figure(history, {"kind": "accuracy", "price": "mse"}, [4, 0, 0.3])
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["loss", "kind: loss", "kind: accuracy", "price: loss", "price: mse"]
    whole, kind, _, price, metric = figure.axes
    epochs = [1, 2, 3, 4, 5]
    assert curves(whole)["training"] == (epochs, [1 / epoch for epoch in epochs])
    assert curves(kind)["validation"] == (epochs, [1 + 1.2 / epoch for epoch in epochs])
    assert curves(price)["training"] == (epochs, [2 + 1 / epoch for epoch in epochs])
    assert curves(metric).keys() == {"training", "best check (0.3)"}
    assert curves(metric)["training"] == (epochs, [2 - 0.5 / epoch for epoch in epochs])
    figure.savefig(buffer := io.BytesIO())
    assert buffer.getvalue().startswith(b"\x89PNG")
