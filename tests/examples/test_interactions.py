import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from interactions import MINIMUM, Interactions, read_log, split_by_time, synthetic_log

from tests.support.applies import applies_if

RETAIL = Path(__file__).resolve().parents[3] / "shared/data/online_retail_sample.csv"
PLAIN = [(f"u{n % 4}", f"i{n % 7}", 1000 + n) for n in range(MINIMUM)]


def rows_of(log):
    return list(zip(log.user_ids[log.users], log.item_ids[log.items], log.times, strict=True))


def written(path, rows, header=("user", "item", "timestamp"), delimiter=","):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, delimiter=delimiter).writerows([header, *rows])
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_a_csv_file_is_read_in_the_order_of_time(tmp_path, separator):
    path = written(tmp_path / "log", PLAIN[::-1], delimiter=separator)
    log, left_out = read_log(path)
    assert (rows_of(log), left_out) == (PLAIN, 0)
    assert (log.user_ids[log.users[0]], len(log)) == ("u0", MINIMUM)


def test_columns_are_named_and_fields_are_quoted(tmp_path):
    rows = [(time, f'{user}, "né"\n', item, "rest") for user, item, time in PLAIN]
    path = written(tmp_path / "log", rows, ("When", "Who", "What", "more"))
    log, _ = read_log(path, {"user": "Who", "item": "What", "time": "When"})
    assert rows_of(log) == [(f'{user}, "né"', item, time) for user, item, time in PLAIN]


def test_ids_that_are_floats_are_whole_numbers_and_lines_without_a_field_are_counted(tmp_path):
    rows = [("17850.0", "85123A", 5), ("", "i", 1), ("u", " ", 1), ("u", "i", ""), *PLAIN]
    path = written(tmp_path / "log", rows)
    path.write_text(f"\ufeff{path.read_text()}\nu,i\n\n")
    log, left_out = read_log(path)
    assert left_out == 4
    assert rows_of(log)[0] == ("17850", "85123A", 5)


@pytest.mark.parametrize(
    ("text", "seconds", "form"),
    [
        ("1291190400", 1291190400, None),
        ("1291190400.7", 1291190400, None),
        ("2010-12-01 08:00:00", 1291190400, None),
        ("2010-12-01T08:00:00Z", 1291190400, None),
        ("2010-12-01T09:00:00+01:00", 1291190400, None),
        ("12/1/2010 8:00", 1291190400, "%m/%d/%Y %H:%M"),
    ],
)
def test_times_are_numbers_iso_8601_or_of_a_format(tmp_path, text, seconds, form):
    rows = [(user, item, text) for user, item, _ in PLAIN]
    log, _ = read_log(written(tmp_path / "log", rows), time_format=form)
    assert set(log.times.tolist()) == {seconds}


@pytest.mark.parametrize("separator", ["\t", "::"])
def test_movielens_files_are_recognised(tmp_path, separator):
    lines = [separator.join([str(n % 3), str(n), "4", str(900 - n)]) for n in range(30)]
    path = tmp_path / "log"
    path.write_text("\n".join(lines) + "\n\n")
    log, left_out = read_log(path)
    assert (rows_of(log)[0], len(log), left_out) == (("2", "29", 871), 30, 0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "user column"),
        ("user,item,timestamp\n", "at least 20 interactions"),
        ("who,item,timestamp\nu,i,1\n", "--user-column.*columns who, item, timestamp"),
        ("user,item,time\n" + "u,i,1\n" * 20 + "u,i,noon\n", "--time-format.*'noon'"),
        ("user,item,time\n" + "u,i,1\n" * 20 + "u,i,inf\n", "--time-format.*'inf'"),
        ("user,item,time\n" + "u,i,1\n" * 20 + f"u,i,{'9' * 19}\n", "--time-format.*'9{19}'"),
    ],
)
def test_another_file_is_refused_with_the_remedy(tmp_path, content, message):
    path = tmp_path / "log"
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_log(path)


@applies_if(RETAIL.exists(), "the retail sample beside the checkout")
def test_the_retail_sample_is_read_without_options():
    log, left_out = read_log(RETAIL)
    assert (len(log), left_out) == (7709, 2291)
    assert {"17850"} <= set(log.user_ids)
    assert {"85123A"} <= set(log.item_ids)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from("xyz"), st.integers(0, 9)), min_size=1
    )
)
def test_all_that_is_tested_is_later_than_all_that_is_learned_and_new(rows):
    log = Interactions.from_ids(*zip(*rows, strict=True))
    try:
        train, test = split_by_time(log)
    except ValueError:  # there is nothing to test
        assert len(set(log.times)) < 5 or len(set(log.pairs())) < len(log)
        return
    assert train.times.max() < test.times.min()
    learned, tested = ({row[:2] for row in rows_of(part)} for part in (train, test))
    assert len(tested) == len(test)
    cut = train.times.max()
    assert tested == {row[:2] for row in rows if row[2] > cut} - learned
    assert len(train) == sum(row[2] <= cut for row in rows)


def test_the_last_fifth_is_tested():
    log = Interactions.from_ids([f"u{n}" for n in range(100)], ["i"] * 100, range(100))
    assert [len(part) for part in split_by_time(log)] == [80, 20]


def test_a_synthetic_log_has_frequent_and_rare_ids_tastes_and_newcomers():
    log, again = (synthetic_log(3, num_events=20_000) for _ in range(2))
    assert rows_of(log) == rows_of(again) != rows_of(synthetic_log(4, num_events=20_000))
    assert len(np.unique(log.pairs())) == len(log) > 15_000
    counts = np.sort(np.bincount(log.users))
    assert counts[-400:].sum() > 0.25 * len(log)
    train, test = split_by_time(log)
    assert 0.01 < 1 - np.isin(test.users, train.users).mean() < 0.5
    genres = np.char.lstrip(log.item_ids[log.items], "i").astype(int) % 20
    favourite = np.zeros([len(log.user_ids), 20])
    np.add.at(favourite, (log.users, genres), 1)
    active = favourite[favourite.sum(1) > 20]
    assert (active.max(1) / active.sum(1)).mean() > 0.4  # a twentieth, if there were no tastes
