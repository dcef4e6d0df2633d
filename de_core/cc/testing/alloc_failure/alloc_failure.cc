// The allocators of the out-of-memory tests. A separate file, so that compilers cannot inline them.
#include "de_core/cc/testing/alloc_failure/alloc_failure.h"

// NOLINTBEGIN: names that the compiler and the linker give
extern "C" void* __real_mmap(void*, size_t, int, int, int, off_t);
extern "C" void* __wrap_mmap(void* at, size_t bytes, int prot, int flags, int file, off_t offset) {
  if (de::engine::testing::Faults::Hits()) return MAP_FAILED;
  de::engine::testing::Faults::mapped += bytes;
  return __real_mmap(at, bytes, prot, flags, file, offset);
}
// NOLINTEND

void* operator new(size_t bytes) {
  void* const at = de::engine::testing::Faults::Hits() ? nullptr : std::malloc(bytes);
  if (at == nullptr) throw std::bad_alloc();
  return at;
}
void* operator new[](size_t bytes) { return ::operator new(bytes); }
void* operator new(size_t bytes, std::align_val_t align) {
  void* at = nullptr;
  if (de::engine::testing::Faults::Hits() ||
      posix_memalign(&at, static_cast<size_t>(align), bytes) != 0) {
    throw std::bad_alloc();
  }
  return at;
}
void* operator new[](size_t bytes, std::align_val_t align) { return ::operator new(bytes, align); }
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, size_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, size_t, std::align_val_t) noexcept { std::free(at); }
void operator delete[](void* at, size_t, std::align_val_t) noexcept { std::free(at); }
