#include "de_core/cc/engine/memory/arena.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <utility>

namespace de::engine {
namespace {

// Blocks grow with the table: large tables need few blocks, and small tables reserve little.
constexpr size_t kSmallestBlock = size_t{1} << 20;
constexpr size_t kLargestBlock = size_t{256} << 20;
// Smallest size of a new block once the table's blocks have half of this size in total.
constexpr size_t kHugeBlock = PageMemory::kHugeBlock;
// Prefault maps this many bytes before a writer needs them. A writer uses fewer while it holds a
// lock, so that it meets no page fault there.
constexpr size_t kAhead = PageMemory::kHugePage;

}  // namespace

char* Arena::Allocate(size_t bytes, bool zeroed) {
  const std::lock_guard<std::mutex> guard(mutex_);
  const auto cells = free_.find(bytes);
  if (cells != free_.end()) {
    std::vector<char*>& dirty = cells->second.dirty;
    std::vector<char*>& trimmed = cells->second.trimmed;
    std::vector<char*>& from = dirty.empty() ? trimmed : dirty;
    if (!from.empty()) {
      char* cell = from.back();
      from.pop_back();
      live_ += bytes;
      if (&from == &dirty) {
        dirty_ -= bytes;
        if (zeroed) std::memset(cell, 0, bytes);
      }
      return cell;
    }
  }
  if (left_ < bytes) AddBlock(bytes);
  char* cell = next_;
  next_ += bytes;
  left_ -= bytes;
  live_ += bytes;
  return cell;
}

size_t Arena::NextBlock(size_t bytes) const noexcept {
  const size_t least = held_ < kHugeBlock / 2 ? kSmallestBlock : kHugeBlock;
  return std::max(bytes, std::clamp(held_ / 2, least, kLargestBlock));
}

void Arena::AddBlock(size_t bytes) {
  // The unused end of the old block is never touched, so it uses addresses but no memory.
  if (spare_.bytes() >= bytes) {
    blocks_.push_back(std::move(spare_));
    spare_ = PageMemory();
    ready_ = blocks_.back().data() + kAhead;
  } else {
    blocks_.emplace_back(NextBlock(bytes));
    ready_ = blocks_.back().data();
  }
  next_ = blocks_.back().data();
  left_ = blocks_.back().bytes();
  held_ += left_;
}

void Arena::Prefault() noexcept {
  char* from = nullptr;
  size_t bytes = 0;
  {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (blocks_.empty() || blocks_.back().bytes() < kHugeBlock) return;
    char* const end = next_ + left_;
    // Memory before `ready_` is populated, and memory before `next_` is in use.
    from = std::max(ready_, next_);
    if (from < std::min(next_ + kAhead, end)) {
      bytes = std::min(PageMemory::kHugePage, static_cast<size_t>(end - from));
      ready_ = from + bytes;
    } else if (left_ < kAhead && spare_.bytes() == 0) {
      try {
        spare_ = PageMemory(NextBlock(0));
      } catch (const std::bad_alloc&) {
        return;  // a later Allocate reports the lack of memory
      }
      from = spare_.data();
      bytes = kAhead;
    } else {
      return;
    }
  }
  PageMemory::Populate(from, bytes);
}

void Arena::Free(char* cell, size_t bytes) noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  live_ -= bytes;
  try {
    free_[bytes].dirty.push_back(cell);
    dirty_ += bytes;
  } catch (const std::bad_alloc&) {
    // There is no memory to record the free cell. It is lost until the table is destroyed.
  }
}

void Arena::Trim() noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  struct Cell {
    char* at;
    size_t bytes;
  };
  std::vector<Cell> cells;
  try {
    for (auto& [bytes, free] : free_) {
      if (bytes < PageMemory::kPage * 2) continue;
      free.trimmed.reserve(free.trimmed.size() + free.dirty.size());
      for (char* cell : free.dirty) cells.push_back({cell, bytes});
    }
  } catch (const std::bad_alloc&) {
    return;  // leave the cells as they are
  }
  std::sort(cells.begin(), cells.end(),
            [](const Cell& left, const Cell& right) { return left.at < right.at; });
  // Discard neighboring cells together. A huge page discarded in parts would be split into small
  // pages.
  for (size_t i = 0; i < cells.size();) {
    char* const from = cells[i].at;
    char* end = from;
    for (; i < cells.size() && cells[i].at == end; ++i) end += cells[i].bytes;
    PageMemory::Discard(from, static_cast<size_t>(end - from));
    dirty_ -= static_cast<size_t>(end - from);
  }
  for (auto& [bytes, free] : free_) {
    if (bytes < PageMemory::kPage * 2) continue;
    free.trimmed.insert(free.trimmed.end(), free.dirty.begin(), free.dirty.end());
    free.dirty.clear();
    // Allocate takes the last element. Sort descending, so that it gets ascending addresses.
    std::sort(free.trimmed.begin(), free.trimmed.end(), std::greater<>());
  }
}

size_t Arena::live_bytes() const noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  return live_;
}

size_t Arena::free_bytes() const noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  return dirty_;
}

}  // namespace de::engine
