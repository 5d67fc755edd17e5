"""The exchange benchmark's cost model adds up, its network is removed whatever happens, and its document is current."""

from __future__ import annotations

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))

import exchange
from contestants import exchange_link, exchange_report
from contestants.exchange_cases import MODELS, Model, Prober, Stepper, write_rows
from contestants.exchange_link import LOOPBACK, LinkError, link, places
from contestants.exchange_model import Fitted, Observation, Sizes, Worker, core, fitted, step_seconds
from contestants.exchange_tables import refreshed
from jax.sharding import Mesh

from sparkdl import Network
from sparkdl.layers import Dense, Flatten
from sparkdl.training.exchanges.exchange import WORKERS

DOCS = exchange.DOCS

# The cost model


FORMS = ("allreduce", "allreduce_bfloat16", "sharded", "averaging", "threshold_bitmap", "threshold")
HANDLING = dict.fromkeys(FORMS, 2e-9)
WORKER = Worker(operations=1e9, latency=1e-3, byte=1e-9, waiting=0.1, handling=HANDLING, sparse=1 / 100)
SIZES = Sizes(weights=1_000_000, operations=2e6)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        # 10 rows take 20 ms, the slowest worker 2 ms more; a byte takes 8 ns on the network, 1 ns beside it; handling
        # of all weights takes 2 ms
        ("allreduce", 0.022 + 6e-3 + 6e6 * 9e-9 + 2e-3),
        ("tree", 0.022 + 4e-3 + 6e6 * 9e-9 + 2e-3),
        ("allreduce_bfloat16", 0.022 + 6e-3 + 3e6 * 9e-9 + 2e-3),
        ("sharded", 0.022 + 6e-3 + 6e6 * 9e-9 + 2e-3),  # one half of the rounds scatters, the other gathers
        ("averaging", 0.020 + (2e-3 + 6e-3 + 6e6 * 9e-9 + 2e-3) / 5),
        ("threshold_bitmap", 0.022 + 3e-3 + 3 * 250e3 * 9e-9 + 3e-3),
        ("threshold", 0.022 + 3e-3 + 3 * 40e3 * 9e-9 + 3e-3),
    ],
)
def test_a_step_of_four_workers_takes_compute_rounds_bytes_and_handling(name: str, expected: float) -> None:
    assert step_seconds(SIZES, 10, 4, 1e9, WORKER, name) == pytest.approx(expected)


def test_one_worker_exchanges_nothing() -> None:
    assert step_seconds(SIZES, 10, 1, 1e9, WORKER, "allreduce") == pytest.approx(0.020)


def test_with_many_workers_threshold_sharing_costs_more_than_an_all_reduce() -> None:
    free = replace(WORKER, handling=dict.fromkeys(HANDLING, 0.0), latency=0.0, waiting=0.0)
    times = {
        count: [step_seconds(SIZES, 1, count, 1e8, free, name) for name in ("threshold_bitmap", "allreduce")]
        for count in (2, 16, 64)
    }
    assert [bitmap < plain for bitmap, plain in times.values()] == [True, True, False]


def test_the_fit_finds_the_constants_that_made_the_times() -> None:
    latency, byte = {"10gbit": 2e-4, "100mbit": 5e-4}, {"10gbit": 1.8e-9, "100mbit": 8.5e-8}
    handling = {"allreduce": 1e-9, "averaging": 4e-9, "threshold": 9e-9}
    rounds, parts = (
        {"allreduce": 2, "averaging": 2 / 5, "threshold": 1},
        {"allreduce": 1, "averaging": 5, "threshold": 1},
    )
    cases = [
        Observation(
            network,
            "cnn",
            name,
            weights,
            sent,
            silent,
            silent * (1 + 0.05 / parts[name])
            + rounds[name] * latency[network]
            + sent * byte[network]
            + weights / parts[name] * handling[name],
        )
        for network in latency
        for weights, silent in ((500_000, 0.04), (2_000_000, 0.01), (1_000_000, 0.1))
        for name, sent in (("allreduce", 4.0 * weights), ("averaging", 0.8 * weights), ("threshold", 3e4))
    ]
    fit = fitted(cases)
    assert fit.latency == pytest.approx(latency)
    assert fit.byte == pytest.approx(byte)
    assert fit.handling == pytest.approx(handling)
    assert fit.waiting == pytest.approx(0.05)
    assert fit.predicted == pytest.approx([case.seconds for case in cases])


def test_a_core_has_the_latency_and_bytes_of_the_fastest_network_less_its_bits() -> None:
    fit = Fitted({"100mbit": 3e-4, "10gbit": 1e-4}, {"100mbit": 9e-8, "10gbit": 1.5e-9}, 0.03, {"allreduce": 1e-9}, [])
    worker = core(fit, 5e10, 0.01)
    assert (worker.latency, worker.byte, worker.waiting) == (1e-4, pytest.approx(0.7e-9), 0.03)


# Its document


def test_blocks_of_a_document_are_replaced_and_the_rest_stays() -> None:
    text = "a\n<!-- one -->\nold\n<!-- / -->\nb\n<!-- two x -->\n<!-- / -->\n"
    once = refreshed(text, {"one": "1", "two x": "2"})
    assert once == "a\n<!-- one -->\n\n1\n\n<!-- / -->\nb\n<!-- two x -->\n\n2\n\n<!-- / -->\n"
    assert refreshed(once, {"one": "1", "two x": "2"}) == once


def test_the_document_tells_what_its_measurements_come_to() -> None:
    figures = json.loads((DOCS / "scaling.json").read_text())["figures"]
    document = (DOCS / "scaling.md").read_text()
    tables = exchange_report.blocks(figures)
    assert all(f"<!-- {name} -->" in document for name in tables)
    assert refreshed(document, tables) == document


# Figures


def test_ratios_are_of_time_beyond_a_silent_step() -> None:
    times = {"silent": 10.0, "allreduce": 30.0, "averaging": 14.0, "averaging_momentum": 18.0}
    figures = {f"1gbit_cnn_{name}_ms": value for name, value in times.items()}
    for name, sent, accuracy in (("allreduce", 32.0, 0.9), ("threshold_bitmap", 2.0, 0.89), ("threshold", 1.0, 0.91)):
        figures |= {f"learn_{name}_bytes": sent, f"learn_{name}_accuracy": accuracy}
    found = exchange.ratios(figures)
    assert found["averaging_exchange_ratio"] == pytest.approx(4 / 20)
    assert found["averaging_momentum_exchange_ratio"] == pytest.approx(8 / 20)
    assert found["threshold_bytes_ratio"] == pytest.approx(1 / 16)
    assert found["threshold_sparse_bytes_ratio"] == pytest.approx(1 / 32)
    assert found["threshold_accuracy_gap"] == pytest.approx(0.01)


# Cases, here with both workers in one process


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Rows of a small model."""
    random = np.random.default_rng(3)
    for split, rows in (("train", 40), ("test", 11)):
        images = random.integers(0, 256, (rows, 4, 4, 1), np.uint8)
        write_rows(tmp_path, "small", split, images, random.integers(0, 3, rows))
    small = Model(Network([Flatten(), Dense(3)], input_shape=(4, 4, 1)), 8, 1e-5)
    monkeypatch.setitem(MODELS, "small", lambda: small)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("silent", 0.0),
        ("allreduce", 4.0 * (51 + 3)),  # all weights and three totals, to one other worker
        ("sharded", 4.0 * (24 + 2 + 3) + 4.0 * (24 + 2)),  # half of 48 and of 3 weights each, and the totals once
        ("averaging", 4.0 * (51 + 3) / 5),
    ],
)
def test_a_turn_tells_the_bytes_that_a_worker_sends_in_a_step(name: str, expected: float, folder: Path) -> None:
    mesh = Mesh(np.array(jax.devices()[:2]), (WORKERS,))
    turn = Stepper("small", name, mesh, 0, folder, steps=5).turn()
    assert turn["bytes"] == pytest.approx(expected)
    assert turn["ms"] > 0


def test_a_probe_tells_the_bytes_of_an_all_reduce() -> None:
    turn = Prober(1024, Mesh(np.array(jax.devices()[:2]), (WORKERS,))).turn()
    assert turn["bytes"] == 1024
    assert turn["ms"] > 0


def test_two_workers_step_and_learn_over_the_loopback(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    for split, rows in (("train", 260), ("test", 11)):
        images = random.integers(0, 256, (rows, 28, 28, 1), np.uint8)
        write_rows(tmp_path, "mlp", split, images, random.integers(0, 10, rows))
    with exchange.pair("learn", LOOPBACK, [["mlp", "allreduce"]], tmp_path, epochs=1) as processes:
        (case,) = exchange.asked(processes, 60)
    assert 0 <= case["accuracy"] <= 1
    # The rows that the gradient of the first layer consists of, and the second layer: less than all weights.
    assert 0 < case["bytes"] < 4 * 784 * 1024


# The network


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Commands that would have been run."""
    told: list[str] = []
    monkeypatch.setattr(exchange_link, "_run", lambda command: told.append(" ".join(command)))
    return told


def made_and_removed(told: list[str]) -> tuple[set[str], set[str]]:
    """Names of namespaces."""
    words = [line.split() for line in told]
    added, deleted = ({line[3] for line in words if line[:3] == ["ip", "netns", what]} for what in ("add", "delete"))
    return added, deleted


def test_a_network_is_removed_when_what_it_was_for_fails(run: list[str]) -> None:
    with pytest.raises(RuntimeError, match="no luck"), link("1gbit"):
        added, deleted = made_and_removed(run)
        assert len(added) == 2 and not deleted
        raise RuntimeError("no luck")
    added, deleted = made_and_removed(run)
    assert added == deleted


def test_a_network_that_cannot_be_made_whole_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def failing(command: list[str]) -> None:
        told.append(" ".join(command))
        if command[:2] == ["ip", "link"]:
            raise LinkError("not permitted")

    monkeypatch.setattr(exchange_link, "_run", failing)
    with pytest.raises(LinkError, match="not permitted"), link("1gbit"):
        pass
    added, deleted = made_and_removed(told)
    assert added == deleted and len(added) == 2


def test_a_network_is_removed_when_the_benchmark_is_told_to_end(run: list[str]) -> None:
    before = signal.signal(signal.SIGTERM, exchange.ended)
    try:
        with pytest.raises(SystemExit) as left, link("1gbit"):
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 5)  # until the handler has run
    finally:
        signal.signal(signal.SIGTERM, before)
    assert left.value.code == 128 + signal.SIGTERM
    added, deleted = made_and_removed(run)
    assert added == deleted


def test_without_delays_there_still_is_a_network_and_a_note(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_netem(command: list[str]) -> None:
        if "netem" in command:
            raise LinkError("Specified qdisc kind is unknown.")

    monkeypatch.setattr(exchange_link, "_run", without_netem)
    with link("100mbit") as ends:
        assert ends == places(os.getpid())
    assert "100mbit: rate alone, no delay: Specified qdisc kind is unknown." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "rate", "burst"), [("100mbit", "100000000bit", 16384), ("10gbit", "10000000000bit", 125000)]
)
def test_both_ends_have_the_rate_and_a_burst_that_saves_up_little(name: str, rate: str, burst: int) -> None:
    limits = [line for line in exchange_link.commands(places(7), name) if line[0] == "tc"]
    assert [line[2] for line in limits] == ["sparkdl-7-a", "sparkdl-7-b"]
    for line in limits:
        assert line[line.index("rate") + 1] == rate
        assert line[line.index("burst") + 1] == str(burst)


def test_where_no_network_can_be_made_the_loopback_is_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refused(command: list[str]) -> None:
        raise LinkError("Operation not permitted")

    monkeypatch.setattr(exchange_link, "_run", refused)
    monkeypatch.setattr(exchange, "write_data", lambda *_: None)
    monkeypatch.setattr(exchange, "learned", lambda ends, *_: {"ends": ends})
    monkeypatch.setattr(exchange, "stepped", lambda network, ends, *_: {network: ends})
    monkeypatch.setattr(exchange, "ratios", lambda figures: {})
    monkeypatch.setattr(sys, "argv", ["exchange.py", "--quick"])
    figures: dict[str, Any] = exchange.measured(exchange.parsed(), tmp_path)
    assert figures == {"ends": LOOPBACK, "loopback": LOOPBACK}
    assert (
        "1gbit is left out, for this machine does not let us make it: Operation not permitted"
        in capsys.readouterr().out
    )
