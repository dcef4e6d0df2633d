// The index of rows on a disk: its memory, and string keys with equal hashes.
#include "de_core/cc/engine/tier/disk_index.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/testing/tier/equal_hashes.h"

namespace de::engine {
namespace {

std::unique_ptr<DiskIndex> Make(KeyType key_type) {
  std::unique_ptr<DiskIndex> index;
  EXPECT_TRUE(DiskIndex::Create(key_type, &index).ok());
  return index;
}

TEST(DiskIndexTest, ARowTakesAtMost32BytesAnd40WithAStringKeyOfAnyLength) {
  constexpr size_t kRows = 600'000, kBatch = 4000, kFreeLines = size_t{1} << 20;
  for (const size_t length : {size_t{0}, size_t{20}, size_t{300}}) {
    const auto index = Make(length == 0 ? KeyType::kInt64 : KeyType::kString);
    std::vector<int64_t> ints(kBatch);
    std::vector<std::string> texts(kBatch);
    std::vector<std::string_view> views(kBatch);
    for (size_t at = 0; at < kRows; at += kBatch) {
      for (size_t i = 0; i < kBatch; ++i) {
        ints[i] = static_cast<int64_t>(at + i);
        texts[i] = std::to_string(at + i);
        texts[i].resize(length, 'k');
        views[i] = texts[i];
      }
      const Keys keys{length == 0 ? ints.data() : nullptr, length == 0 ? nullptr : views.data(),
                      kBatch};
      ASSERT_TRUE(index->Assign(keys, ints).ok());
      ASSERT_LE(index->bytes(), (length == 0 ? 32 : 40) * (at + kBatch) + kFreeLines)
          << at + kBatch << " rows with keys of " << length << " bytes";
    }
  }
}

TEST(DiskIndexTest, KeysWithEqualHashesHavePlacesOfTheirOwn) {
  const std::string a = testing::TextOfGroup(1, 7), b = testing::TextOfGroup(2, 7),
                    c = testing::TextOfGroup(3, 7);
  ASSERT_EQ(HashBytes(a), HashBytes(b));
  ASSERT_EQ(HashBytes(a), HashBytes(c));
  const auto index = Make(KeyType::kString);
  const auto expect = [&](const std::string& text, int64_t place) {
    const std::string_view view = text;
    DiskIndex::Places places;
    ASSERT_TRUE(index->Find({nullptr, &view, 1}, nullptr, &places).ok());
    EXPECT_EQ(places.found[0], place != 0);
    if (place != 0) {
      EXPECT_EQ(places.packed[0], place);
    }
  };
  const std::string_view both[] = {a, b}, third = c;
  ASSERT_TRUE(index->Assign({nullptr, both, 2}, {1, 2}).ok());
  expect(a, 1);
  expect(b, 2);
  expect(c, 0);
  ASSERT_TRUE(index->Erase({nullptr, both, 1}).ok());
  expect(a, 0);
  expect(b, 2);
  ASSERT_TRUE(index->Assign({nullptr, &third, 1}, {3}).ok());
  ASSERT_TRUE(index->Assign({nullptr, both, 2}, {4, 5}).ok());
  expect(a, 4);
  expect(b, 5);
  expect(c, 3);
  uint64_t last = 0;
  size_t count = 0;
  std::vector<DiskIndex::Entry> entries;
  for (ExportCursor cursor; !cursor.done;) {
    ASSERT_TRUE(index->Export(&cursor, &entries, &last).ok());
    count += entries.size();
  }
  EXPECT_EQ(count, 3U);
  ASSERT_TRUE(index->Erase({nullptr, both, 2}).ok());
  ASSERT_TRUE(index->Erase({nullptr, &third, 1}).ok());
  EXPECT_TRUE(index->empty());
}

}  // namespace
}  // namespace de::engine
