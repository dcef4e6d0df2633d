// Preloaded library: makes allocations of the op library fail when a test says so. TensorFlow's own
// allocations never fail.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

namespace {

uintptr_t begin = 0, end = 0;  // address range of the op library's code
std::atomic<bool> armed{false}, fired{false};
std::atomic<long> calls{0};
long at = 0;
bool for_good = false;

int FindLibrary(dl_phdr_info* info, size_t, void*) {
  if (info->dlpi_name == nullptr || std::strstr(info->dlpi_name, "_de_ops.so") == nullptr) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD || (part.p_flags & PF_X) == 0) continue;
    begin = info->dlpi_addr + part.p_vaddr;
    end = begin + part.p_memsz;
  }
  return 1;
}

bool Fails(const void* caller) {
  const auto from = reinterpret_cast<uintptr_t>(caller);
  if (!armed.load(std::memory_order_relaxed) || from < begin || from >= end) return false;
  const long call = ++calls;
  if (for_good ? call < at : call != at) return false;
  fired = true;
  return true;
}

void* Allocate(size_t bytes, size_t align, const void* caller) {
  void* memory = nullptr;
  if (Fails(caller) || posix_memalign(&memory, std::max(align, sizeof(void*)), bytes) != 0) {
    throw std::bad_alloc();
  }
  return memory;
}

}  // namespace

extern "C" {
/// Makes the n-th allocation from now on fail, and with `forever` all later ones too. Returns 1 if
/// the op library is loaded.
int de_arm(long nth, int forever) {
  if (begin == 0) dl_iterate_phdr(FindLibrary, nullptr);
  calls = 0;
  fired = false;
  at = nth;
  for_good = forever != 0;
  armed = true;
  return begin != 0;
}
/// Ends the failures. Returns 1 if an allocation failed.
int de_disarm() {
  armed = false;
  return fired;
}
void* mmap(void* where, size_t bytes, int prot, int flags, int file, off_t offset) {
  static const auto real = reinterpret_cast<decltype(&mmap)>(dlsym(RTLD_NEXT, "mmap"));
  if (Fails(__builtin_return_address(0))) return MAP_FAILED;
  return real(where, bytes, prot, flags, file, offset);
}
}

void* operator new(size_t bytes) { return Allocate(bytes, 16, __builtin_return_address(0)); }
void* operator new[](size_t bytes) { return Allocate(bytes, 16, __builtin_return_address(0)); }
void* operator new(size_t bytes, std::align_val_t align) {
  return Allocate(bytes, static_cast<size_t>(align), __builtin_return_address(0));
}
void* operator new[](size_t bytes, std::align_val_t align) {
  return Allocate(bytes, static_cast<size_t>(align), __builtin_return_address(0));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
