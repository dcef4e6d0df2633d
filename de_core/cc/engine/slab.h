// Rows of one shard in chunks that double in size: a row's address never changes while the slab
// lives, growth copies nothing, and the address is a table look-up and a multiplication away.
#ifndef DE_CORE_ENGINE_SLAB_H_
#define DE_CORE_ENGINE_SLAB_H_

#include <cstdint>
#include <new>
#include <vector>

#include "de_core/cc/engine/page_memory.h"

namespace de::engine {

class Slab {
 public:
  explicit Slab(size_t stride) noexcept : stride_(stride) {
    while (first_log2_ < 12 && (stride << (first_log2_ + 1)) <= kFirstChunkBytes) ++first_log2_;
  }

  /// All it takes to find a row; readers keep it at hand for a batch.
  struct Map {
    char* const* origins;
    size_t stride;
    uint32_t first_log2;

    char* Row(uint32_t row) const noexcept {
      const uint32_t biased = row + (1U << first_log2);
      const uint32_t chunk = 31U - static_cast<uint32_t>(__builtin_clz(biased)) - first_log2;
      return origins[chunk] + static_cast<size_t>(row) * stride;
    }
  };

  Map map() const noexcept { return {origins_, stride_, first_log2_}; }
  char* Row(uint32_t row) const noexcept { return map().Row(row); }

  /// Takes a free row, an erased one first. Its bytes are whatever they last were.
  uint32_t Allocate() {
    if (!free_.empty()) {
      const uint32_t row = free_.back();
      free_.pop_back();
      return row;
    }
    if (used_ == capacity_) AddChunk();
    return used_++;
  }

  void Free(uint32_t row) { free_.push_back(row); }

  /// Makes room for `rows` rows in total.
  void Reserve(uint64_t rows) {
    while (capacity_ < rows) AddChunk();
  }

  size_t stride() const noexcept { return stride_; }
  /// Rows ever handed out; rows [0, used) have addresses.
  uint32_t used() const noexcept { return used_; }
  size_t free_rows() const noexcept { return free_.size(); }
  size_t bytes() const noexcept {
    return static_cast<size_t>(used_) * stride_ + free_.capacity() * sizeof(uint32_t);
  }

  /// Appends an untouched row `used` more times (to copy another slab row by row).
  void Resize(uint32_t used) {
    Reserve(used);
    used_ = used;
  }
  void CopyFreeList(const Slab& other) { free_ = other.free_; }

 private:
  static constexpr size_t kFirstChunkBytes = 4096;

  void AddChunk() {
    const auto chunk = static_cast<uint32_t>(chunks_.size());
    if (chunk + first_log2_ >= 31) throw std::bad_alloc();
    const size_t rows = size_t{1} << (first_log2_ + chunk);
    const size_t start = rows - (size_t{1} << first_log2_);
    chunks_.emplace_back(rows * stride_);
    // The origin is where row 0 would lie if the chunk began there: may point before the block,
    // so it is computed as an integer.
    origins_[chunk] = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(chunks_.back().data()) -
                                              start * stride_);
    capacity_ += rows;
  }

  size_t stride_;
  uint32_t first_log2_ = 0;
  uint32_t used_ = 0;
  uint64_t capacity_ = 0;
  char* origins_[32] = {};
  std::vector<PageMemory> chunks_;
  std::vector<uint32_t> free_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SLAB_H_
