// Pages of mapped files that are read from the disk together. A page fault reads one page and waits
// for it, so a thousand faults take a thousand times the disk's latency. A disk answers a thousand
// reads that are requested together many times faster.
#ifndef DE_CORE_ENGINE_PAGE_BATCH_H_
#define DE_CORE_ENGINE_PAGE_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace de::engine {

class PageBatch {
 public:
  /// Adds the pages of [at, at + bytes). Throws std::bad_alloc.
  void Add(const void* at, size_t bytes);

  /// Requests those added pages that are not in memory, and forgets all. Does not wait for the
  /// disk. It is a hint: failures are harmless.
  void Request() noexcept;

 private:
  std::vector<uintptr_t> pages_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_PAGE_BATCH_H_
