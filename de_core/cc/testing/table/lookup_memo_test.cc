// Lookups record where they found rows, for the next update, and pause when updates do not use the
// records. table_known_test.cc compares such updates with updates of other tables.
#include "de_core/cc/engine/table/lookup_memo.h"

#include <gtest/gtest.h>

#include <vector>

#include "de_core/cc/testing/batches.h"

namespace de::engine {
namespace {

using Batch = std::vector<int64_t>;

/// Returns a record that no memo has asked for.
LookupMemo::Record Known(const Batch& batch) {
  static ObjectPool<KnownKeys> pool;  // outlives the memos
  LookupMemo::Record known = pool.Lend();
  known->partition.Build(KeysOf(batch), nullptr);
  return known;
}

/// Simulates a lookup. Returns whether it was asked to record its keys.
bool LookUp(LookupMemo* memo, const Batch& batch) {
  LookupMemo::Record known = memo->Begin();
  if (known == nullptr) return false;
  known->partition.Build(KeysOf(batch), nullptr);
  memo->Put(std::move(known));
  return true;
}

/// Simulates an update. Returns whether its keys were recorded.
bool Update(LookupMemo* memo, const Batch& batch) {
  const LookupMemo::Record known = memo->Take(KeysOf(batch));
  if (known == nullptr) return false;
  EXPECT_TRUE(known->partition.IsOf(KeysOf(batch)));
  return true;
}

TEST(LookupMemo, nothing_is_learnt_before_the_first_update) {
  LookupMemo memo;
  EXPECT_FALSE(LookUp(&memo, {1, 2}));
  EXPECT_FALSE(Update(&memo, {1, 2}));
  EXPECT_TRUE(LookUp(&memo, {1, 2}));
  EXPECT_TRUE(Update(&memo, {1, 2}));
}

TEST(LookupMemo, the_last_two_lookups_are_kept) {
  LookupMemo memo;
  EXPECT_FALSE(Update(&memo, {0}));
  EXPECT_TRUE(LookUp(&memo, {1}));
  EXPECT_TRUE(LookUp(&memo, {2}));
  EXPECT_FALSE(LookUp(&memo, {3})) << "a third lookup before an update";
  EXPECT_TRUE(Update(&memo, {1}));
  EXPECT_TRUE(Update(&memo, {2}));
  for (int64_t key = 1; key <= 3; ++key) memo.Put(Known({key}));
  EXPECT_TRUE(Update(&memo, {3}));
  EXPECT_FALSE(Update(&memo, {1}));
  EXPECT_TRUE(Update(&memo, {2}));
}

TEST(LookupMemo, memory_goes_from_an_update_to_the_next_lookup) {
  LookupMemo memo;
  EXPECT_FALSE(Update(&memo, {0}));
  LookupMemo::Record known = memo.Begin();
  ASSERT_NE(known, nullptr);
  known->partition.Build(KeysOf(Batch{1}), nullptr);
  known->of[3].renumbered = 77;
  memo.Put(std::move(known));
  EXPECT_TRUE(Update(&memo, {1}));
  known = memo.Begin();
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->of[3].renumbered, 77U);
  known = memo.Begin();
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->of[3].renumbered, 0U);
}

TEST(LookupMemo, where_updates_have_other_keys_lookups_learn_less_and_less) {
  LookupMemo memo;
  EXPECT_FALSE(Update(&memo, {0}));
  std::vector<int> pauses;
  for (int updates = 0; pauses.size() < 15; ++updates) {
    if (LookUp(&memo, {1})) {
      pauses.push_back(updates);
      updates = 0;
    }
    ASSERT_FALSE(Update(&memo, {2}));
  }
  // One of the updates between two recording lookups did not find its keys.
  EXPECT_EQ(pauses,
            (std::vector<int>{0, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 2049, 4097, 4097}));

  EXPECT_TRUE(Update(&memo, {1})) << "the last record is kept";
  EXPECT_TRUE(LookUp(&memo, {3}));
  EXPECT_FALSE(Update(&memo, {2}));
  EXPECT_FALSE(LookUp(&memo, {3})) << "and ends the pause: the next is the shortest again";
  EXPECT_FALSE(Update(&memo, {2}));
  EXPECT_TRUE(LookUp(&memo, {3}));
}

TEST(LookupMemo, the_longest_pause_stays_the_longest) {
  LookupMemo memo;
  EXPECT_FALSE(Update(&memo, {0}));
  for (int recorded = 0, updates = 0; recorded < 40; ++updates) {
    if (LookUp(&memo, {1})) {
      if (++recorded > 14) {
        ASSERT_EQ(updates, 4097) << recorded;
      }
      updates = 0;
    }
    ASSERT_FALSE(Update(&memo, {2}));
  }
}

TEST(LookupMemo, updates_that_no_lookup_went_before_pause_nothing) {
  LookupMemo memo;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Update(&memo, {2}));
  EXPECT_TRUE(LookUp(&memo, {1}));
}

}  // namespace
}  // namespace de::engine
