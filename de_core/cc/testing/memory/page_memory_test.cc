// Memory from the operating system: zeroed, aligned, moved, and partly released.
#include "de_core/cc/engine/memory/page_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace de::engine {
namespace {

class PageMemoryOfSize : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, PageMemoryOfSize,
                         ::testing::Values(1, 64, 4096, 65535, 65536, 1000000, (4 << 20) - 1,
                                           (4 << 20), (9 << 20) + 5));

TEST_P(PageMemoryOfSize, IsAlignedZeroedAndWritable) {
  for (int round = 0; round < 3; ++round) {
    const PageMemory memory(GetParam());
    ASSERT_EQ(memory.bytes(), GetParam());
    ASSERT_EQ(reinterpret_cast<uintptr_t>(memory.data()) % 64, 0U);
    ASSERT_TRUE(
        std::all_of(memory.data(), memory.data() + memory.bytes(), [](char c) { return c == 0; }));
    // The next round would find these bytes if memory were reused without zeroing.
    std::memset(memory.data(), 1, memory.bytes());
  }
}

TEST_P(PageMemoryOfSize, MovesWithoutCopying) {
  PageMemory memory(GetParam());
  char* const at = memory.data();
  at[0] = 5;
  PageMemory moved(std::move(memory));
  EXPECT_EQ(moved.data(), at);
  PageMemory assigned(100);
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data(), at);
  EXPECT_EQ(assigned.bytes(), GetParam());
  EXPECT_EQ(at[0], 5);
}

TEST(PageMemory, OfNoBytesHoldsNothing) {
  EXPECT_EQ(PageMemory(0).data(), nullptr);
  EXPECT_EQ(PageMemory().bytes(), 0U);
}

TEST(PageMemory, DiscardZeroesTheRangeAndNothingElse) {
  const PageMemory memory(size_t{1} << 20);
  const size_t pages = PageMemory::kPage;
  const std::pair<size_t, size_t> ranges[] = {{0, 1},         {0, pages},         {10, 20},
                                              {pages - 1, 2}, {pages, 3 * pages}, {77, 5 * pages}};
  for (const auto& [begin, bytes] : ranges) {
    std::memset(memory.data(), 3, memory.bytes());
    PageMemory::Discard(memory.data() + begin, bytes);
    for (size_t i = 0; i < memory.bytes(); ++i) {
      ASSERT_EQ(memory.data()[i], i >= begin && i < begin + bytes ? 0 : 3) << begin << " " << i;
    }
  }
}

}  // namespace
}  // namespace de::engine
