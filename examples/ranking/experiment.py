"""The whole experiment: split, train, measure, export."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from pathlib import Path

import de_core as de
from ranking.evaluation import LIST_LENGTH, Limits, Popularity, Quality, evaluate, limits_of
from ranking.interactions import Interactions
from ranking.model import ModelScorer
from ranking.split import TimeSplit, split_by_time
from ranking.training import TrainingOptions, told_as, train


@dataclass(frozen=True)
class Outcome:
    """The results of an experiment.

    Attributes:
        model: quality of the model.
        baseline: quality of recommending the most popular items to everyone.
        limits: the best results that any model can reach on this log.
        rows: number of rows per table.
        saved_model: the directory of the exported version.
        known: a user and an item that the model learned, for example requests.
    """

    model: Quality
    baseline: Quality
    limits: Limits
    rows: dict[str, int]
    saved_model: Path
    known: tuple[str, str]

    def __str__(self) -> str:
        table = [f"{'':28}{'AUC':>8}{f'recall@{LIST_LENGTH}':>12}"]
        for name, quality in (("model", self.model), ("popularity baseline", self.baseline)):
            table.append(f"{name:28}{quality.auc:8.3f}{quality.recall:12.3f}")
        for name, quality in (("model", self.model), ("popularity", self.baseline)):
            label = f"{name}, known ids only"
            table.append(f"{label:28}{quality.known_auc:8.3f}{quality.known_recall:12.3f}")
        means = (
            f"Means over {self.model.users:,} users, {self.model.known_users:,} of them known "
            f"and with a known item. {self.limits}"
        )
        rows = " and ".join(f"{count:,} of table {name}" for name, count in self.rows.items())
        return "\n".join(
            [
                *table,
                textwrap.fill(means, 100),
                f"Rows learned: {rows}.",
                f"SavedModel: {self.saved_model}",
            ]
        )


def describe(split: TimeSplit) -> str:
    """Describes the split in one line."""
    log = split.train
    return (
        f"Split by time: {len(split.train):,} interactions to learn from, {len(split.test):,} to "
        f"test on ({split.repeats:,} repeats left out); "
        f"{len(log.user_ids):,} users and {len(log.item_ids):,} items in all."
    )


def run_experiment(log: Interactions, options: TrainingOptions, out: Path) -> Outcome:
    """Trains on the first part of `log`, measures on the rest and exports to `out`.

    Raises:
        DataError: the log cannot be split, or there is nothing to resume from.
    """
    split = split_by_time(log)
    print(describe(split), flush=True)
    model = train(split.train, options)
    quality = evaluate(split, ModelScorer(model, log), seed=options.seed)
    baseline = evaluate(split, Popularity(split.train), seed=options.seed)
    with told_as("--out must have room for the model.", out):
        saved_model = Path(de.export(model, str(out)))
    return Outcome(
        model=quality,
        baseline=baseline,
        limits=limits_of(split),
        rows={name: int(model.get_layer(name).table.size()) for name in ("user", "item")},
        saved_model=saved_model,
        known=(log.user_ids[split.train.users[-1]], log.item_ids[split.train.items[-1]]),
    )
