// The rows that a save reads: all rows, chosen keys, changed rows or rows that satisfy keep rules.
// Each row is read as it is at that time or, in a consistent save, as it was when the save began.
#include "de_core/cc/engine/save/save_source.h"

#include <gtest/gtest.h>

#include <cmath>

#include "de_core/cc/testing/saved_table.h"

namespace de::engine {
namespace {

using testing::ChainOf;
using testing::CollectAll;
using testing::Make;
using testing::Numbers;
using testing::Put;
using testing::RowsOf;
using testing::Save;
using Rows = std::map<int64_t, float>;

void Erase(Table* table, const std::vector<int64_t>& keys) {
  ASSERT_TRUE(table->Erase(KeysOf(keys), nullptr).ok());
}

Rows Filled(int64_t first, size_t count, float value) {
  Rows rows;
  for (const int64_t key : Numbers(first, count)) rows[key] = value;
  return rows;
}

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
    rows = RowsOf(section, source.layout());
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

class SaveSourceOf : public ::testing::TestWithParam<size_t> {};

TEST_P(SaveSourceOf, every_row_comes_once_in_pieces_that_ascend) {
  for (const size_t count : {0U, 1U, 20000U}) {
    const auto table = Make(GetParam());
    Put(table.get(), Numbers(-5, count), 3);
    SaveSource source(table.get());
    ASSERT_TRUE(source.Begin({}, 0).ok());
    SavedRows rows;
    uint64_t next = 0;
    size_t seen = 0;
    const Status status = CollectAll(&source, &rows, [&](uint64_t last, bool) {
      const SnapshotSection all = rows.section(source.layout(), 0, ~uint64_t{0});
      for (; seen < all.count; ++seen) {
        ASSERT_GE(Mix64(all.words[seen]), next);
        ASSERT_LE(Mix64(all.words[seen]), last);
      }
      next = last + 1;
    });
    ASSERT_TRUE(status.ok()) << status.message;
    EXPECT_EQ(next, 0U) << "hashes were left out";
    EXPECT_EQ(RowsOf(rows.section(source.layout(), 0, ~uint64_t{0}), source.layout()),
              Filled(-5, count, 3));
    EXPECT_EQ(source.held_peak(), 0U);
    EXPECT_GT(source.longest_hold_seconds(), 0);
  }
}

TEST_P(SaveSourceOf, rows_are_of_the_moment_whatever_comes_between_two_pieces) {
  const auto table = Make(GetParam());
  Put(table.get(), Numbers(0, 6000), 1);
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin({}, uint64_t{1} << 30).ok());
  SavedRows rows;
  int64_t piece = 0;
  const Status status = CollectAll(&source, &rows, [&](uint64_t, bool) {
    Put(table.get(), Numbers(100 * piece, 300), 2);
    Erase(table.get(), Numbers(37 * piece, 50));
    Put(table.get(), Numbers(10000 + piece, 2), 4);
    ++piece;
    source.FreeCollected();
  });
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_EQ(RowsOf(rows.section(source.layout(), 0, ~uint64_t{0}), source.layout()),
            Filled(0, 6000, 1));
  EXPECT_GT(source.held_peak(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Dims, SaveSourceOf, ::testing::Values(1, 8, 300));

TEST(SaveSource, chosen_keys_that_have_no_row_leave_nothing) {
  const auto table = Make();
  Put(table.get(), Numbers(0, 100), 1);
  const std::vector<int64_t> chosen = {99, 100, 5, 5, -1};
  const Keys keys = KeysOf(chosen);
  SaveSelection selection;
  selection.keys = &keys;
  const Collected collected(table.get(), selection);
  EXPECT_EQ(collected.rows, (Rows{{5, 1}, {99, 1}}));
  EXPECT_TRUE(collected.gone.empty());
}

TEST(SaveSource, changes_are_rows_and_keys_that_are_gone) {
  const auto table = Make();
  Put(table.get(), Numbers(0, 100), 1);
  ASSERT_NE(Save(table.get(), ChainOf("c", false), 1), "");
  Put(table.get(), {3, 4, 200}, 2);
  Erase(table.get(), {4, 5, 6, 200, 1000});
  Put(table.get(), {6}, 3);  // key 6 was erased and exists again
  const Collected collected(table.get(), Changes(table.get()));
  EXPECT_EQ(collected.rows, (Rows{{3, 2}, {6, 3}}));
  EXPECT_EQ(collected.gone, (std::vector<int64_t>{4, 5, 200}));
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
  EXPECT_NE(status.message.find("Received: consistent_bytes=1"), std::string::npos)
      << status.message;
  EXPECT_FALSE(source.outdated());
}

TEST(SaveSource, a_table_that_got_slots_outdates_what_began_before) {
  const auto table = Make();
  Put(table.get(), {1, 2, 3}, 1);
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin({}, 0).ok());
  EXPECT_FALSE(source.outdated());
  ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, 2, 0}}).ok());
  SavedRows rows;
  EXPECT_EQ(CollectAll(&source, &rows).code, Code::kFailedPrecondition);
  EXPECT_TRUE(source.outdated());
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

TEST(SaveSource, one_moment_at_a_time_which_another_does_not_end) {
  const auto table = Make();
  Put(table.get(), Numbers(0, 1000), 1);
  constexpr uint64_t kBytes = uint64_t{1} << 28;
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin({}, kBytes).ok());
  {
    SaveSource second(table.get());
    EXPECT_EQ(second.Begin({}, kBytes).code, Code::kFailedPrecondition);
  }
  Put(table.get(), Numbers(0, 1000), 2);
  SavedRows rows;
  ASSERT_TRUE(CollectAll(&source, &rows).ok());
  EXPECT_EQ(RowsOf(rows.section(source.layout(), 0, ~uint64_t{0}), source.layout()),
            Filled(0, 1000, 1));
  source.End();
  source.End();
  SaveSource third(table.get());
  EXPECT_TRUE(third.Begin({}, kBytes).ok());
}

}  // namespace
}  // namespace de::engine
