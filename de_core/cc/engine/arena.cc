#include "de_core/cc/engine/arena.h"

#include <algorithm>
#include <cstring>

namespace de::engine {
namespace {

// Blocks grow with the table, so that few are needed and a small table reserves little.
constexpr size_t kSmallestBlock = size_t{1} << 20;
constexpr size_t kLargestBlock = size_t{256} << 20;
// Of a table that is no longer small.
constexpr size_t kHugeBlock = PageMemory::kHugeBlock;
// What Prefault has memory found for: more than a writer takes while it holds a lock.
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
  // The rest of the old block stays untouched: it costs addresses, not memory.
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
    // Nothing is taken twice: cells may have used what lies before.
    from = std::max(ready_, next_);
    if (from < std::min(next_ + kAhead, end)) {
      bytes = std::min(PageMemory::kHugePage, static_cast<size_t>(end - from));
      ready_ = from + bytes;
    } else if (left_ < kAhead && spare_.bytes() == 0) {
      try {
        spare_ = PageMemory(NextBlock(0));
      } catch (const std::bad_alloc&) {
        return;  // whoever needs the block will say so
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
    // No memory to remember a free cell by: it is lost until the table goes.
  }
}

void Arena::Trim() noexcept {
  const std::lock_guard<std::mutex> guard(mutex_);
  for (auto& [bytes, cells] : free_) {
    if (bytes < PageMemory::kPage * 2) continue;
    try {
      cells.trimmed.reserve(cells.trimmed.size() + cells.dirty.size());
    } catch (const std::bad_alloc&) {
      continue;
    }
    for (char* cell : cells.dirty) {
      PageMemory::Discard(cell, bytes);
      cells.trimmed.push_back(cell);
      dirty_ -= bytes;
    }
    cells.dirty.clear();
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
