// Large, page-aligned memory straight from the operating system: untouched pages cost nothing,
// large blocks ask for huge pages, freed blocks go back to the system at once.
#ifndef DE_CORE_ENGINE_PAGE_MEMORY_H_
#define DE_CORE_ENGINE_PAGE_MEMORY_H_

#include <cstddef>
#include <utility>

namespace de::engine {

/// Owns one block of zeroed memory, aligned to a cache line or better. Throws std::bad_alloc.
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
  /// From this size on huge pages are asked for; below it a half-used one would waste more than the
  /// saved TLB misses are worth.
  static constexpr size_t kHugeBlock = size_t{4} << 20;

  /// The step in which large blocks take memory.
  static constexpr size_t kHugePage = size_t{2} << 20;

  /// Makes the system find memory for [at, at + bytes) now, whoever uses it meanwhile. Without
  /// effect where the system cannot.
  static void Populate(char* at, size_t bytes) noexcept;

  /// Gives the memory behind [at, at + bytes) back to the system; it reads as zeros afterwards.
  static void Discard(char* at, size_t bytes) noexcept;

 private:
  void Release() noexcept;

  char* data_ = nullptr;
  size_t bytes_ = 0;
  void* mapping_ = nullptr;  ///< what mmap returned; nullptr for small blocks from the heap
  size_t mapped_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PAGE_MEMORY_H_
