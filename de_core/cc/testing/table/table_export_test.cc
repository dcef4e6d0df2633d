// Rows copied out of a table segment by segment, while it changes.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

/// Counts visits of each key, starting at `first`.
std::map<int64_t, int> Visits(const Table& table, uint64_t first) {
  std::map<int64_t, int> visits;
  RowBatch batch;  // reused for all: it must keep no old data
  ExportCursor cursor;
  cursor.next_hash = first;
  while (!cursor.done) {
    const uint64_t next = cursor.next_hash;
    EXPECT_TRUE(table.ExportBatch(&cursor, &batch).ok());
    EXPECT_EQ(batch.hash_begin, next);
    EXPECT_GE(batch.hash_last, next);
    EXPECT_EQ(cursor.next_hash, batch.hash_last + 1);
    EXPECT_EQ(cursor.done, cursor.next_hash == 0);
    EXPECT_EQ(batch.rows.size(), batch.size() * table.layout().stride());
    for (const uint64_t word : batch.words) {
      EXPECT_GE(Mix64(word), next);
      EXPECT_LE(Mix64(word), batch.hash_last);
      ++visits[static_cast<int64_t>(word)];
    }
  }
  return visits;
}

TEST(TableExport, a_table_without_rows_is_left_through_its_last_hash) {
  const auto table = Make();
  EXPECT_TRUE(Visits(*table, 0).empty());
  EXPECT_TRUE(Visits(*table, ~uint64_t{0}).empty());
}

TEST(TableExport, a_cursor_may_begin_at_any_hash) {
  const auto table = Make();
  const std::vector<int64_t> keys = Numbers(-100, 30000);
  Put(table.get(), keys, 1);
  for (const uint64_t first : {uint64_t{1}, Mix64(77), Mix64(77) + 1, ~uint64_t{0}}) {
    std::map<int64_t, int> expected;
    for (const int64_t key : keys) {
      if (Mix64(static_cast<uint64_t>(key)) >= first) expected[key] = 1;
    }
    EXPECT_EQ(Visits(*table, first), expected);
  }
}

TEST(TableExport, other_threads_write_meanwhile) {
  const auto table = Make(4);
  const std::vector<int64_t> stay = Numbers(0, 10000);
  Put(table.get(), stay, 1);
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (int64_t i = 0; !stop; ++i) {
      Put(table.get(), Numbers(0, 500), static_cast<float>(i));
      Put(table.get(), Numbers(50000 + 500 * (i % 100), 500), 1);
      const std::vector<int64_t> gone = Numbers(50000 + 500 * (i % 70), 300);
      ASSERT_TRUE(table->Erase(KeysOf(gone), nullptr).ok());
    }
  });
  for (int round = 0; round < 5; ++round) {
    RowBatch batch;
    std::map<int64_t, int> visits;
    for (ExportCursor cursor; !cursor.done;) {
      ASSERT_TRUE(table->ExportBatch(&cursor, &batch).ok());
      for (size_t i = 0; i < batch.size(); ++i) {
        float row[4];
        std::memcpy(row, batch.rows.data() + i * sizeof(row), sizeof(row));
        ASSERT_EQ(std::vector<float>(row, row + 4), std::vector<float>(4, row[0]))
            << "half written";
        ++visits[static_cast<int64_t>(batch.words[i])];
      }
    }
    for (const int64_t key : stay) ASSERT_EQ(visits[key], 1) << key;
  }
  stop = true;
  writer.join();
}

TEST(TableExport, a_search_for_cool_rows_visits_each_row_once_however_unequal_the_shards) {
  const auto table = Make("time=1");
  std::vector<int64_t> keys;
  for (int64_t key = 0; keys.size() < 40000; ++key) {
    if (key % 64 == 0 || ShardOfHash(Mix64(static_cast<uint64_t>(key))) == 3) keys.push_back(key);
  }
  Put(table.get(), keys, 1);
  std::map<int64_t, int> expected, visits;
  for (const int64_t key : keys) expected[key] = 1;
  RowBatch batch;
  for (Table::ClockHand hand; !hand.ended.all();) {
    ASSERT_TRUE(table->CopyCool(RowColumn::kTime, keys.size(), 1, &hand, &batch).ok());
    for (const uint64_t word : batch.words) ++visits[static_cast<int64_t>(word)];
  }
  EXPECT_EQ(visits, expected);
}

TEST(TableExport, a_batch_says_where_the_slots_lie_in_its_rows) {
  const auto table = Make();
  ASSERT_TRUE(table->EnsureSlots("adam", {{"m", DType::kFloat32, 2, 1}}).ok());
  Put(table.get(), {1}, 7);
  RowBatch batch;
  const auto first_slot = [&batch](const char* owner) {
    const RowSlot* const slot = batch.layout.FindSlot(owner, "m");
    float value = -1;
    if (slot != nullptr) std::memcpy(&value, batch.rows.data() + slot->offset, sizeof(value));
    return value;
  };
  ExportCursor cursor{Mix64(1)};
  ASSERT_TRUE(table->ExportBatch(&cursor, &batch).ok());
  EXPECT_EQ(first_slot("adam"), 1);
  ASSERT_TRUE(table->DropSlots("adam").ok());
  ASSERT_TRUE(table->EnsureSlots("lamb", {{"m", DType::kFloat32, 2, 2}}).ok());
  cursor.next_hash = Mix64(1);
  ASSERT_TRUE(table->ExportBatch(&cursor, &batch).ok());
  EXPECT_EQ(first_slot("adam"), -1);
  EXPECT_EQ(first_slot("lamb"), 2);
}

TEST(TableExport, strings_are_copies_of_the_batch) {
  const auto table = MakeStrings(2);
  const std::string nul("\0", 1), large(70000, 'y');
  const std::vector<std::string_view> keys = {"", nul, large};
  const std::vector<std::string_view> values = {large, "", "", nul, "a", "b"};
  ASSERT_TRUE(
      table->InsertOrAssign({nullptr, keys.data(), 3}, {nullptr, values.data()}, nullptr).ok());
  std::map<std::string, std::string> seen;
  RowBatch batch;
  for (ExportCursor cursor; !cursor.done;) {
    ASSERT_TRUE(table->ExportBatch(&cursor, &batch).ok());
    ASSERT_TRUE(table->Erase({nullptr, keys.data(), 3}, nullptr).ok());
    ASSERT_EQ(batch.keys.size(), batch.size());
    ASSERT_EQ(batch.values.size(), 2 * batch.size());
    for (size_t i = 0; i < batch.size(); ++i) {
      ASSERT_EQ(HashBytes(batch.keys[i]), batch.words[i]);
      seen[std::string(batch.keys[i])] =
          std::string(batch.values[2 * i]) + '|' + std::string(batch.values[2 * i + 1]);
    }
    ASSERT_TRUE(
        table->InsertOrAssign({nullptr, keys.data(), 3}, {nullptr, values.data()}, nullptr).ok());
  }
  EXPECT_EQ(seen, (std::map<std::string, std::string>{
                      {"", large + "|"}, {nul, "|" + nul}, {large, "a|b"}}));
}

}  // namespace
}  // namespace de::engine::testing
