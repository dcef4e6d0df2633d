// The rows of one shard, in extents: arrays of equally many rows. A row's address never changes
// while the slab lives, and growth copies no row. Finding a row takes a look into the list of
// extents and a multiplication.
#ifndef DE_CORE_ENGINE_SLAB_H_
#define DE_CORE_ENGINE_SLAB_H_

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/memory/arena.h"

namespace de::engine {

class Slab {
 public:
  /// The data needed to find a row by its number. Readers keep a copy during a batch.
  struct Map {
    char* const* extents;
    size_t stride;  ///< bytes from one row to the next
    uint32_t log2;  ///< base-2 logarithm of the rows per extent

    char* Row(uint32_t row) const noexcept { return RowIn(extents, row); }
    /// Finds a row in the extents of another shard of the table.
    char* RowIn(char* const* others, uint32_t row) const noexcept {
      return others[row >> log2] + static_cast<size_t>(row & ((1U << log2) - 1)) * stride;
    }
  };

  /// `arena` must outlive the slab.
  Slab(size_t stride, Arena* arena) noexcept : arena_(arena), stride_(stride) {
    while (log2_ < 16 && (stride << (log2_ + 1)) <= kExtentBytes) ++log2_;
  }
  ~Slab() { Release(); }
  Slab(Slab&& other) noexcept { Swap(&other); }
  Slab& operator=(Slab&& other) noexcept {
    Swap(&other);
    return *this;
  }

  /// The value of Row(0) of the result is readable even if there are no rows.
  Map map() const noexcept {
    return {extents_.empty() ? kNoExtents : extents_.data(), stride_, log2_};
  }
  char* Row(uint32_t row) const noexcept { return map().Row(row); }

  /// Allocates a row, preferably an erased one. Its bytes are undefined.
  uint32_t Allocate() {
    if (!free_.empty()) {
      const uint32_t row = free_.back();
      free_.pop_back();
      return row;
    }
    if (used_ == extents_.size() << log2_) AddExtent();
    PrefetchBytes(Row(used_) + kAhead * stride_, stride_);
    return used_++;
  }

  void Free(uint32_t row) noexcept {
    try {
      free_.push_back(row);
    } catch (const std::bad_alloc&) {
      // There is no memory to record the free row. It is lost until the slab is destroyed.
    }
  }

  /// Reserves space in the list of extents for `rows` rows in total. Until there are more, only the
  /// memory of the rows themselves can be lacking.
  void Reserve(uint64_t rows) { extents_.reserve((rows >> log2_) + 1); }

  /// Makes rows [0, other.used()) addressable and copies the list of free rows.
  void ResizeLike(const Slab& other) {
    while (extents_.size() << log2_ < other.used_) AddExtent();
    used_ = other.used_;
    free_ = other.free_;
  }

  void Swap(Slab* other) noexcept {
    std::swap(arena_, other->arena_);
    std::swap(stride_, other->stride_);
    std::swap(log2_, other->log2_);
    std::swap(used_, other->used_);
    extents_.swap(other->extents_);
    free_.swap(other->free_);
  }

  size_t stride() const noexcept { return stride_; }
  /// Number of rows ever allocated; rows [0, used) have addresses.
  uint32_t used() const noexcept { return used_; }
  size_t bytes() const noexcept {
    return static_cast<size_t>(used_) * stride_ + free_.capacity() * sizeof(uint32_t);
  }

 private:
  // Large, so that there are few extents. Small, so that a half-used extent wastes little.
  static constexpr size_t kExtentBytes = size_t{128} << 10;
  // Allocate prefetches the row that is this many rows after the one that it returns.
  static constexpr size_t kAhead = 2;
  // The widest value, as row 0 of a slab without extents: some readers load a row before they check
  // that it exists.
  alignas(64) static inline char no_row_[kMaxDim * sizeof(double)] = {};
  static inline char* const kNoExtents[1] = {no_row_};

  size_t extent_bytes() const noexcept { return ((stride_ << log2_) + 63) / 64 * 64; }

  void AddExtent() {
    // The index reserves the two largest row numbers.
    if (((extents_.size() + 1) << log2_) > 0xfffffffeULL) throw std::bad_alloc();
    if (extents_.size() == extents_.capacity()) extents_.reserve(2 * extents_.size() + 8);
    extents_.push_back(arena_->Allocate(extent_bytes(), /*zeroed=*/false));
  }

  void Release() noexcept {
    for (char* extent : extents_) arena_->Free(extent, extent_bytes());
    extents_.clear();
  }

  Arena* arena_ = nullptr;
  size_t stride_ = 0;
  uint32_t log2_ = 0;
  uint32_t used_ = 0;
  std::vector<char*> extents_;
  std::vector<uint32_t> free_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SLAB_H_
