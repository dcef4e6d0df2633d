import pytest
from hypothesis import given
from hypothesis import strategies as st
from ranking.errors import DataError
from ranking.interactions import Interactions
from ranking.split import split_by_time


def log_of(rows):
    users, items, times = zip(*rows, strict=True)
    return Interactions.from_ids(users, items, times)


@st.composite
def logs(draw):
    row = st.tuples(
        st.sampled_from("abcd"), st.sampled_from("uvwxyz"), st.integers(min_value=0, max_value=8)
    )
    return log_of(draw(st.lists(row, min_size=2, max_size=40)))


@given(logs())
def test_everything_tested_is_later_than_everything_learned_and_new(log):
    try:
        split = split_by_time(log)
    except DataError:
        return
    assert 0 < len(split.train) < len(log)
    assert len(split.train) + len(split.test) + split.repeats == len(log)
    assert split.train.times.max() < split.test.times.min()
    assert not set(split.train.pairs()) & set(split.test.pairs())
    assert len(set(split.test.pairs())) == len(split.test)


def test_the_last_fifth_is_tested():
    log = log_of([(f"u{n % 7}", f"i{n}", n) for n in range(100)])
    split = split_by_time(log)
    assert split.train.times.tolist() == list(range(80))
    assert split.test.times.tolist() == list(range(80, 100))


def test_a_first_moment_that_holds_most_of_the_log_is_not_cut():
    log = log_of([("u", f"i{n}", 0) for n in range(99)] + [("u", "last", 1)])
    split = split_by_time(log)
    assert len(split.train) == 99
    assert log.item_ids[split.test.items].tolist() == ["last"]


def test_a_log_of_one_moment_is_refused():
    with pytest.raises(DataError, match="two different times"):
        split_by_time(log_of([("u", f"i{n}", 5) for n in range(50)]))


def test_a_test_split_with_only_repeats_is_refused():
    with pytest.raises(DataError, match="all repeats"):
        split_by_time(log_of([("u", f"i{n % 5}", n) for n in range(50)]))
