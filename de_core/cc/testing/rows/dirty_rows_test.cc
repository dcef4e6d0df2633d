// Tracking of changed rows, compared with a log of all changes.
#include "de_core/cc/engine/rows/dirty_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

namespace de::engine {
namespace {

/// A shard's rows and all their changes, by generation.
class Log {
 public:
  Log() : dirty_(1) {}

  void Write(uint64_t word) {
    if (row_of_.count(word) == 0) {
      uint32_t row = next_;
      if (free_.empty()) {
        ++next_;
      } else {
        row = free_.back();
        free_.pop_back();
      }
      row_of_[word] = row;
    }
    dirty_.Mark(word, row_of_[word]);
    changed_[word] = now_;
  }

  void Erase(uint64_t word) {
    const auto at = row_of_.find(word);
    if (at == row_of_.end()) return;
    dirty_.MarkErased(word, at->second, nullptr);
    free_.push_back(at->second);
    row_of_.erase(at);
    changed_.erase(word);
    erased_[word] = now_;
  }

  /// A tier takes the row. Only a changed row is reported, as erased now.
  void Move(uint64_t word) {
    const auto at = row_of_.find(word);
    if (at == row_of_.end()) return;
    if (dirty_.IsDirty(at->second, 0)) erased_[word] = now_;
    dirty_.MarkMoved(word, at->second, nullptr);
    free_.push_back(at->second);
    row_of_.erase(at);
    changed_.erase(word);
  }

  void Cut() { dirty_.Cut(++now_); }

  /// Moves rows to new places in another order.
  void Renumber(std::mt19937_64* random) {
    std::vector<uint64_t> words;
    for (const auto& [word, row] : row_of_) words.push_back(word);
    std::shuffle(words.begin(), words.end(), *random);
    std::vector<std::pair<uint32_t, uint32_t>> moves;
    for (uint32_t i = 0; i < words.size(); ++i) moves.emplace_back(row_of_[words[i]], i);
    dirty_.Renumber(moves);
    for (uint32_t i = 0; i < words.size(); ++i) row_of_[words[i]] = i;
    next_ = static_cast<uint32_t>(words.size());
    free_.clear();
  }

  /// Checks that exactly the changes since `since` are reported.
  void Check(uint64_t since) {
    const DirtyKeys keys = dirty_.Since(since);
    ASSERT_FALSE(keys.everything || keys.by_bits);
    const std::set<uint64_t> words(keys.words.begin(), keys.words.end());
    ASSERT_TRUE(std::is_sorted(keys.erased.begin(), keys.erased.end()));
    for (const auto& [word, row] : row_of_) {
      const auto at = changed_.find(word);
      const bool changed = at != changed_.end() && at->second >= since;
      ASSERT_EQ(dirty_.IsDirty(row, since), changed) << word;
      ASSERT_TRUE(!changed || words.count(word) == 1) << word;
    }
    for (const auto& [word, when] : erased_) {
      const bool named = std::binary_search(keys.erased.begin(), keys.erased.end(), word);
      ASSERT_EQ(named, when >= since) << word;
    }
    // The log may name keys that were erased since, but no unchanged key.
    for (const uint64_t word : words) {
      const auto at = changed_.find(word);
      const auto gone = erased_.find(word);
      ASSERT_TRUE((at != changed_.end() && at->second >= since) ||
                  (gone != erased_.end() && gone->second >= since))
          << word;
    }
  }

  void ChangeSome(int count, std::mt19937_64* random) {
    for (int i = 0; i < count; ++i) {
      const uint64_t choice = (*random)() % 8;
      if (choice == 0) {
        Erase((*random)() % 900);
      } else if (choice < 3) {
        Move((*random)() % 900);
      } else {
        Write((*random)() % 900);
      }
    }
  }

  DirtyRows& dirty() { return dirty_; }
  uint64_t now() const { return now_; }

 private:
  DirtyRows dirty_;
  uint64_t now_ = 1;
  uint32_t next_ = 0;
  std::vector<uint32_t> free_;
  std::map<uint64_t, uint32_t> row_of_;
  std::map<uint64_t, uint64_t> changed_, erased_;  ///< last generation of each change
};

TEST(DirtyRows, name_what_changed_since_each_generation_as_a_log_does) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    std::mt19937_64 random(seed);
    Log log;
    for (int round = 0; round < 12; ++round) {
      log.ChangeSome(400, &random);
      if (round % 4 == 3) log.Renumber(&random);
      for (uint64_t since = 1; since <= log.now(); ++since) log.Check(since);
      log.Cut();
    }
  }
}

TEST(DirtyRows, keep_what_the_marks_ask_for) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 random(seed);
    Log log;
    std::vector<uint64_t> marks = {1};
    for (int round = 0; round < 12; ++round) {
      log.ChangeSome(200, &random);
      log.Cut();
      std::vector<uint64_t> kept;
      for (const uint64_t mark : marks) {
        if (random() % 3 != 0) kept.push_back(mark);
      }
      if (random() % 2 == 0) kept.push_back(log.now());
      marks = kept;
      if (marks.empty()) marks.push_back(log.now());
      log.dirty().Keep(marks);
      for (const uint64_t mark : marks) log.Check(mark);
    }
  }
}

TEST(DirtyRows, nothing_is_kept_that_nobody_asks_for) {
  DirtyRows dirty(1);
  for (uint32_t row = 0; row < 10000; ++row) dirty.Mark(row, row);
  dirty.Cut(2);
  dirty.Mark(5, 5);
  dirty.Cut(3);
  const uint64_t all = dirty.bytes();
  dirty.Keep({2});
  EXPECT_LT(dirty.bytes(), all / 2);
  EXPECT_EQ(dirty.Since(2).words, std::vector<uint64_t>{5});
  dirty.Keep({});
  EXPECT_EQ(dirty.bytes(), 0U);
  EXPECT_FALSE(dirty.IsDirty(5, 1));
  dirty.Cut(4);
  dirty.Mark(7, 7);
  EXPECT_TRUE(dirty.IsDirty(7, 4));
}

TEST(DirtyRows, a_long_log_is_given_up_for_the_bits) {
  DirtyRows dirty(1);
  constexpr uint32_t kRows = 100000;
  for (uint32_t row = 0; row < kRows; ++row) dirty.Mark(row * 3, row * 2);
  EXPECT_TRUE(dirty.Since(1).by_bits);
  EXPECT_FALSE(dirty.Since(1).everything);
  for (uint32_t row = 0; row < 2 * kRows; ++row) {
    ASSERT_EQ(dirty.IsDirty(row, 1), row % 2 == 0) << row;
  }
  EXPECT_FALSE(dirty.IsDirty(4 * kRows, 1)) << "a row that no bit stands for";
  EXPECT_LE(dirty.bytes(), 2 * kRows / 2U);  // half a byte per row
}

TEST(DirtyRows, a_log_within_its_bound_stays_complete) {
  DirtyRows dirty(1);
  for (uint32_t i = 0; i < 4096; ++i) dirty.Mark(i, i % 64);  // sets the first 64 bits
  EXPECT_EQ(dirty.Since(1).words.size(), 64U);
  for (uint32_t row = 64; row < 4096; ++row) dirty.Mark(row, row);
  EXPECT_FALSE(dirty.Since(1).by_bits);
  EXPECT_EQ(dirty.Since(1).words.size(), 4096U);
  dirty.Mark(4096, 4096);
  EXPECT_TRUE(dirty.Since(1).by_bits);
}

TEST(DirtyRows, generations_that_become_one_keep_their_logs_within_the_bound) {
  const auto since_first = [](uint32_t first, uint32_t begin, uint32_t end) {
    DirtyRows dirty(1);
    for (uint32_t row = 0; row < first; ++row) dirty.Mark(row, row);
    dirty.Cut(2);
    for (uint32_t row = begin; row < end; ++row) dirty.Mark(row, row);
    dirty.Cut(3);
    dirty.Keep({1});
    for (uint32_t row = 0; row < end; ++row) EXPECT_TRUE(dirty.IsDirty(row, 1)) << row;
    return dirty.Since(1);
  };
  const DirtyKeys same = since_first(3000, 0, 3000);
  EXPECT_FALSE(same.by_bits);
  EXPECT_EQ(same.words.size(), 3000U) << "a key that changed in both is named once";
  EXPECT_TRUE(since_first(3000, 3000, 6000).by_bits);
  EXPECT_TRUE(since_first(6000, 0, 1).by_bits) << "the earlier log was dropped";
  EXPECT_TRUE(since_first(1, 0, 6000).by_bits) << "the later log was dropped";
}

TEST(DirtyRows, generations_that_no_mark_tells_apart_share_one_bit_a_row) {
  constexpr uint32_t kRows = 100000;
  DirtyRows dirty(1);
  for (uint64_t now = 2; now <= 20; ++now) {
    for (uint32_t row = 0; row < kRows; ++row) dirty.Mark(row, row);
    dirty.Cut(now);
    dirty.Keep({1, now});
  }
  EXPECT_LE(dirty.bytes(), kRows);  // 19 generations of bits would take more than twice that
}

TEST(DirtyRows, a_cleared_shard_has_changed_altogether) {
  DirtyRows dirty(1);
  dirty.Mark(1, 1);
  dirty.Cut(2);
  dirty.MarkCleared();
  dirty.Mark(2, 2);
  dirty.MarkErased(2, 2, nullptr);
  for (const uint64_t since : {1, 2}) {
    EXPECT_TRUE(dirty.Since(since).everything);
    EXPECT_TRUE(dirty.IsDirty(99, since));
  }
  dirty.Cut(3);
  EXPECT_FALSE(dirty.Since(3).everything);
  EXPECT_FALSE(dirty.IsDirty(99, 3));
  dirty.Keep({1});
  EXPECT_TRUE(dirty.Since(1).everything);
}

TEST(DirtyRows, keys_that_come_and_go_are_erased_once) {
  DirtyRows dirty(1);
  for (int i = 0; i < 50000; ++i) {
    const std::string text = "key " + std::to_string(i % 10);
    const std::string_view view = text;
    dirty.Mark(i % 10, i % 10);
    dirty.MarkErased(i % 10, i % 10, i % 2 == 0 ? &view : nullptr);
  }
  const DirtyKeys keys = dirty.Since(1);
  EXPECT_EQ(keys.erased, (std::vector<uint64_t>{1, 3, 5, 7, 9}));
  EXPECT_EQ(keys.erased_texts,
            (std::vector<std::pair<uint64_t, std::string>>{
                {0, "key 0"}, {2, "key 2"}, {4, "key 4"}, {6, "key 6"}, {8, "key 8"}}));
  EXPECT_LT(dirty.bytes(), 1U << 20);
}

TEST(DirtyRows, more_erased_keys_than_rows_are_told_by_the_rows) {
  DirtyRows dirty(1);
  for (uint64_t word = 0; word < 200000; ++word) {
    dirty.Mark(word, word % 10);
    dirty.MarkErased(word, word % 10, nullptr);
  }
  EXPECT_TRUE(dirty.Since(1).everything);
  EXPECT_LT(dirty.bytes(), 2U << 20);
}

TEST(DirtyRows, a_tier_may_take_any_number_of_changed_rows) {
  DirtyRows dirty(1);
  for (uint64_t word = 0; word < 200000; ++word) {
    dirty.Mark(word, word % 10);
    dirty.MarkMoved(word, word % 10, nullptr);
  }
  EXPECT_FALSE(dirty.Since(1).everything);
  EXPECT_EQ(dirty.Since(1).erased.size(), 200000U);
  dirty.Cut(2);
  EXPECT_TRUE(dirty.Since(2).erased.empty());
}

}  // namespace
}  // namespace de::engine
