"""Tables of the exchange benchmark: what was measured, and the cost model fitted to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import numpy as np
from contestants.exchange_cases import MODELS
from contestants.exchange_link import RATES
from contestants.exchange_model import Fitted, Observation, Worker, core, fitted
from contestants.exchange_paper import GPU, best_counts_table, fastest, forms_table, growing, paper_table, staying
from contestants.exchange_tables import NAMES, TALKING, table

Figures = Mapping[str, float]
NETWORKS = (*RATES, "loopback")
PROBED = (4, 1 << 14, 1 << 18, 1 << 22)  # bytes


@cache
def _measured_sizes(model: str) -> tuple[int, float, int]:
    chosen = MODELS[model]()
    return chosen.weights, chosen.operations, chosen.batch


def observations(figures: Figures) -> list[Observation]:
    """The cases among the figures."""
    found = [
        Observation(
            network, f"{size:,} bytes", "allreduce", 0, float(size), 0.0, figures[f"{network}_probe_{size}_ms"] / 1e3
        )
        for network in NETWORKS
        for size in PROBED
        if f"{network}_probe_{size}_ms" in figures
    ]
    for network in NETWORKS:
        for model in MODELS:
            for exchange in TALKING:
                case = f"{network}_{model}_{exchange}"
                if f"{case}_ms" in figures:
                    silent, seconds = (figures[f"{network}_{model}_{name}_ms"] / 1e3 for name in ("silent", exchange))
                    weights, sent = _measured_sizes(model)[0], figures[f"{case}_bytes"]
                    found.append(Observation(network, model, exchange, weights, sent, silent, seconds))
    return found


def workers_of(figures: Figures, fit: Fitted) -> dict[str, Worker]:
    """The kinds of workers on paper: a core like those measured, and an assumed GPU."""
    rates = [
        operations * batch / 2 / figures[f"{network}_{model}_silent_ms"] * 1e3
        for network in NETWORKS
        for model in ("cnn", "cifar10")
        if f"{network}_{model}_silent_ms" in figures
        for _, operations, batch in [_measured_sizes(model)]
    ]
    sparse = figures["threshold_plain_ratio"]
    return {"core": core(fit, float(np.median(rates)), sparse), "GPU": replace(GPU, sparse=sparse)}


def measured_table(figures: Figures, model: str) -> str:
    """Milliseconds of a step, the exchange's share, and MB a step, by exchange and network."""
    networks = [name for name in NETWORKS if f"{name}_{model}_silent_ms" in figures]
    if not networks:
        return "Not measured."

    def cell(network: str, exchange: str) -> str:
        case = f"{network}_{model}_{exchange}"
        if f"{case}_ms" not in figures:
            return "-"
        share = max(0.0, 1 - figures[f"{network}_{model}_silent_ms"] / figures[f"{case}_ms"])
        return f"{figures[f'{case}_ms']:.1f}" + (f" ({share:.0%})" if exchange != "silent" else "")

    def sent(exchange: str, kind: str) -> str:
        counts = [figures.get(f"{network}_{model}_{exchange}_{kind}") for network in networks]
        return "-" if counts[0] is None else f"{counts[0] / 1e6:.3f}"

    rows = [
        [NAMES[name], *(cell(network, name) for network in networks), sent(name, "bytes"), sent(name, "wire")]
        for name in ("silent", *TALKING)
        if any(f"{network}_{model}_{name}_ms" in figures for network in networks)
    ]
    return table(["exchange", *networks, "MB a step", "MB on the wire"], rows)


def learned_table(figures: Figures) -> str:
    """Accuracy on test rows after equal epochs, and MB a step over all of them."""
    rows = [
        [NAMES[name], f"{figures[f'learn_{name}_accuracy']:.4f}", f"{figures[f'learn_{name}_bytes'] / 1e6:.3f}"]
        for name in TALKING
        if f"learn_{name}_accuracy" in figures
    ]
    return table(["exchange", "test accuracy", "MB a step"], rows)


def winners_table(figures: Figures) -> str:
    """Which exchange had the shortest step, by model and network."""
    rows = []
    for model in MODELS:
        row = []
        for network in NETWORKS:
            times = {name: figures.get(f"{network}_{model}_{name}_ms") for name in TALKING}
            known = {name: value for name, value in times.items() if value is not None}
            if known:
                best = min(known, key=lambda name: known[name])
                row.append(f"{NAMES[best]}, {known[best] / known['allreduce']:.2f} of AllReduce's")
        if row:
            rows.append([model, *row])
    present = [name for name in NETWORKS if any(f"{name}_{model}_silent_ms" in figures for model in MODELS)]
    return table(["network trained", *present], rows)


def constants_table(fit: Fitted, kinds: Mapping[str, Worker]) -> str:
    """What was fitted, and its errors."""
    wires = [
        [network, f"{fit.latency[network] * 1e6:.0f}", f"{8e-9 / fit.byte[network]:.2f}" if fit.byte[network] else "-"]
        for network in fit.latency
    ]
    handling = [[NAMES[name], f"{seconds * 1e9:.2f}"] for name, seconds in fit.handling.items()]
    own = kinds["core"]
    return "\n\n".join(
        [
            table(["network", "latency of a round, µs", "Gbit/s"], wires),
            table(["exchange", "handling, ns a weight"], handling),
            table(
                ["worker", "GFLOP/s", "latency, µs", "ns a byte beside the network", "waiting, of compute"],
                [
                    [
                        name,
                        f"{kind.operations / 1e9:,.0f}",
                        f"{kind.latency * 1e6:.0f}",
                        f"{kind.byte * 1e9:.2f}",
                        f"{kind.waiting:.1%}",
                    ]
                    for name, kind in kinds.items()
                ],
            ),
            f"A sparse message took {own.sparse:.4f} of a plain gradient's bytes.",
        ]
    )


def residuals_table(cases: list[Observation], fit: Fitted) -> str:
    """Measured and predicted times of the steps, worst first."""
    errors = [predicted / case.seconds - 1 for case, predicted in zip(cases, fit.predicted, strict=True)]
    order = sorted(range(len(cases)), key=lambda index: -abs(errors[index]))
    rows = [
        [
            cases[index].network,
            cases[index].model,
            NAMES[cases[index].exchange],
            f"{cases[index].seconds * 1e3:.1f}",
            f"{fit.predicted[index] * 1e3:.1f}",
            f"{errors[index]:+.0%}",
        ]
        for index in order[:10]
    ]
    spread = float(np.sqrt(np.mean(np.square(errors))))
    told = f"Root mean square of the relative error of {len(cases)} steps' times: {spread:.1%}; the ten worst:"
    return told + "\n\n" + table(["network", "trained", "exchange", "ms", "predicted", "error"], rows)


def blocks(figures: Figures) -> dict[str, str]:
    """All tables by the name that they have in docs/scaling.md."""
    cases = observations(figures)
    fit = fitted(cases)
    kinds = workers_of(figures, fit)
    found = {f"measured {model}": measured_table(figures, model) for model in MODELS}
    return found | {
        "learned": learned_table(figures),
        "winners": winners_table(figures),
        "constants": constants_table(fit, kinds),
        "residuals": residuals_table(cases, fit),
        "growing": paper_table(kinds, growing),
        "staying": paper_table(kinds, staying),
        "best counts": best_counts_table(kinds),
        "forms": forms_table(kinds),
        "fastest": paper_table(kinds, fastest),
    }
