"""A character model on tinyshakespeare: two LSTMs of 256 through Spark with 2 workers, and in PyTorch.

    python benchmarks/characters.py [--quick] [--json FILE] [--data DIR] [--only NAMES] [--steps N] [--rounds N]
                                    [--learn UPDATES]

`models.char_rnn` of the 65 characters, rows of them and at every step the character after it, 64 rows a batch, Adam;
back-propagation is truncated at 64 steps, with an update after each, and the state goes on to the next.

- What is learned: the text in 64 rows side by side, one update after the other along them, by `DeepClassifier.fit`, and
  by PyTorch from equal weights on the same batches; both then score the last tenth of the text.
- `ours_fit_2` and `torchdistributor_fit_2`: an epoch of a fit on Spark with two workers, and two processes with DDP of
  32 rows each, one thread a process, which take turns in an order that rotates from round to round.

Figures: `characters_loss` and `characters_loss_torch`, nats a character of the text held out after `--learn` updates,
`characters_loss_over_torch` their ratio, `characters_training_loss` and `..._torch` the means while training;
`char_model_<name>_ms`, the median of an update's milliseconds, `char_model_fit_2_over_torchdistributor`, and
`char_model_whole_fit_2_over_torchdistributor`, of everything from the rows to the weights.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from contestants.characters_case import (
    BATCH,
    LENGTH,
    SEED,
    TRUNCATED,
    Cut,
    Text,
    cut,
    network_of,
    read_text,
    write_case,
)
from contestants.characters_ours import classifier, frame
from contestants.data import data_folder
from contestants.race import milliseconds, over_peers, race_options, take_turns
from contestants.roster import lacking
from contestants.turns import Contestant, ContestantError, started
from pyspark.sql import functions as F
from reporting import arguments, has_torch, write

from sparkdl.spark import local_session

BEGINNING, DRAWN, TEMPERATURE = "ROMEO:\n", 400, 0.8
ENTRIES = {
    "ours_fit_2": ("characters_ours:fit", "sparkdl"),
    "torchdistributor_fit_2": ("characters_torch:fit", "torch"),
}
RATIOS = {"fit_2_over_torchdistributor": ("ours_fit_2", ("torchdistributor_fit_2",))}


def lesson(text: Text, updates: int) -> dict[str, float]:
    """Learn as we do and as PyTorch does, print the losses and what the model writes; the figures."""
    train = cut(text.train, updates * TRUNCATED, BATCH)
    test = cut(text.test, 2 * LENGTH)
    figures, weights, sample = learned_by_ours(text, train, test)
    if has_torch():
        from contestants.characters_torch import learned

        while_training, held_out = learned(weights, train, test)
        figures |= {"characters_training_loss_torch": while_training, "characters_loss_torch": held_out}
        figures["characters_loss_over_torch"] = figures["characters_loss"] / held_out
    print(f"{train.labels.size:,} characters to train on in {updates} updates, {test.labels.size:,} held out")
    print(f"it writes: {BEGINNING}{sample}")
    return figures


def learned_by_ours(text: Text, train: Cut, test: Cut) -> tuple[dict[str, float], dict, str]:
    """Figures, the weights that it began with, and what the trained model writes."""
    session, entries = local_session("local[2]"), tuple(text.characters.entries)
    network = network_of(text.characters)
    rows = frame(session, train, entries)
    initial = classifier(network, 2, 0).fit(rows).weights
    model = classifier(network, 2, 1).fit(rows)
    held_out = model.score_rows(frame(session, test, entries)).agg(F.avg("loss")).first()[0]
    begun = session.createDataFrame([(BEGINNING,)], "features string")
    drawn = model.generate(begun, DRAWN, temperature=TEMPERATURE, seed=SEED).first()["generated"]
    session.stop()  # the contestants of the race have sessions of their own
    figures = {"characters_training_loss": model.summary.history[0].loss, "characters_loss": held_out}
    return figures, initial, "".join(entries[each] for each in drawn)


def race(text: Text, options: argparse.Namespace) -> dict[str, float]:
    """Everybody's turns, and their figures."""
    entered = []
    for name, (entry, package) in ENTRIES.items():
        settings = {"characters": len(text.characters)}
        contestant = Contestant(name, entry, 2, package=package, settings=settings)
        if options.only and name not in options.only:
            continue
        if reason := lacking(contestant):
            print(f"left out: {name}; {reason}")
        else:
            entered.append(contestant)
    if not entered:
        return {}
    with TemporaryDirectory(prefix="sparkdl-characters-", ignore_cleanup_errors=True) as folder:
        write_case(Path(folder), text)
        with started(entered, Path(folder), options.steps) as processes:
            turns = take_turns(processes, options.rounds, options.steps)
    times = {name: milliseconds(own) for name, own in turns.items()}
    medians = {name: statistics.median(values) for name, values in times.items()}
    walls = {name: statistics.median(turn["wall"] for turn in own) for name, own in turns.items()}
    print(f"{'':<28}{'ms an update':>13}{'min':>9}{'wall s':>9}{'loss':>9}")
    for name, values in times.items():
        print(f"{name:<28}{medians[name]:>13.1f}{min(values):>9.1f}{walls[name]:>9.1f}{turns[name][-1]['loss']:>9.4f}")
    figures = {f"char_model_{name}_ms": value for name, value in medians.items()}
    figures |= {f"char_model_{name}": value for name, value in over_peers(medians, RATIOS).items()}
    return figures | {f"char_model_whole_{name}": value for name, value in over_peers(walls, RATIOS).items()}


def main() -> None:
    """Learn, race, print, write."""
    options = race_options(
        arguments(__doc__),
        ENTRIES,
        steps=(1, 10),  # whose rows Spark divides as evenly as those of the whole text
        learn=(8, 200),
        lesson="updates to learn by, 0 for none",
        rounds=(1, 4),
        data="tinyshakespeare's input.txt",
    )
    directory = data_folder(options.data, "nothing is measured")
    if directory is None:
        return
    text, figures = read_text(directory), dict[str, float]()
    if options.learn:
        figures |= lesson(text, options.learn)
    try:
        figures |= race(text, options)
    except ContestantError as error:
        sys.exit(str(error))
    for name, value in figures.items():
        print(f"{name} {value:.4f}")
    write(options.json, figures)


if __name__ == "__main__":
    main()
