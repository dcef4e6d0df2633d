from pathlib import Path

import numpy as np
import pytest
from ranking.errors import DataError
from ranking.log_reader import MINIMUM, LogFormat, read_log

from tests.support.applies import applies_if

RETAIL = Path(__file__).resolve().parents[3] / "shared/data/online_retail_sample.csv"


def write_csv(folder, header, rows, **options):
    path = folder / "log.csv"
    path.write_text("\n".join([header, *rows]) + "\n", **options)
    return path


def rows_of(log):
    return list(
        zip(log.user_ids[log.users], log.item_ids[log.items], log.times.tolist(), strict=True)
    )


def plain_rows(count=MINIMUM):
    return [f"u{n % 4},i{n % 7},{1000 + n}" for n in range(count)]


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_csv_rows_come_back_in_order_of_time(tmp_path, separator):
    header, *rows = [row.replace(",", separator) for row in ["user,item,timestamp", *plain_rows()]]
    log, report = read_log(write_csv(tmp_path, header, rows[::-1]))
    assert rows_of(log) == [(f"u{n % 4}", f"i{n % 7}", 1000 + n) for n in range(MINIMUM)]
    assert report.lines == MINIMUM
    assert sum(report.left_out.values()) == 0


def test_columns_are_found_by_option_and_by_usual_name(tmp_path):
    rows = [f"{1000 + n};x;b{n};s" for n in range(MINIMUM)]
    path = write_csv(tmp_path, "InvoiceDate;colour;Buyer;StockCode", rows)
    log, report = read_log(path, LogFormat(user_column="Buyer"))
    assert rows_of(log)[3] == ("b3", "s", 1003)
    assert "Buyer, StockCode, InvoiceDate" in str(report)


def test_quoted_commas_and_line_breaks_stay_inside_a_field(tmp_path):
    rows = [f'u,"a, ""wide""\nmug {n}",{n}' for n in range(MINIMUM)]
    log, report = read_log(write_csv(tmp_path, "user,item,time", rows))
    assert rows_of(log)[5][1] == 'a, "wide"\nmug 5'
    assert report.lines == MINIMUM


def test_ids_written_as_floats_are_the_whole_numbers_they_are(tmp_path):
    rows = [*plain_rows(), "17850.0,85123A,1", "17850,22.50,2", "-3.00,1.0e3,3"]
    log, _ = read_log(write_csv(tmp_path, "user,item,timestamp", rows))
    assert rows_of(log)[:3] == [("17850", "85123A", 1), ("17850", "22.50", 2), ("-3", "1.0e3", 3)]


def test_lines_without_a_user_an_item_or_a_time_are_left_out_and_counted(tmp_path):
    rows = [*plain_rows(), ",i1,5", "  ,i1,6", "u1,,7", "u1,i1,", "u1"]
    log, report = read_log(write_csv(tmp_path, "user,item,timestamp", rows))
    assert len(log) == MINIMUM
    assert report.lines == MINIMUM + 5
    assert report.left_out == {"user": 2, "item": 2, "time": 1}
    assert "2 without user" in str(report)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2010-12-01 08:26:00", 1291191960),
        ("2010-12-01T08:26:00Z", 1291191960),
        ("2010-12-01T09:26:00+01:00", 1291191960),
        ("1291191960", 1291191960),
        ("1291191960.75", 1291191960),
    ],
)
def test_times_are_numbers_or_iso_8601(tmp_path, text, seconds):
    log, _ = read_log(write_csv(tmp_path, "user,item,time", [f"u,i{n},{text}" for n in range(20)]))
    assert log.times.tolist() == [seconds] * 20


def test_a_time_format_is_taken_as_given(tmp_path):
    path = write_csv(tmp_path, "user,item,time", [f"u,i{n},12/1/2010 8:26" for n in range(20)])
    log, _ = read_log(path, LogFormat(time_format="%m/%d/%Y %H:%M"))
    assert log.times[0] == 1291191960


def test_a_byte_order_mark_is_no_part_of_the_first_column(tmp_path):
    path = write_csv(tmp_path, "user,item,timestamp", plain_rows(), encoding="utf-8-sig")
    assert len(read_log(path)[0]) == MINIMUM


def test_ids_keep_letters_beyond_ascii(tmp_path):
    rows = [f"zoë,ítem{n},{n}" for n in range(MINIMUM)]
    path = write_csv(tmp_path, "user,item,timestamp", rows, encoding="latin-1")
    log, _ = read_log(path, LogFormat(encoding="latin-1"))
    assert rows_of(log)[0] == ("zoë", "ítem0", 0)
    with pytest.raises(DataError, match="--encoding"):
        read_log(path)


@pytest.mark.parametrize(
    ("name", "separator", "kind"),
    [("u.data", "\t", "MovieLens u.data"), ("ratings.dat", "::", "MovieLens ratings.dat")],
)
def test_movielens_files_are_recognised(tmp_path, name, separator, kind):
    lines = [separator.join([str(n % 3), str(n), "4", str(900 - n)]) for n in range(30)]
    path = tmp_path / name
    path.write_text("\n".join(lines) + "\n\n")
    log, report = read_log(path)
    assert report.kind == kind
    assert report.lines == 30
    assert rows_of(log)[0] == ("2", "29", 871)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "must not be empty"),
        ("\n", "must not be empty"),
        ("user,item,timestamp\n", "at least 20 interactions"),
        ("user,item,timestamp\nu,i,1\n,i,2\n", r"Received: 1 \(.*1 without user"),
        ("who,item,timestamp\nu,i,1\n", "user column.*columns who, item, timestamp"),
        ("user,what,timestamp\nu,i,1\n", "item column.*columns user, what, timestamp"),
        ("user,item,when\nu,i,1\n", "time column.*columns user, item, when"),
        ("user,item,time\n" + "u,i,1\n" * 20 + "u,i,noon\n", "'noon' on line 22"),
        ("user,item,time\n" + "u,i,1\n" * 20 + "u,i,nan\n", "'nan' on line 22"),
        ("user,item,time\n" + "u,i,1\n" * 20 + "u,i,inf\n", "'inf' on line 22"),
        ("1\t2\t3\t4\n" * 25 + "1\t2\n", "on line 26"),
    ],
)
def test_a_log_that_cannot_be_used_is_refused_in_one_sentence(tmp_path, content, message):
    path = tmp_path / "log"
    path.write_text(content)
    with pytest.raises(DataError, match=message) as caught:
        read_log(path)
    assert "\n" not in str(caught.value)


def test_a_column_that_is_not_there_is_named_with_those_that_are(tmp_path):
    path = write_csv(tmp_path, "user,item,timestamp", plain_rows())
    with pytest.raises(DataError, match=r"--item-column .*'sku'.*user, item, timestamp"):
        read_log(path, LogFormat(item_column="sku"))


@pytest.mark.parametrize("name", ["none.csv", "."])
def test_a_path_that_cannot_be_read_is_named(tmp_path, name):
    with pytest.raises(DataError, match="--data"):
        read_log(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(DataError, match="encoding"):
        read_log(path)


@applies_if(RETAIL.exists(), "the retail sample beside the checkout")
def test_the_retail_sample_is_read_without_options():
    log, report = read_log(RETAIL)
    assert report.lines == 10_000
    assert report.left_out == {"user": 2291, "item": 0, "time": 0}
    assert len(log) == 7709
    assert "17850" in log.user_ids
    assert "85123A" in log.item_ids
    assert not any(user.endswith(".0") for user in log.user_ids)
    assert (np.diff(log.times) >= 0).all()
