#include "de_core/cc/engine/serving/page_batch.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

namespace de::engine {
namespace {

uintptr_t PageBytes() noexcept {
  static const auto bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

void PageBatch::Add(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t page = begin / PageBytes(); page * PageBytes() < begin + bytes; ++page) {
    if (pages_.empty() || pages_.back() != page) pages_.push_back(page);
  }
}

void PageBatch::Request() noexcept {
  std::sort(pages_.begin(), pages_.end());
  pages_.erase(std::unique(pages_.begin(), pages_.end()), pages_.end());
  for (size_t i = 0; i < pages_.size();) {
    size_t end = i + 1;
    while (end < pages_.size() && pages_[end] == pages_[end - 1] + 1) ++end;
    (void)::madvise(reinterpret_cast<void*>(pages_[i] * PageBytes()), (end - i) * PageBytes(),
                    MADV_WILLNEED);
    i = end;
  }
  pages_.clear();
}

}  // namespace de::engine
