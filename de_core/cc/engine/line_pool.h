// Memory for the index lines of one shard: cells of a few sizes cut from blocks that are large
// enough for huge pages, freed cells used again.
#ifndef DE_CORE_ENGINE_LINE_POOL_H_
#define DE_CORE_ENGINE_LINE_POOL_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/line_index.h"
#include "de_core/cc/engine/page_memory.h"

namespace de::engine {

class LinePool {
 public:
  /// `lines` empty index lines.
  IndexLine* Allocate(uint32_t lines) {
    std::vector<IndexLine*>& cells = free_[lines];
    if (!cells.empty()) {
      IndexLine* cell = cells.back();
      cells.pop_back();
      std::memset(static_cast<void*>(cell), 0, lines * sizeof(IndexLine));
      return cell;
    }
    if (left_ < lines) AddBlock(lines);
    IndexLine* cell = next_;
    next_ += lines;
    left_ -= lines;
    touched_ += lines * sizeof(IndexLine);
    return cell;
  }

  void Free(IndexLine* cell, uint32_t lines) { free_[lines].push_back(cell); }

  /// Bytes of all lines ever cut from the blocks.
  size_t bytes() const noexcept { return touched_; }

 private:
  void AddBlock(uint32_t lines) {
    constexpr size_t kSmallest = 4096, kLargest = size_t{8} << 20;
    const size_t wanted = std::clamp(touched_, kSmallest, kLargest);
    const size_t bytes = std::max(wanted, lines * sizeof(IndexLine));
    blocks_.emplace_back(bytes);
    next_ = reinterpret_cast<IndexLine*>(blocks_.back().data());
    left_ = static_cast<uint32_t>(bytes / sizeof(IndexLine));
  }

  std::vector<PageMemory> blocks_;
  std::unordered_map<uint32_t, std::vector<IndexLine*>> free_;
  IndexLine* next_ = nullptr;
  uint32_t left_ = 0;
  size_t touched_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_LINE_POOL_H_
