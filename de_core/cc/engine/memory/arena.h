// The memory of one table: cells for rows and index lines. Cells are cut from blocks that are large
// enough for huge pages. All shards share the blocks, so that no shard has a half-empty block of
// its own.
#ifndef DE_CORE_ENGINE_ARENA_H_
#define DE_CORE_ENGINE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/memory/page_memory.h"

namespace de::engine {

/// Thread-safe. Every shard of a table allocates from it, rarely and in large cells.
class Arena {
 public:
  /// Allocates `bytes`, a multiple of 64, aligned to a cache line. With `zeroed`, the cell's bytes
  /// are 0; otherwise a reused cell keeps its old contents. Throws std::bad_alloc.
  char* Allocate(size_t bytes, bool zeroed);

  /// Makes the operating system map memory for future cells now, so that their first use causes no
  /// page fault. That takes up to 5 ms for a huge page, too long while holding a lock. So writers
  /// call it repeatedly while they hold no lock. Maps at most one huge page per call, and nothing
  /// for a small table. It does not map what Trim returned.
  void Prefault() noexcept;

  /// Frees a cell of `bytes`. A later Allocate of the same size reuses it.
  void Free(char* cell, size_t bytes) noexcept;

  /// Returns the memory of free cells to the system. Their addresses stay reserved.
  void Trim() noexcept;

  /// Bytes of all allocated cells.
  size_t live_bytes() const noexcept;
  /// Bytes of free cells that still occupy memory.
  size_t free_bytes() const noexcept;

 private:
  /// The free cells of one size.
  struct FreeCells {
    std::vector<char*> dirty;    ///< occupy memory, with old contents
    std::vector<char*> trimmed;  ///< occupy no memory, read as zeros
  };

  size_t NextBlock(size_t bytes) const noexcept;
  void AddBlock(size_t bytes);

  mutable std::mutex mutex_;
  std::vector<PageMemory> blocks_;
  std::unordered_map<size_t, FreeCells> free_;
  char* next_ = nullptr;
  size_t left_ = 0;
  char* ready_ = nullptr;  ///< end of the populated part of the current block
  PageMemory spare_;       ///< the next block, whose beginning is populated; or none
  size_t held_ = 0;        ///< bytes of all blocks
  size_t live_ = 0;
  size_t dirty_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ARENA_H_
