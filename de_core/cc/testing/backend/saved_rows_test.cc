// Rows that a save has copied out of a table. The section of the file refers to the rows' data.
#include "de_core/cc/engine/backend/saved_rows.h"

#include <gtest/gtest.h>

#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

TEST(SavedRows, none_make_an_empty_section) {
  SavedRows rows;
  const RowLayout layout(KeyType::kString, DType::kString, 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(rows.count(), 0U);
    EXPECT_EQ(rows.bytes(), 0U);
    const SnapshotSection section = rows.section(layout, 3, 9);
    EXPECT_EQ(section.hash_begin, 3U);
    EXPECT_EQ(section.hash_last, 9U);
    EXPECT_EQ(section.count + section.tombstones, 0U);
    rows.Clear();
  }
}

/// Returns the contents of a section by string key: two values, or "gone".
std::map<std::string, std::string> Said(const SnapshotSection& section) {
  std::map<std::string, std::string> said;
  for (size_t i = 0; i < section.count; ++i) {
    EXPECT_EQ(HashBytes(section.keys[i]), section.words[i]);
    const std::string values =
        std::string(section.values[2 * i]) + '|' + std::string(section.values[2 * i + 1]);
    EXPECT_TRUE(said.emplace(section.keys[i], values).second);
  }
  for (size_t i = 0; i < section.tombstones; ++i) {
    EXPECT_EQ(HashBytes(section.tombstone_keys[i]), section.tombstone_words[i]);
    EXPECT_TRUE(said.emplace(section.tombstone_keys[i], "gone").second);
  }
  return said;
}

TEST(SavedRows, strings_of_rows_and_of_keys_that_are_gone_are_told_apart) {
  const auto table = MakeStrings(2);
  const std::string nul("\0a", 2), large(100000, 'x');
  const std::vector<std::string_view> keys = {"", "b", nul, large, "gone 1", "gone, which is long"};
  std::vector<std::string_view> values = {"", "", "1", "", "", nul, large, "2", "3", "4", "5", "6"};
  const auto put = [&](size_t count) {
    return table->InsertOrAssign({nullptr, keys.data(), count}, {nullptr, values.data()}, nullptr);
  };
  ASSERT_TRUE(put(6).ok());
  ASSERT_NE(Save(table.get(), ChainOf("c", false), 1), "");
  SavePoint point;
  ASSERT_TRUE(table->chains().Last("c", &point).ok());
  ASSERT_TRUE(table->Erase({nullptr, keys.data() + 4, 2}, nullptr).ok());
  ASSERT_TRUE(put(4).ok());
  SaveSelection selection;
  selection.changes_only = true;
  selection.since = point.generation;
  std::map<std::string, std::string> expected = {
      {"", "|"},          {"b", "1|"},
      {nul, "|" + nul},   {large, large + "|2"},
      {"gone 1", "gone"}, {"gone, which is long", "gone"}};
  SavedRows rows;
  for (int i = 0; i < 2; ++i) {  // the second round reuses the memory of the first
    SaveSource source(table.get());
    ASSERT_TRUE(source.Begin(selection, 0).ok());
    ASSERT_TRUE(CollectAll(&source, &rows).ok());
    EXPECT_EQ(rows.count(), 6U);
    EXPECT_GE(rows.bytes(), 2 * large.size());
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(Said(rows.section(source.layout(), 0, ~uint64_t{0})), expected);
    }
    rows.Clear();
    EXPECT_EQ(rows.count(), 0U);
    EXPECT_EQ(rows.bytes(), 0U);
    ASSERT_TRUE(table->Erase({nullptr, keys.data(), 2}, nullptr).ok());
    expected[""] = expected["b"] = "gone";
  }
}

}  // namespace
}  // namespace de::engine::testing
