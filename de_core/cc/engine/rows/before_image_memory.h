// Memory for the row copies of a consistent save. A shard takes it in chunks, which hold several
// copies. A shard that the save has already read returns its chunks to other shards.
#ifndef DE_CORE_ENGINE_BEFORE_IMAGE_MEMORY_H_
#define DE_CORE_ENGINE_BEFORE_IMAGE_MEMORY_H_

#include <algorithm>
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "de_core/cc/engine/memory/page_memory.h"

namespace de::engine {

/// Thread-safe. Chunks have one size. The destructor returns all memory to the system.
class BeforeImageMemory {
 public:
  /// `chunk_bytes` must be a multiple of 8.
  explicit BeforeImageMemory(size_t chunk_bytes) noexcept : chunk_bytes_(chunk_bytes) {}

  /// Returns a chunk, aligned to 8 bytes, with undefined contents. Throws std::bad_alloc.
  char* Take() {
    while (true) {
      {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (!free_.empty()) {
          char* const chunk = free_.back();
          free_.pop_back();
          return chunk;
        }
      }
      AddBlock();
    }
  }

  void Give(const std::vector<char*>& chunks) noexcept {
    const std::lock_guard<std::mutex> guard(mutex_);
    free_.insert(free_.end(), chunks.begin(), chunks.end());  // AddBlock reserved space for all
  }

  /// Makes the operating system map `bytes`, at most kAhead, for future chunks. That takes longer
  /// than copying rows, so the save does it for the writers. Throws std::bad_alloc.
  void Prepare(size_t bytes) {
    for (bytes = std::min(bytes, kAhead);; AddBlock()) {
      const std::lock_guard<std::mutex> guard(mutex_);
      if (free_.size() * chunk_bytes_ >= bytes) return;
    }
  }

 private:
  static constexpr size_t kBlock = size_t{1} << 20;
  static constexpr size_t kAhead = 8 * kBlock;

  void AddBlock() {
    const size_t chunks = std::max<size_t>(kBlock / chunk_bytes_, 1);
    PageMemory block(chunks * chunk_bytes_);
    char* const data = block.data();
    // Map all pages at once: one page fault after another takes twice as long.
    PageMemory::Populate(data, block.bytes());
    const std::lock_guard<std::mutex> guard(mutex_);
    free_.reserve((blocks_.size() + 1) * chunks);
    blocks_.push_back(std::move(block));
    for (size_t i = chunks; i-- > 0;) free_.push_back(data + i * chunk_bytes_);
  }

  const size_t chunk_bytes_;
  std::mutex mutex_;
  std::vector<PageMemory> blocks_;
  std::vector<char*> free_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_BEFORE_IMAGE_MEMORY_H_
