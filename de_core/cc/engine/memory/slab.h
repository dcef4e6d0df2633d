// Rows of one shard in extents of equal size: a row's address never changes while the slab lives,
// growth copies nothing, and the address is a table look-up and a multiplication away.
#ifndef DE_CORE_ENGINE_SLAB_H_
#define DE_CORE_ENGINE_SLAB_H_

#include <cstdint>
#include <new>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/memory/arena.h"

namespace de::engine {

class Slab {
 public:
  /// All it takes to find a row; readers keep it at hand for a batch.
  struct Map {
    char* const* extents;
    size_t stride;
    uint32_t log2;  ///< of the rows of an extent

    char* Row(uint32_t row) const noexcept { return RowIn(extents, row); }
    /// The same in the extents of another shard of the table.
    char* RowIn(char* const* others, uint32_t row) const noexcept {
      return others[row >> log2] + static_cast<size_t>(row & ((1U << log2) - 1)) * stride;
    }
  };

  /// `arena` outlives the slab.
  Slab(size_t stride, Arena* arena) noexcept : arena_(arena), stride_(stride) {
    while (log2_ < 16 && (stride << (log2_ + 1)) <= kExtentBytes) ++log2_;
  }
  ~Slab() { Release(); }
  Slab(Slab&& other) noexcept { Swap(&other); }
  Slab& operator=(Slab&& other) noexcept {
    Swap(&other);
    return *this;
  }

  /// Its Row(0) may be called even if there is none.
  Map map() const noexcept {
    return {extents_.empty() ? kNoExtents : extents_.data(), stride_, log2_};
  }
  char* Row(uint32_t row) const noexcept { return map().Row(row); }

  /// Takes a free row, an erased one first. Its bytes are whatever they last were.
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
      // No memory to remember a free row by: it is lost until the slab goes.
    }
  }

  /// Makes room to remember `rows` rows, so that only memory itself is still to be found.
  void Reserve(uint64_t rows) { extents_.reserve((rows >> log2_) + 1); }

  /// Makes rows [0, other.used()) addressable and takes over which of them are free.
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
  /// Rows ever handed out; rows [0, used) have addresses.
  uint32_t used() const noexcept { return used_; }
  size_t bytes() const noexcept {
    return static_cast<size_t>(used_) * stride_ + free_.capacity() * sizeof(uint32_t);
  }

 private:
  // Large enough that extents are few, small enough that one that is half used wastes little.
  static constexpr size_t kExtentBytes = size_t{128} << 10;
  // Rows between asking for memory and writing it.
  static constexpr size_t kAhead = 2;
  // Where row 0 of no extent lies, for readers that look before they know that it is nobody's.
  alignas(64) static inline char no_row_[256] = {};
  static inline char* const kNoExtents[1] = {no_row_};

  size_t extent_bytes() const noexcept { return ((stride_ << log2_) + 63) / 64 * 64; }

  void AddExtent() {
    // The two largest numbers mean something else to the index.
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
