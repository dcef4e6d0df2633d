// Large, page-aligned memory directly from the operating system. Untouched pages cost nothing,
// large blocks request huge pages, and freed blocks return to the system at once.
#ifndef DE_CORE_ENGINE_PAGE_MEMORY_H_
#define DE_CORE_ENGINE_PAGE_MEMORY_H_

#include <cstddef>
#include <utility>

namespace de::engine {

/// Owns one block of zeroed memory, aligned at least to a cache line. Throws std::bad_alloc.
class PageMemory {
 public:
  PageMemory() noexcept = default;
  explicit PageMemory(size_t bytes);
  ~PageMemory() { Release(); }
  PageMemory(PageMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        bytes_(std::exchange(other.bytes_, 0)),
        mapping_(std::exchange(other.mapping_, nullptr)),
        mapped_(std::exchange(other.mapped_, 0)) {}
  PageMemory& operator=(PageMemory&& other) noexcept {
    if (this != &other) {
      Release();
      data_ = std::exchange(other.data_, nullptr);
      bytes_ = std::exchange(other.bytes_, 0);
      mapping_ = std::exchange(other.mapping_, nullptr);
      mapped_ = std::exchange(other.mapped_, 0);
    }
    return *this;
  }

  char* data() const noexcept { return data_; }
  size_t bytes() const noexcept { return bytes_; }

  static constexpr size_t kPage = 4096;
  /// Blocks of at least this size request huge pages. For smaller blocks, a half-used huge page
  /// would waste more than it saves in TLB misses.
  static constexpr size_t kHugeBlock = size_t{4} << 20;

  /// Large blocks take memory in multiples of this size.
  static constexpr size_t kHugePage = size_t{2} << 20;

  /// Makes the operating system map [at, at + bytes) now, so that later writes cause no page fault.
  /// Other threads may use the memory meanwhile. Has no effect if the system does not support it.
  static void Populate(char* at, size_t bytes) noexcept;

  /// Returns the memory of [at, at + bytes) to the system. It reads as zeros afterwards.
  static void Discard(char* at, size_t bytes) noexcept;

 private:
  void Release() noexcept;

  char* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;  ///< result of mmap; nullptr for a small block, which is on the heap
  size_t mapped_ = 0;        ///< bytes at `mapping_`
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PAGE_MEMORY_H_
