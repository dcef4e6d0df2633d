// Rows in a slab: their addresses, their reuse, and a slab that is moved to another object.
#include "de_core/cc/engine/memory/slab.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

namespace de::engine {
namespace {

class SlabOfStride : public ::testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(Strides, SlabOfStride,
                         ::testing::Values(1, 3, 8, 128, 130, 4096, 32768, 200000));

TEST_P(SlabOfStride, RowsNeitherMoveNorOverlapWhileItGrows) {
  const size_t stride = GetParam();
  Arena arena;
  Slab slab(stride, &arena);
  const size_t count = std::max<size_t>(40, 600000 / stride);
  std::vector<char*> addresses;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t row = slab.Allocate();
    ASSERT_EQ(row, i);
    addresses.push_back(slab.Row(row));
    std::memset(slab.Row(row), static_cast<int>(i % 251), stride);
  }
  for (size_t i = 0; i < count; ++i) {
    const auto row = static_cast<uint32_t>(i);
    ASSERT_EQ(slab.Row(row), addresses[i]);
    ASSERT_EQ(slab.map().Row(row), addresses[i]);
    for (size_t c = 0; c < stride; ++c) ASSERT_EQ(addresses[i][c], static_cast<char>(i % 251));
  }
  EXPECT_EQ(slab.used(), count);
  EXPECT_GE(slab.bytes(), count * stride);
}

TEST(Slab, ErasedRowsAreReusedBeforeNewOnes) {
  Arena arena;
  Slab slab(16, &arena);
  for (int i = 0; i < 100; ++i) slab.Allocate();
  std::set<uint32_t> freed;
  for (uint32_t row = 10; row < 20; ++row) {
    slab.Free(row);
    freed.insert(row);
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(freed.erase(slab.Allocate()), 1U);
  EXPECT_EQ(slab.Allocate(), 100U);
}

TEST(Slab, ResizeLikeMakesTheSameRowsAddressableAndFree) {
  Arena arena;
  Slab slab(8, &arena);
  for (int i = 0; i < 70000; ++i) slab.Allocate();
  slab.Free(5);
  Slab wider(24, &arena);
  wider.ResizeLike(slab);
  EXPECT_EQ(wider.used(), 70000U);
  for (uint32_t row = 0; row < wider.used(); ++row) std::memset(wider.Row(row), 1, 24);
  EXPECT_EQ(wider.Allocate(), 5U);
  EXPECT_EQ(wider.Allocate(), 70000U);
}

TEST(Slab, MovingOneReturnsTheMemoryOfTheOther) {
  Arena arena;
  {
    Slab slab(64, &arena);
    for (int i = 0; i < 10000; ++i) slab.Allocate();
    const size_t live = arena.live_bytes();
    EXPECT_GE(live, 640000U);
    char* const first = slab.Row(0);
    Slab moved(std::move(slab));
    EXPECT_EQ(moved.Row(0), first);
    EXPECT_EQ(moved.used(), 10000U);
    EXPECT_EQ(arena.live_bytes(), live);
    moved = Slab(64, &arena);
    EXPECT_EQ(moved.used(), 0U);
    EXPECT_EQ(moved.Allocate(), 0U);
  }
  EXPECT_EQ(arena.live_bytes(), 0U) << "a slab that dies gives its extents back";
}

}  // namespace
}  // namespace de::engine
