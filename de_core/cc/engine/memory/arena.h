// The memory of one table: cells for rows and index lines, cut from blocks that are large enough
// for huge pages and shared by all shards, so that no shard holds a half-empty block of its own.
#ifndef DE_CORE_ENGINE_ARENA_H_
#define DE_CORE_ENGINE_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/memory/page_memory.h"

namespace de::engine {

/// Thread-safe; every shard of a table allocates from it, rarely and in large cells.
class Arena {
 public:
  /// `bytes`, a multiple of 64, aligned to a cache line. `zeroed` clears a cell that was used
  /// before. Throws std::bad_alloc.
  char* Allocate(size_t bytes, bool zeroed);

  /// Makes the system find memory for cells to come: up to 5 ms for a huge page, which nobody
  /// should spend while others wait for the lock that he holds. For writers, again and again,
  /// without one; it takes at most one huge page at once, and none for a small table.
  void Prefault() noexcept;

  /// Takes a cell back for the next Allocate of that size.
  void Free(char* cell, size_t bytes) noexcept;

  /// Gives the memory behind free cells back to the system. Their addresses stay reserved.
  void Trim() noexcept;

  /// Bytes of all cells handed out and not freed.
  size_t live_bytes() const noexcept;
  /// Bytes of free cells that still hold memory.
  size_t free_bytes() const noexcept;

 private:
  struct FreeCells {
    std::vector<char*> dirty;    ///< hold memory, with old contents
    std::vector<char*> trimmed;  ///< hold none, read as zeros
  };

  /// Finds memory for cells that Trim took it from, which are dirty cells then; false where nobody
  /// wants them.
  bool PrefaultTrimmed() noexcept;
  /// Remembers a free cell that holds memory; under mutex_.
  void KeepDirty(char* cell, size_t bytes) noexcept;
  size_t NextBlock(size_t bytes) const noexcept;
  void AddBlock(size_t bytes);

  mutable std::mutex mutex_;
  std::vector<PageMemory> blocks_;
  std::unordered_map<size_t, FreeCells> free_;
  char* next_ = nullptr;
  size_t left_ = 0;
  char* ready_ = nullptr;  ///< of the block in use what is before it holds memory
  PageMemory spare_;       ///< the next block, whose beginning holds memory, or none
  size_t wanted_ = 0;      ///< of which size Prefault should have cells that were trimmed, or 0
  size_t held_ = 0;        ///< bytes of all blocks
  size_t live_ = 0;
  size_t dirty_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ARENA_H_
