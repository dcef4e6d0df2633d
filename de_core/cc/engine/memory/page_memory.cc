#include "de_core/cc/engine/memory/page_memory.h"

#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <new>

namespace de::engine {
namespace {

constexpr size_t kSmallBlock = size_t{64} << 10;
#if defined(MADV_POPULATE_WRITE)
constexpr int kPopulate = MADV_POPULATE_WRITE;
#else
constexpr int kPopulate = 23;  // since Linux 5.14; older kernels refuse it
#endif
constexpr std::align_val_t kLine{64};

}  // namespace

PageMemory::PageMemory(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  if (bytes < kSmallBlock) {
    data_ = static_cast<char*>(::operator new(bytes, kLine));
    std::memset(data_, 0, bytes);
    return;
  }
  const bool huge = bytes >= kHugeBlock;
  mapped_ = huge ? bytes + kHugePage : bytes;
  mapping_ = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED) {
    mapping_ = nullptr;
    throw std::bad_alloc();
  }
  auto start = reinterpret_cast<uintptr_t>(mapping_);
  if (huge) start = (start + kHugePage - 1) / kHugePage * kHugePage;
  data_ = reinterpret_cast<char*>(start);
#ifdef MADV_HUGEPAGE
  if (huge) madvise(data_, bytes, MADV_HUGEPAGE);
#endif
}

void PageMemory::Populate(char* at, size_t bytes) noexcept { (void)madvise(at, bytes, kPopulate); }

void PageMemory::Discard(char* at, size_t bytes) noexcept {
  const uintptr_t end = reinterpret_cast<uintptr_t>(at) + bytes;
  const uintptr_t first = (reinterpret_cast<uintptr_t>(at) + kPage - 1) / kPage * kPage;
  const uintptr_t last = end / kPage * kPage;
  // Other data may share the first and the last page, so clear only this range's part of them.
  if (first >= last || madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED) != 0) {
    std::memset(at, 0, bytes);
    return;
  }
  std::memset(at, 0, first - reinterpret_cast<uintptr_t>(at));
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
}

void PageMemory::Release() noexcept {
  if (mapping_ != nullptr) {
    munmap(mapping_, mapped_);
  } else if (data_ != nullptr) {
    ::operator delete(data_, kLine);
  }
  data_ = nullptr;
  mapping_ = nullptr;
}

}  // namespace de::engine
