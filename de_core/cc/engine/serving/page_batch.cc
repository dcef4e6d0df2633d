#include "de_core/cc/engine/serving/page_batch.h"

#include <sys/mman.h>

#include <algorithm>

#include "de_core/cc/engine/memory/page_memory.h"

namespace de::engine {

// On systems with greater pages, a request for a part of a page reads the page.
constexpr uintptr_t kPage = PageMemory::kPage;

void PageBatch::Add(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t page = begin / kPage; page * kPage < begin + bytes; ++page) {
    if (pages_.empty() || pages_.back() != page) pages_.push_back(page);
  }
}

void PageBatch::Request() noexcept {
  std::sort(pages_.begin(), pages_.end());
  pages_.erase(std::unique(pages_.begin(), pages_.end()), pages_.end());
  for (size_t i = 0; i < pages_.size();) {
    size_t end = i + 1;
    while (end < pages_.size() && pages_[end] == pages_[end - 1] + 1) ++end;
    (void)::madvise(reinterpret_cast<void*>(pages_[i] * kPage), (end - i) * kPage, MADV_WILLNEED);
    i = end;
  }
  pages_.clear();
}

}  // namespace de::engine
