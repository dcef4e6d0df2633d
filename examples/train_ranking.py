"""Trains a ranking model on a log of interactions, measures it and exports it for serving.

python examples/train_ranking.py                       # a synthetic log
python examples/train_ranking.py --data ratings.dat    # MovieLens
python examples/train_ranking.py --data sales.csv --user-column buyer --item-column sku
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
from interactions import Interactions, read_log, split_by_time, synthetic_log
from numpy.typing import NDArray

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

_DESCRIPTION = """\
Learns from a log of who took what and when to rank items for users.

The log is split by time: the first four fifths train the model, the rest tests it. Users and items
that occur only in the last fifth are scored too. A baseline, which recommends the most popular
items to everyone, is measured in the same way. The result is a SavedModel with its embedding
tables, ready for `python -m server`.
"""
_EPILOG = """\
supported logs:
  Text with a header and a user, an item and a time column (numbers, ISO 8601, or --time-format).
  The separator is a comma, semicolon, tab or "|".
  Common names (user_id, CustomerID, movieId, timestamp, ...) are detected without the options.
  MovieLens u.data and ratings.dat are recognised. Every rating counts as an interaction. Lines
  without a user, item or time are skipped and counted.

measures, means over users:
  AUC        chance that an item the user took after the split ranks above another item
  recall@20  fraction of the items the user took after the split among the 20 highest scores
  Items that the user took before the split are not ranked.

--checkpoint-dir DIR saves after each epoch. The same command continues there after a stop, and
gives the same result as a run that was not stopped.
"""
LIST_LENGTH = 20
NEGATIVES = 4  # per interaction
_DRAWS = 20
#: Scores the items of a log: users `[n]` in, scores `[n, num_items]` out.
Scorer = Callable[[NDArray[np.int64]], NDArray[np.float32]]


def build_model(dim: int, seed: int = 0, optimizer=None, slot_dtype=None):  # noqa: ANN001, ANN201
    """Builds and compiles the model: the similarity of a user's and an item's row.

    The inputs are the ids `user_id` and `item_id`, strings `[n]`. The output `[n]` is a score
    between 0 and 1. The tables are named `user` and `item`. There is no vocabulary and no number of
    rows: an id gets its row in the first training step that contains it.

    Args:
        dim: Length of a user's row. An item's row has one more number, its popularity.
        seed: Seed of the initial rows.
        optimizer: A Keras optimizer; None for Adam.
        slot_dtype: Dtype of the optimizer's slots; None for the dtype of the rows.
    """
    import keras
    import tensorflow as tf

    import de_core as de

    users, items = (
        de.layers.Embedding(
            width,
            key_dtype=tf.string,
            initializer=keras.initializers.RandomNormal(stddev=0.02, seed=seed + number),
            slot_dtype=slot_dtype,
            name=name,
        )
        for number, (name, width) in enumerate([("user", dim), ("item", dim + 1)])
    )
    user_id = keras.Input(shape=(), dtype="string", name="user_id")
    item_id = keras.Input(shape=(), dtype="string", name="item_id")
    item = items(item_id)
    likeness = keras.layers.Dense(1, kernel_initializer="ones", name="likeness")
    logit = likeness(users(user_id) * item[:, :-1])[:, 0] + item[:, -1]
    score = keras.layers.Activation("sigmoid", name="score")(logit)
    model = keras.Model({"user_id": user_id, "item_id": item_id}, score, name="ranking")
    optimizer = optimizer or keras.optimizers.Adam(0.01)
    model.compile(de.DynamicEmbeddingOptimizer(optimizer), "binary_crossentropy")
    return model


def positions(
    train: Interactions, batch_size: int, seed: int, epoch: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]]:
    """Yields the batches of an epoch: positions of users and items, and labels, `[n]` each.

    Each interaction comes with negatives: training items, drawn uniformly, that the user did not
    take in training. The order and the negatives depend only on the seed and the epoch.
    """
    rng = np.random.default_rng([seed, epoch])
    items, pairs = np.unique(train.items), np.unique(train.pairs())
    order = rng.permutation(len(train))
    step = max(1, batch_size // (1 + NEGATIVES))
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        users = train.users[rows]
        others = np.repeat(users, NEGATIVES)
        drawn = rng.choice(items, len(others))
        for _ in range(_DRAWS):
            wanted = others * len(train.item_ids) + drawn
            taken = pairs[np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)] == wanted
            if not taken.any():
                break
            drawn[taken] = rng.choice(items, taken.sum())
        else:  # perhaps users have all items
            others, drawn = others[~taken], drawn[~taken]
        yield (
            np.concatenate([users, others]),
            np.concatenate([train.items[rows], drawn]),
            np.repeat(np.float32([1, 0]), [len(users), len(others)]),
        )


def batches(train: Interactions, batch_size: int, seed: int, epoch: int = 0):  # noqa: ANN201
    """Returns a dataset of an epoch: `{"user_id": [n], "item_id": [n]}` and labels `[n]`."""
    import tensorflow as tf

    user_ids, item_ids = tf.constant(train.user_ids), tf.constant(train.item_ids)

    def named(users: tf.Tensor, items: tf.Tensor, labels: tf.Tensor) -> tuple[dict, tf.Tensor]:
        ids = {"user_id": tf.gather(user_ids, users), "item_id": tf.gather(item_ids, items)}
        return ids, labels

    specs = tuple(tf.TensorSpec([None], dtype) for dtype in (tf.int64, tf.int64, tf.float32))
    made = tf.data.Dataset.from_generator(
        lambda: positions(train, batch_size, seed, epoch), output_signature=specs
    )
    steps = -(-len(train) // max(1, batch_size // (1 + NEGATIVES)))
    return made.map(named).apply(tf.data.experimental.assert_cardinality(steps))


def train_model(model, train: Interactions, options: argparse.Namespace) -> list[float]:  # noqa: ANN001
    """Trains, and saves each epoch if there is a folder for it. Returns the epochs' losses."""
    import tensorflow as tf

    import de_core as de

    losses, done, manager = [], tf.Variable(0, trainable=False), None
    if options.checkpoint_dir is not None:
        model.optimizer.build(model.trainable_variables)  # what is restored must be there
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer, done=done)
        manager = de.checkpoint.Manager(checkpoint, options.checkpoint_dir, max_to_keep=2)
        if (found := manager.restore()) is not None:
            print(f"Continues from {found}.")
    for epoch in range(int(done), options.epochs):
        print(f"Epoch {epoch + 1} of {options.epochs}", flush=True)
        data = batches(train, options.batch_size, options.seed, epoch)
        bar = 1 if sys.stdout.isatty() else 2
        losses += model.fit(data, shuffle=False, verbose=bar).history["loss"]
        done.assign(epoch + 1)
        if manager is not None:
            manager.save()
    return losses


def scorer_of(model, log: Interactions) -> Scorer:  # noqa: ANN001
    """Returns a function that scores all items with one matrix product, without the sigmoid."""
    users, items = model.get_layer("user"), model.get_layer("item")(log.item_ids).numpy()
    weights, offset = model.get_layer("likeness").get_weights()
    matrix = (items[:, :-1] * weights[:, 0]).T
    return lambda batch: users(log.user_ids[batch]).numpy() @ matrix + items[:, -1] + offset


def popularity_of(train: Interactions) -> Scorer:
    """Returns a function that scores an item by its number of training interactions."""
    counts = np.bincount(train.items, minlength=len(train.item_ids)).astype(np.float32)
    return lambda batch: np.broadcast_to(counts, (len(batch), len(counts)))


def items_of(log: Interactions, users: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Returns the items of each user."""
    order = np.argsort(log.users, kind="stable")
    bounds = np.searchsorted(log.users[order], [users, users + 1])
    return [log.items[order[first:last]] for first, last in bounds.T]


def auc_and_recall(
    scores: NDArray[np.float32], positive: NDArray[np.bool_], negative: NDArray[np.bool_]
) -> tuple[float, float]:
    """Returns a user's AUC, in which ties count half, and the recall of the 20 highest scores.

    Args:
        scores: `[items]`.
        positive: True for the items that the user took, `[items]`.
        negative: True for the other items to rank, `[items]`.

    Returns:
        Two numbers; NaN without positives or without negatives.
    """
    if not positive.any() or not negative.any():
        return np.nan, np.nan
    own, others = scores[positive], np.sort(scores[negative])
    below = np.searchsorted(others, own, "left") + np.searchsorted(others, own, "right")
    ranked = np.where(positive | negative, scores, -np.inf)
    top = np.argsort(-ranked, kind="stable")[:LIST_LENGTH]
    return below.mean() / 2 / len(others), positive[top].sum() / len(own)


def evaluate(
    train: Interactions, test: Interactions, scorer: Scorer, max_users: int = 5000
) -> NDArray[np.float64]:
    """Ranks every item of the log for users of the test, except their training items.

    Returns:
        Means over users: AUC, recall@20, and both over known users and items only, `[4]`.
    """
    users = np.unique(test.users)
    if len(users) > max_users:
        users = np.sort(np.random.default_rng(0).choice(users, max_users, replace=False))
    known_item = np.isin(np.arange(len(train.item_ids)), train.items)
    found, learned_of, took_of = [], items_of(train, users), items_of(test, users)
    for start in range(0, len(users), 256):
        for place, scores in enumerate(scorer(users[start : start + 256]), start):
            took, learned = np.zeros((2, len(known_item)), bool)
            took[took_of[place]] = learned[learned_of[place]] = True
            known = took & known_item & learned.any()
            measures = [auc_and_recall(scores, each, ~learned & ~took) for each in (took, known)]
            found.append(np.ravel(measures))
    return np.nanmean(found, axis=0)


def run(log: Interactions, options: argparse.Namespace) -> tuple[str, str]:
    """Trains on the first part of a log, measures on the rest and exports.

    Returns:
        A user and an item that the model learned.
    """
    train, test = split_by_time(log)
    print(f"{len(train):,} interactions to learn from, {len(test):,} to test on", flush=True)
    import keras

    import de_core as de

    keras.utils.set_random_seed(options.seed)
    model = build_model(options.dim, options.seed)
    train_model(model, train, options)
    print(f"{'':28}{'AUC':>8}{f'recall@{LIST_LENGTH}':>12}")
    for name, scorer in (("model", scorer_of(model, log)), ("popularity", popularity_of(train))):
        auc, recall, known_auc, known_recall = evaluate(train, test, scorer)
        print(f"{name:28}{auc:8.3f}{recall:12.3f}")
        print(f"{name + ', known ids only':28}{known_auc:8.3f}{known_recall:12.3f}")
    new_user, new_item = ~np.isin(test.users, train.users), ~np.isin(test.items, train.items)
    print(
        f"Training never saw the users of {new_user.mean():.0%} and the items of "
        f"{new_item.mean():.0%} of the test interactions: these have no row yet."
    )
    rows = {name: int(model.get_layer(name).table.size()) for name in ("user", "item")}
    print(f"Rows learned: {rows['user']:,} of table user and {rows['item']:,} of table item.")
    print(f"SavedModel: {de.export(model, str(options.out))}")
    return str(log.user_ids[train.users[-1]]), str(log.item_ids[train.items[-1]])


def parser() -> argparse.ArgumentParser:
    """Returns the parser of the command line."""
    result = argparse.ArgumentParser(
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    log = result.add_argument_group("the log")
    log.add_argument("--data", type=Path, metavar="FILE", help="default: a synthetic log")
    for what in ("user", "item", "time"):
        log.add_argument(f"--{what}-column", metavar="NAME", help=f"column of {what}s")
    log.add_argument(
        "--time-format", metavar="FORMAT", help="format of times, such as %%m/%%d/%%Y %%H:%%M"
    )
    log.add_argument("--encoding", default="utf-8-sig", help="encoding of the text (utf-8)")
    for option, default, lowest, highest, text in (
        ("--events", 150_000, 100, 100_000_000, "length of the synthetic log"),
        ("--epochs", 5, 1, 10_000, "passes over the training interactions"),
        ("--dim", 16, 1, 4095, "numbers in a user's row; an item's has one more"),
        ("--batch-size", 2048, 1, 1_000_000, "examples per step, negatives included"),
        ("--seed", 0, 0, 2**31 - 2, "random seed"),
    ):
        result.add_argument(
            option,
            type=_between(lowest, highest),
            default=default,
            metavar="N",
            help=f"{text} (%(default)s)",
        )
    files = result.add_argument_group("what is written")
    files.add_argument(
        "--out",
        type=Path,
        default=Path("build/models/ranking"),
        metavar="DIR",
        help="folder for the numbered SavedModel (%(default)s)",
    )
    files.add_argument("--checkpoint-dir", type=Path, metavar="DIR", help="save after each epoch")
    return result


def _between(lowest: int, highest: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text) if text.lstrip("+-").isdecimal() else None
        if value is None or not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {lowest} to {highest}. Received: {text!r}"
            )
        return value

    return whole_number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit code."""
    options = parser().parse_args(arguments)
    try:
        if options.data is None:
            log = synthetic_log(options.seed, num_events=options.events)
            print(f"Log: synthetic, seed {options.seed}, {len(log):,} interactions.")
        else:
            columns = {
                each: getattr(options, f"{each}_column") for each in ("user", "item", "time")
            }
            log, left_out = read_log(options.data, columns, options.time_format, options.encoding)
            print(f"Log: {options.data}, {len(log):,} interactions, {left_out:,} lines left out.")
        options.out.mkdir(parents=True, exist_ok=True)  # fails before the training, not after it
        run(log, options)
    except (OSError, ValueError, LookupError, csv.Error) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
