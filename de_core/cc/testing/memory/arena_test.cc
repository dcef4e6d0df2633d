// The table's memory: cells are aligned, zeroed on request, reused and released.
#include "de_core/cc/engine/memory/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <random>
#include <set>
#include <thread>
#include <vector>

namespace de::engine {
namespace {

bool IsZero(const char* cell, size_t bytes) {
  return std::all_of(cell, cell + bytes, [](char c) { return c == 0; });
}

/// Resident memory of this process in bytes.
size_t ResidentBytes() {
  std::FILE* file = std::fopen("/proc/self/statm", "r");
  unsigned long total = 0, resident = 0;
  if (file == nullptr || std::fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * 4096;
}

TEST(Arena, CellsAreAlignedZeroAndApart) {
  Arena arena;
  struct Cell {
    char* data;
    size_t bytes;
  };
  std::vector<Cell> cells;
  std::mt19937_64 random(1);
  size_t live = 0;
  for (int i = 0; i < 400; ++i) {
    const size_t bytes = 64 * (1 + random() % 3000);
    char* const cell = arena.Allocate(bytes, /*zeroed=*/true);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(cell) % 64, 0U);
    ASSERT_TRUE(IsZero(cell, bytes));
    std::memset(cell, 1 + i % 100, bytes);
    cells.push_back({cell, bytes});
    live += bytes;
  }
  EXPECT_EQ(arena.live_bytes(), live);
  for (size_t i = 0; i < cells.size(); ++i) {
    const char mark = static_cast<char>(1 + i % 100);
    for (size_t at = 0; at < cells[i].bytes; ++at) ASSERT_EQ(cells[i].data[at], mark);
  }
  std::sort(cells.begin(), cells.end(),
            [](const Cell& a, const Cell& b) { return a.data < b.data; });
  for (size_t i = 1; i < cells.size(); ++i) {
    ASSERT_LE(cells[i - 1].data + cells[i - 1].bytes, cells[i].data);
  }
}

TEST(Arena, AFreeCellIsHandedOutAgainAndClearedWhenAsked) {
  Arena arena;
  char* const cell = arena.Allocate(8192, true);
  std::memset(cell, 7, 8192);
  arena.Free(cell, 8192);
  EXPECT_EQ(arena.live_bytes(), 0U);
  EXPECT_EQ(arena.free_bytes(), 8192U);
  EXPECT_NE(arena.Allocate(4096, true), cell) << "a cell serves its own size only";
  char* const again = arena.Allocate(8192, true);
  EXPECT_EQ(again, cell);
  EXPECT_TRUE(IsZero(again, 8192));
  EXPECT_EQ(arena.free_bytes(), 0U);
}

TEST(Arena, ACellLargerThanABlockIsServed) {
  Arena arena;
  constexpr size_t kBytes = size_t{300} << 20;
  char* const cell = arena.Allocate(kBytes, false);
  cell[0] = 1;
  cell[kBytes - 1] = 1;
  char* const next = arena.Allocate(64, true);
  EXPECT_TRUE(next < cell || next >= cell + kBytes);
}

TEST(Arena, TrimGivesMemoryBackAndSparesNeighbours) {
  Arena arena;
  // not a multiple of the page size: neighbors share a page
  constexpr size_t kBytes = (size_t{128} << 10) + 64;
  constexpr size_t kCells = 400;
  std::vector<char*> cells;
  for (size_t i = 0; i < kCells; ++i) {
    cells.push_back(arena.Allocate(kBytes, false));
    std::memset(cells.back(), 9, kBytes);
  }
  const size_t before = ResidentBytes();
  for (size_t i = 0; i < kCells; ++i) {
    if (i % 4 != 0) arena.Free(cells[i], kBytes);
  }
  arena.Trim();
  EXPECT_EQ(arena.free_bytes(), 0U);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(ResidentBytes(), before - kCells * kBytes / 2);
#else
  (void)before;
#endif
  for (size_t i = 0; i < kCells; i += 4) {
    ASSERT_TRUE(std::all_of(cells[i], cells[i] + kBytes, [](char c) { return c == 9; })) << i;
  }
  for (size_t i = 0; i < kCells / 2; ++i) {
    char* const cell = arena.Allocate(kBytes, true);
    ASSERT_TRUE(IsZero(cell, kBytes));
    std::memset(cell, 5, kBytes);
  }
  for (size_t i = 0; i < kCells; i += 4) {
    ASSERT_TRUE(std::all_of(cells[i], cells[i] + kBytes, [](char c) { return c == 9; })) << i;
  }
}

TEST(Arena, ThreadsGetCellsOfTheirOwn) {
  Arena arena;
  std::vector<std::thread> threads;
  std::atomic<int> ready{0};
  for (int id = 1; id <= 4; ++id) {
    threads.emplace_back([&arena, &ready, id] {
      for (++ready; ready < 4;) std::this_thread::yield();
      std::mt19937_64 random(static_cast<uint64_t>(id));
      std::vector<std::pair<char*, size_t>> mine;
      for (int step = 0; step < 20000; ++step) {
        if (random() % 3 != 0 || mine.empty()) {
          const size_t bytes = 64 << (random() % 5);
          char* const cell = arena.Allocate(bytes, false);
          std::memset(cell, id, bytes);
          mine.emplace_back(cell, bytes);
        } else {
          const auto [cell, bytes] = mine.back();
          mine.pop_back();
          for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(cell[i], id);
          arena.Free(cell, bytes);
        }
      }
      for (const auto& [cell, bytes] : mine) arena.Free(cell, bytes);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(arena.live_bytes(), 0U);
}

bool HoldsMemory(const char* at, size_t bytes) {
  const uintptr_t page = reinterpret_cast<uintptr_t>(at) / PageMemory::kPage * PageMemory::kPage;
  const size_t pages =
      (reinterpret_cast<uintptr_t>(at) + bytes - page + PageMemory::kPage - 1) / PageMemory::kPage;
  std::vector<unsigned char> resident(pages);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(page), pages * PageMemory::kPage, resident.data()), 0);
  return std::all_of(resident.begin(), resident.end(), [](unsigned char c) { return c & 1; });
}

TEST(Arena, PrefaultedCellsHoldMemoryAndReadAsZeros) {
  PageMemory probe(PageMemory::kHugeBlock);
  PageMemory::Populate(probe.data(), PageMemory::kPage);
  if (!HoldsMemory(probe.data(), PageMemory::kPage)) GTEST_SKIP() << "needs Linux 5.14";
  constexpr size_t kCell = size_t{128} << 10;
  Arena arena;
  arena.Prefault();  // does nothing for an empty table
  for (int i = 0; i < 64; ++i) std::memset(arena.Allocate(kCell, true), 1, kCell);
  std::set<char*> cells;
  for (int i = 0; i < 300; ++i) {  // several blocks
    arena.Prefault();
    arena.Prefault();
    char* const cell = arena.Allocate(kCell, true);
    ASSERT_TRUE(HoldsMemory(cell, kCell)) << i;
    ASSERT_TRUE(cells.insert(cell).second);
    ASSERT_TRUE(IsZero(cell, kCell)) << i;
    std::memset(cell, 1, kCell);
  }
  EXPECT_EQ(arena.live_bytes(), 364 * kCell);
}

}  // namespace
}  // namespace de::engine
