#include "de_core/cc/engine/memory/mapped_range.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <mutex>

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {

/// A watched range. The handler reads it without a lock, so a slot is never freed, only used again.
struct MappedRange::Slot {
  std::atomic<uint64_t> changes{0};  ///< odd while `begin` and `end` change
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> lost{false};
  bool used = false;     ///< guarded by MappedRanges::mutex
  Slot* next = nullptr;  ///< constant once the slot is in the list

  void Set(uintptr_t from, uintptr_t to) noexcept {
    ++changes;
    begin = from;
    end = to;
    lost = false;
    ++changes;
  }

  /// Returns the end of the range if it contains the address, otherwise 0. A range that changes
  /// meanwhile contains no address that is being read.
  uintptr_t EndIfContains(uintptr_t at) const noexcept {
    const uint64_t before = changes;
    const uintptr_t from = begin, to = end;
    return before % 2 == 0 && changes == before && from <= at && at < to ? to : 0;
  }
};

/// All watched ranges, and the handler. Everything that the handler uses is async-signal-safe.
struct MappedRanges {
  using Slot = MappedRange::Slot;
  static inline std::mutex mutex;  ///< held by Acquire and Release; never by the handler
  static inline std::atomic<Slot*> first{nullptr};
  static inline bool is_installed = false;    ///< guarded by `mutex`
  static inline struct sigaction previous{};  ///< constant once the handler is installed
  static inline uintptr_t page_bytes = 0;     ///< constant once the handler is installed

  static_assert(std::atomic<uintptr_t>::is_always_lock_free &&
                    std::atomic<bool>::is_always_lock_free,
                "a handler may only use atomics without locks");

  static void Install() noexcept {
    if (is_installed) return;
    page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
    struct sigaction own{};
    own.sa_sigaction = OnBusError;
    own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    ::sigemptyset(&own.sa_mask);
    (void)::sigaction(SIGBUS, nullptr, &previous);
    is_installed = ::sigaction(SIGBUS, &own, nullptr) == 0;
  }

  static Slot* Acquire(const char* data, size_t size) {
    const auto begin = reinterpret_cast<uintptr_t>(data);
    const std::lock_guard<std::mutex> guard(mutex);
    Install();
    Slot* slot = first;
    while (slot != nullptr && slot->used) slot = slot->next;
    if (slot == nullptr) {
      slot = new Slot;
      slot->next = first;
      first = slot;
    }
    slot->used = true;
    slot->Set(begin, begin + size);
    return slot;
  }

  static void Release(Slot* slot) noexcept {
    const std::lock_guard<std::mutex> guard(mutex);
    slot->Set(0, 0);
    slot->used = false;
  }

  static void OnBusError(int number, siginfo_t* info, void* context) {
    const int error = errno;
    const bool is_ours =
        info->si_code == BUS_ADRERR && ReadAsZeros(reinterpret_cast<uintptr_t>(info->si_addr));
    if (!is_ours) CallPrevious(number, info, context);
    errno = error;
  }

  /// Maps zeros from the page of the address to the end of its range: a file that lost a page has
  /// no later pages either. Returns false if the address is in no range.
  static bool ReadAsZeros(uintptr_t at) noexcept {
    for (Slot* slot = first; slot != nullptr; slot = slot->next) {
      const uintptr_t end = slot->EndIfContains(at);
      if (end == 0) continue;
      slot->lost = true;  // before the zeros: no reader of zeros may find the range intact
      const uintptr_t page = at - at % page_bytes;
      return ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
    }
    return false;
  }

  static void CallPrevious(int number, siginfo_t* info, void* context) {
    const bool is_sent = info->si_code <= 0;  // by kill() or raise()
    if (previous.sa_handler == SIG_IGN && is_sent) return;
    if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) {
      if ((previous.sa_flags & SA_SIGINFO) == 0) return previous.sa_handler(number);
      return previous.sa_sigaction(number, info, context);
    }
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    (void)::sigaction(number, &standard, nullptr);
    (void)::raise(number);  // blocked until the handler returns, then ends the process
  }
};

Status MappedRange::Watch(const char* data, size_t size,
                          std::unique_ptr<MappedRange>* range) noexcept {
  return Guarded([&] {
    std::unique_ptr<MappedRange> watched(new MappedRange);
    watched->data_ = data;
    watched->size_ = size;
    watched->slot_ = MappedRanges::Acquire(data, size);
    watched->tail_ = watched->ReadTail();
    *range = std::move(watched);
    return Status::Ok();
  });
}

MappedRange::~MappedRange() {
  if (slot_ != nullptr) MappedRanges::Release(slot_);
}

MappedRange::Tail MappedRange::ReadTail() const noexcept {
  Tail tail{};
  const size_t bytes = std::min(size_, tail.size());
  const volatile char* const from = data_ + size_ - bytes;  // volatile: the file may change
  for (size_t i = 0; i < bytes; ++i) tail[i] = from[i];
  return tail;
}

bool MappedRange::intact() const noexcept {
  // Orders the caller's reads before the ones here. ThreadSanitizer does not know fences.
#if defined(__SANITIZE_THREAD__)
  asm volatile("" ::: "memory");
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
  const bool same = ReadTail() == tail_;
  return same && !slot_->lost;
}

}  // namespace de::engine
