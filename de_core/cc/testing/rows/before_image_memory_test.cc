// Chunks for the copies of a consistent save are used again. table_stress_test.cc uses them from
// several threads.
#include "de_core/cc/engine/rows/before_image_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace de::engine {
namespace {

TEST(BeforeImageMemory, hands_out_what_came_back_before_more) {
  BeforeImageMemory memory(size_t{64} << 10);
  std::vector<char*> first;
  for (size_t i = 0; i < 40; ++i) {
    first.push_back(memory.Take());
    std::memset(first.back(), static_cast<int>(i), size_t{64} << 10);
  }
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(first[i][12345], static_cast<char>(i));
  memory.Give(first);
  std::set<char*> known(first.begin(), first.end());
  for (size_t i = 0; i < 40; ++i) EXPECT_EQ(known.count(memory.Take()), 1U);
}

TEST(BeforeImageMemory, what_is_prepared_is_handed_out_and_not_added_to) {
  constexpr size_t kChunk = size_t{1} << 20;
  BeforeImageMemory memory(kChunk);
  memory.Prepare(0);
  memory.Prepare(size_t{1} << 40);
  std::vector<char*> chunks;
  for (size_t i = 0; i < 8; ++i) chunks.push_back(memory.Take());
  EXPECT_EQ(std::set<char*>(chunks.begin(), chunks.end()).size(), 8U);
  memory.Give(chunks);
  memory.Prepare(8 * kChunk);  // enough memory exists: the next chunk is known
  EXPECT_EQ(memory.Take(), chunks.back());
}

}  // namespace
}  // namespace de::engine
