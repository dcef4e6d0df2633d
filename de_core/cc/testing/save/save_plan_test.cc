// The ranges of hashes that a save plans before it reads rows.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "de_core/cc/engine/save/save_source.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

/// Returns the number of keys whose hashes are in the range.
size_t RowsIn(const SaveSource::Range& range, const std::vector<int64_t>& keys) {
  return static_cast<size_t>(std::count_if(keys.begin(), keys.end(), [&](int64_t key) {
    const uint64_t hash = Mix64(static_cast<uint64_t>(key));
    return hash >= range.begin && hash <= range.last;
  }));
}

void ExpectCoversAllHashes(const SaveSource& source) {
  uint64_t next = 0;
  for (const SaveSource::Range& range : source.ranges()) {
    EXPECT_EQ(range.begin, next);
    EXPECT_GE(range.last, range.begin);
    EXPECT_EQ(ShardOfHash(range.begin), ShardOfHash(range.last));
    EXPECT_FALSE(range.listed);
    next = range.last + 1;
  }
  EXPECT_EQ(next, 0U);
}

/// Checks that the source lists its ranges in ascending order, each within one shard, and that they
/// contain `words` distinct words.
void ExpectLists(const SaveSource& source, size_t words) {
  size_t next = 0;
  uint64_t last = 0;
  for (const SaveSource::Range& range : source.ranges()) {
    EXPECT_TRUE(range.listed);
    EXPECT_EQ(range.first, next);
    EXPECT_GT(range.end, range.first);
    EXPECT_TRUE(range.first == 0 || range.begin > last);
    EXPECT_GE(range.last, range.begin);
    EXPECT_EQ(ShardOfHash(range.begin), ShardOfHash(range.last));
    next = range.end;
    last = range.last;
  }
  EXPECT_EQ(next, words);
}

TEST(SavePlan, a_whole_table_is_read_in_ranges_without_gaps) {
  for (const size_t rows : {0U, 1U, 100U, 300000U}) {
    const auto table = Make();
    const std::vector<int64_t> keys = Numbers(0, rows);
    Put(table.get(), keys, 1);
    SaveSource source(table.get());
    ASSERT_TRUE(source.Begin({}, 0).ok());
    ExpectCoversAllHashes(source);
    EXPECT_FALSE(source.everything());
    size_t most = 0;
    for (const SaveSource::Range& range : source.ranges())
      most = std::max(most, RowsIn(range, keys));
    EXPECT_LE(most, 9000U) << "a section would be large";
  }
}

TEST(SavePlan, ranges_of_wide_rows_have_few) {
  const auto table = Make(kMaxDim);
  Put(table.get(), Numbers(0, 3000), 1);
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin({}, 0).ok());
  ExpectCoversAllHashes(source);
  EXPECT_EQ(source.ranges().size(), 2U * kShards);  // the rows take 48 MB
}

TEST(SavePlan, chosen_keys_are_listed_once_each) {
  const auto table = Make();
  std::vector<int64_t> chosen = {7, 7, -1, INT64_MIN, INT64_MAX, 0, 7};
  for (int64_t i = 0; i < 40000; ++i) chosen.push_back(i);  // including all keys of the table
  const Keys keys = KeysOf(chosen);
  SaveSelection selection;
  selection.keys = &keys;
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin(selection, 0).ok());
  ExpectLists(source, 40003);

  const Keys none = {chosen.data(), nullptr, 0};
  selection.keys = &none;
  SaveSource nothing(table.get());
  ASSERT_TRUE(nothing.Begin(selection, 0).ok());
  EXPECT_TRUE(nothing.ranges().empty());
}

TEST(SavePlan, only_changes_are_listed) {
  const auto table = Make();
  Put(table.get(), Numbers(0, 50000), 1);
  ASSERT_NE(Save(table.get(), ChainOf("c", false), 1), "");
  SavePoint point;
  ASSERT_TRUE(table->chains().Last("c", &point).ok());
  SaveSelection selection;
  selection.changes_only = true;
  selection.since = point.generation;
  {
    SaveSource source(table.get());
    ASSERT_TRUE(source.Begin(selection, 0).ok());
    ExpectLists(source, 0);
  }
  Put(table.get(), Numbers(49990, 20), 2);
  Put(table.get(), Numbers(49990, 20), 3);
  const std::vector<int64_t> gone = {5, 49991, 12345678};  // the last key does not exist
  ASSERT_TRUE(table->Erase(KeysOf(gone), nullptr).ok());
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin(selection, 0).ok());
  ExpectLists(source, 21);
}

TEST(SavePlan, where_changes_are_not_known_all_rows_are_planned) {
  const auto table = Make();
  Put(table.get(), Numbers(0, 1000), 1);
  SaveSelection selection;
  selection.changes_only = true;
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin(selection, 0).ok());
  EXPECT_TRUE(source.everything());
  ExpectCoversAllHashes(source);
}

TEST(SavePlan, a_rule_for_a_slot_that_is_not_there_is_named) {
  const auto table = Make();
  ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, 1, 0}}).ok());
  SaveSelection selection;
  selection.keep = {{"opt", "m", 1}, {"opt", "n", 1}};
  SaveSource source(table.get());
  const Status status = source.Begin(selection, 0);
  EXPECT_EQ(status.code, Code::kNotFound);
  EXPECT_NE(status.message.find("Received: slot=n of owner=opt"), std::string::npos)
      << status.message;
}

}  // namespace
}  // namespace de::engine::testing
