"""Trains a ranking model on a log of interactions, measures it and exports it for serving.

python examples/train_ranking.py # a synthetic log
python examples/train_ranking.py --data ratings.dat    # MovieLens
python examples/train_ranking.py --data sales.csv --user-column buyer --item-column sku
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from ranking.errors import DataError
from ranking.interactions import Interactions
from ranking.log_reader import LogFormat, read_log
from ranking.quiet import load_libraries
from ranking.synthetic_log import synthetic_log

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

measures:
  AUC        chance that an item the user took after the split ranks above another item
  recall@20  fraction of the items the user took after the split among the 20 highest scores
  Items that the user took before the split are not ranked. Both are means over users.

stop and resume:
  --checkpoint-dir DIR saves after each epoch. The same command with --resume continues from there
  and gives the same result as an uninterrupted run.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the example; returns the exit code."""
    options = _parser().parse_args(arguments)
    try:
        log = _log(options)
        _check_folder(options.out, "--out")
        if options.resume and options.checkpoint_dir is None:
            raise DataError("--resume needs the --checkpoint-dir of the run to continue.")
        if options.checkpoint_dir is not None:
            _check_folder(options.checkpoint_dir, "--checkpoint-dir")
        print(_train(log, options))
    except (DataError, ImportError) as error:
        print(f"{Path(__file__).name}: {error}", file=sys.stderr)
        return 2
    return 0


def _train(log: Interactions, options: argparse.Namespace) -> object:
    # Import now, because TensorFlow takes seconds to load and wrong options should fail at once.
    load_libraries()
    from ranking.experiment import run_experiment
    from ranking.training import TrainingOptions

    training = TrainingOptions(
        epochs=options.epochs,
        dim=options.dim,
        batch_size=options.batch_size,
        seed=options.seed,
        checkpoint_dir=options.checkpoint_dir,
        resume=options.resume,
    )
    return run_experiment(log, training, options.out)


def _log(options: argparse.Namespace) -> Interactions:
    if options.data is None:
        log = synthetic_log(options.seed, num_events=options.events)
        print(f"Log: synthetic, seed {options.seed}, {len(log):,} interactions.")
        return log
    form = LogFormat(
        user_column=options.user_column,
        item_column=options.item_column,
        time_column=options.time_column,
        time_format=options.time_format,
        encoding=options.encoding,
    )
    log, report = read_log(options.data, form)
    print(f"Log: {options.data}: {report}.")
    return log


def _check_folder(folder: Path, option: str) -> None:
    """Creates the folder now, so that an unwritable path fails before the training."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"{option} must be a folder that can be written. Received: {folder} ({error.strerror})."
        ) from error
    if not os.access(folder, os.W_OK):
        raise DataError(f"{option} must be a folder that can be written. Received: {folder}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    log = parser.add_argument_group("the log")
    log.add_argument(
        "--data", type=Path, metavar="FILE", help="the log; a synthetic log by default"
    )
    log.add_argument("--user-column", metavar="NAME", help="column of user ids")
    log.add_argument("--item-column", metavar="NAME", help="column of item ids")
    log.add_argument("--time-column", metavar="NAME", help="column of times")
    log.add_argument(
        "--time-format", metavar="FORMAT", help="format of times, such as %%m/%%d/%%Y %%H:%%M"
    )
    log.add_argument("--encoding", default="utf-8-sig", help="encoding of the text (utf-8)")
    log.add_argument(
        "--events",
        type=_between(100, 100_000_000),
        default=150_000,
        metavar="N",
        help="length of the synthetic log (%(default)s)",
    )
    model = parser.add_argument_group("the model")
    for option, default, highest, text in (
        ("--epochs", 5, 10_000, "passes over the training interactions"),
        ("--dim", 16, 4095, "numbers in a user's row; an item's has one more"),
        ("--batch-size", 2048, 1_000_000, "examples per step, negatives included"),
    ):
        model.add_argument(
            option,
            type=_between(1, highest),
            default=default,
            metavar="N",
            help=f"{text} (%(default)s)",
        )
    model.add_argument(
        "--seed",
        type=_between(0, 2**31 - 2),
        default=0,
        metavar="N",
        help="random seed (%(default)s)",
    )
    files = parser.add_argument_group("what is written")
    files.add_argument(
        "--out",
        type=Path,
        default=Path("build/models/ranking"),
        metavar="DIR",
        help="folder for the numbered SavedModel (%(default)s)",
    )
    files.add_argument("--checkpoint-dir", type=Path, metavar="DIR", help="save after each epoch")
    files.add_argument("--resume", action="store_true", help="continue from the last checkpoint")
    return parser


def _between(lowest: int, highest: int) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        value = int(text) if text.lstrip("+-").isdecimal() else None
        if value is None or not lowest <= value <= highest:
            raise argparse.ArgumentTypeError(
                f"must be a whole number from {lowest} to {highest}. Received: {text!r}"
            )
        return value

    return whole_number


if __name__ == "__main__":
    sys.exit(main())
