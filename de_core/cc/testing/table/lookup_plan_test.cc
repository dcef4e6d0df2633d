// Lookups record where they found rows, for the next update, and pause when updates do not use the
// records. table_known_test.cc compares such updates with updates of other tables.
#include "de_core/cc/engine/table/lookup_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "de_core/cc/testing/batches.h"

namespace de::engine {
namespace {

using Batch = std::vector<int64_t>;

/// Returns a record of `batch` that does not come from Begin: Begin hands out only two.
LookupPlan::Record Known(const Batch& batch) {
  static ObjectPool<KnownKeys> pool;  // outlives the plans
  LookupPlan::Record known = pool.Lend();
  known->partition.Build(KeysOf(batch), nullptr);
  return known;
}

/// Simulates a lookup. Returns whether it was asked to record its keys.
bool LookUp(LookupPlan* plan, const Batch& batch) {
  LookupPlan::Record known = plan->Begin();
  if (known == nullptr) return false;
  known->partition.Build(KeysOf(batch), nullptr);
  plan->Put(std::move(known));
  return true;
}

/// Simulates an update. Returns whether its keys were recorded.
bool Update(LookupPlan* plan, const Batch& batch) {
  const LookupPlan::Record known = plan->Take(KeysOf(batch));
  if (known == nullptr) return false;
  EXPECT_TRUE(known->partition.IsOf(KeysOf(batch)));
  return true;
}

TEST(LookupPlan, nothing_is_learnt_before_the_first_update) {
  LookupPlan plan;
  EXPECT_FALSE(LookUp(&plan, {1, 2}));
  EXPECT_FALSE(Update(&plan, {1, 2}));
  EXPECT_TRUE(LookUp(&plan, {1, 2}));
  EXPECT_TRUE(Update(&plan, {1, 2}));
}

TEST(LookupPlan, the_last_two_lookups_are_kept) {
  LookupPlan plan;
  EXPECT_FALSE(Update(&plan, {0}));
  EXPECT_TRUE(LookUp(&plan, {1}));
  EXPECT_TRUE(LookUp(&plan, {2}));
  EXPECT_FALSE(LookUp(&plan, {3})) << "a third lookup before an update";
  EXPECT_TRUE(Update(&plan, {1}));
  EXPECT_TRUE(Update(&plan, {2}));
  for (int64_t key = 1; key <= 3; ++key) plan.Put(Known({key}));
  EXPECT_TRUE(Update(&plan, {3}));
  EXPECT_FALSE(Update(&plan, {1}));
  EXPECT_TRUE(Update(&plan, {2}));
}

TEST(LookupPlan, memory_goes_from_an_update_to_the_next_lookup) {
  LookupPlan plan;
  EXPECT_FALSE(Update(&plan, {0}));
  LookupPlan::Record known = plan.Begin();
  ASSERT_NE(known, nullptr);
  known->partition.Build(KeysOf(Batch{1}), nullptr);
  known->of[3].renumbered = 77;
  plan.Put(std::move(known));
  EXPECT_TRUE(Update(&plan, {1}));
  known = plan.Begin();
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->of[3].renumbered, 77U);
  known = plan.Begin();
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->of[3].renumbered, 0U);
}

TEST(LookupPlan, where_updates_have_other_keys_lookups_learn_less_and_less) {
  LookupPlan plan;
  EXPECT_FALSE(Update(&plan, {0}));
  std::vector<int> pauses;
  for (int updates = 0; pauses.size() < 15; ++updates) {
    if (LookUp(&plan, {1})) {
      pauses.push_back(updates);
      updates = 0;
    }
    ASSERT_FALSE(Update(&plan, {2}));
  }
  // One of the updates between two recording lookups did not find its keys.
  EXPECT_EQ(pauses,
            (std::vector<int>{0, 2, 3, 5, 9, 17, 33, 65, 129, 257, 513, 1025, 2049, 4097, 4097}));

  EXPECT_TRUE(Update(&plan, {1})) << "the last record is kept";
  EXPECT_TRUE(LookUp(&plan, {3}));
  EXPECT_FALSE(Update(&plan, {2}));
  EXPECT_FALSE(LookUp(&plan, {3})) << "and ends the pause: the next is the shortest again";
  EXPECT_FALSE(Update(&plan, {2}));
  EXPECT_TRUE(LookUp(&plan, {3}));
}

TEST(LookupPlan, the_longest_pause_stays_the_longest) {
  LookupPlan plan;
  EXPECT_FALSE(Update(&plan, {0}));
  for (int recorded = 0, updates = 0; recorded < 40; ++updates) {
    if (LookUp(&plan, {1})) {
      if (++recorded > 14) {
        ASSERT_EQ(updates, 4097) << recorded;
      }
      updates = 0;
    }
    ASSERT_FALSE(Update(&plan, {2}));
  }
}

TEST(LookupPlan, updates_that_no_lookup_went_before_pause_nothing) {
  LookupPlan plan;
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Update(&plan, {2}));
  EXPECT_TRUE(LookUp(&plan, {1}));
}

}  // namespace
}  // namespace de::engine
