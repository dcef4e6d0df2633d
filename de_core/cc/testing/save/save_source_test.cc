// The rows of a save under rules for slots, and the errors that end it. table_save_test.cc and the
// tests of checkpoints compare all rows of a save.
#include "de_core/cc/engine/save/save_source.h"

#include <gtest/gtest.h>

#include <cmath>

#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

using Rows = std::map<int64_t, float>;

std::vector<int64_t> Gone(const SnapshotSection& section) {
  std::vector<int64_t> keys;
  for (size_t i = 0; i < section.tombstones; ++i) {
    keys.push_back(static_cast<int64_t>(section.tombstone_words[i]));
  }
  std::sort(keys.begin(), keys.end());
  return keys;
}

/// All collected rows, as one section over all hashes.
struct Collected {
  Collected(Table* table, const SaveSelection& selection) {
    SaveSource source(table);
    status = source.Begin(selection, 0);
    if (status.ok()) status = CollectAll(&source, &memory);
    EXPECT_TRUE(status.ok()) << status.message;
    const SnapshotSection section = memory.section(source.layout(), 0, ~uint64_t{0});
    for (size_t i = 0; i < section.count; ++i) {
      float value;
      std::memcpy(&value, section.rows + i * source.layout().stride(), sizeof(value));
      EXPECT_TRUE(rows.emplace(static_cast<int64_t>(section.words[i]), value).second)
          << "a row was collected twice";
    }
    gone = Gone(section);
  }
  SavedRows memory;
  Status status;
  Rows rows;
  std::vector<int64_t> gone;
};

/// Selects the changes since the last save of chain "c".
SaveSelection Changes(Table* table) {
  SavePoint point;
  EXPECT_TRUE(table->chains().Last("c", &point).ok());
  SaveSelection selection;
  selection.changes_only = true;
  selection.since = point.generation;
  return selection;
}

TEST(SaveSource, a_moment_that_takes_more_than_its_memory_is_lost) {
  const auto table = Make();
  Put(table.get(), Numbers(0, 5000), 1);
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin({}, 1).ok());
  EXPECT_FALSE(source.urgent());
  Put(table.get(), Numbers(0, 5000), 2);
  EXPECT_TRUE(source.urgent());
  SavedRows rows;
  const Status status = CollectAll(&source, &rows);
  EXPECT_EQ(status.code, Code::kResourceExhausted);
  EXPECT_NE(status.message.find("Received: copies of more than 1 bytes"), std::string::npos)
      << status.message;
  EXPECT_FALSE(source.outdated());
}

TEST(SaveSource, rows_below_a_rule_are_left_out_and_gone_from_a_delta) {
  const auto table = Make();
  ASSERT_TRUE(table->EnsureSlots("opt", {{"n", DType::kFloat32, 1, 0}}).ok());
  const std::vector<int64_t> keys = {1, 2, 3, 4};
  const std::vector<float> counts = {1.5F, 2, std::nanf(""), 3};
  Put(table.get(), keys, 7);
  ASSERT_NE(Save(table.get(), ChainOf("c", false), 1), "");
  Put(table.get(), {1, 2, 3}, 8);
  ASSERT_TRUE(table
                  ->AssignSlot("opt", "n", sizeof(float), KeysOf(keys),
                               reinterpret_cast<const char*>(counts.data()))
                  .ok());
  SaveSelection selection;
  selection.keep = {{"opt", "n", 2}};
  const Collected all(table.get(), selection);
  EXPECT_EQ(all.rows, (Rows{{2, 8}, {4, 7}}));
  EXPECT_TRUE(all.gone.empty());
  SaveSelection changes = Changes(table.get());
  changes.keep = selection.keep;
  const Collected delta(table.get(), changes);
  EXPECT_EQ(delta.rows, (Rows{{2, 8}, {4, 7}}));
  EXPECT_EQ(delta.gone, (std::vector<int64_t>{1, 3}));
}

TEST(SaveSource, a_delta_with_unknown_erasures_fails_instead_of_leaving_rows) {
  const auto table = Make();
  std::vector<int64_t> keys;  // so many keys of one shard that it does not keep them all
  for (uint64_t key = 0; keys.size() < 140'000; ++key) {
    if (ShardOfHash(Mix64(key)) == 0) keys.push_back(static_cast<int64_t>(key));
  }
  Put(table.get(), keys, 1);
  ASSERT_NE(Save(table.get(), ChainOf("c", false), 1), "");
  Put(table.get(), keys, 2);
  SaveSelection changes = Changes(table.get());
  ASSERT_TRUE(table->chains().Cut(&changes.current).ok());
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin(changes, 0).ok());
  ASSERT_TRUE(table->Erase(KeysOf(keys), nullptr).ok());
  SavedRows rows;
  const Status status = CollectAll(&source, &rows);
  EXPECT_EQ(status.code, Code::kFailedPrecondition);
  EXPECT_NE(status.message.find("save again"), std::string::npos) << status.message;
  EXPECT_TRUE(source.outdated());
  table->chains().Abandon();
}

TEST(SaveSource, slots_that_another_owner_got_meanwhile_outdate_what_began_before) {
  for (const uint64_t held_bytes : {uint64_t{0}, uint64_t{1} << 20}) {
    const auto table = Make();
    ASSERT_TRUE(table->EnsureSlots("adam", {{"m", DType::kFloat32, 2, 1}}).ok());
    Put(table.get(), {1, 2, 3}, 1);
    SaveSource source(table.get());
    ASSERT_TRUE(source.Begin({}, held_bytes).ok());
    ASSERT_TRUE(table->DropSlots("adam").ok());
    ASSERT_TRUE(table->EnsureSlots("lamb", {{"m", DType::kFloat32, 2, 2}}).ok());
    SavedRows rows;
    const Status status = CollectAll(&source, &rows);
    EXPECT_EQ(status.code, Code::kFailedPrecondition);
    EXPECT_NE(status.message.find("save again"), std::string::npos) << status.message;
    EXPECT_TRUE(source.outdated());
  }
}

}  // namespace
}  // namespace de::engine::testing
