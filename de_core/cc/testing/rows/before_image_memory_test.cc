// Chunks for the copies of a consistent save: no two threads get the same chunk.
#include "de_core/cc/engine/rows/before_image_memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <set>
#include <thread>

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

TEST(BeforeImageMemory, chunks_of_any_size_are_aligned_and_apart) {
  for (const size_t bytes : {size_t{8}, size_t{24}, (size_t{1} << 20) - 8, size_t{3} << 20}) {
    BeforeImageMemory memory(bytes);
    std::set<uintptr_t> begins;
    for (size_t i = 0; i < 5; ++i) {
      char* const chunk = memory.Take();
      std::memset(chunk, '#', bytes);
      begins.insert(reinterpret_cast<uintptr_t>(chunk));
    }
    ASSERT_EQ(begins.size(), 5U);
    uintptr_t end = 0;
    for (const uintptr_t begin : begins) {
      EXPECT_EQ(begin % 8, 0U) << bytes;
      EXPECT_GE(begin, end) << bytes;
      end = begin + bytes;
    }
  }
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

TEST(BeforeImageMemory, threads_take_give_and_prepare_at_once) {
  constexpr size_t kChunk = size_t{64} << 10;
  BeforeImageMemory memory(kChunk);
  const auto work = [&](char mark) {
    for (int round = 0; round < 40; ++round) {
      std::vector<char*> chunks;
      for (int i = 0; i < 20; ++i) {
        chunks.push_back(memory.Take());
        std::memset(chunks.back(), mark, 256);
      }
      for (const char* chunk : chunks) {
        ASSERT_EQ(std::string(chunk, 256), std::string(256, mark)) << "another thread has it";
      }
      memory.Give(chunks);
    }
  };
  std::thread one(work, 'a'), two(work, 'b');
  for (int i = 0; i < 20; ++i) memory.Prepare(size_t{4} << 20);
  one.join();
  two.join();
}

}  // namespace
}  // namespace de::engine
