// A reader-writer lock that prefers writers. A thread takes it once for hundreds of keys and holds
// it for microseconds, so a waiting thread first spins, then yields, then sleeps.
#ifndef DE_CORE_ENGINE_SHARD_LOCK_H_
#define DE_CORE_ENGINE_SHARD_LOCK_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <shared_mutex>
#include <thread>

namespace de::engine {

class alignas(64) ShardLock {
 public:
  bool try_lock_shared() noexcept {
    if (state_.fetch_add(kReader, std::memory_order_acquire) & kWriter) {
      state_.fetch_sub(kReader, std::memory_order_relaxed);
      return false;
    }
    return true;
  }

  void lock_shared() noexcept {
    if (try_lock_shared()) return;
    waiting_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t tries = 0; !try_lock_shared(); ++tries) {
      while (state_.load(std::memory_order_relaxed) & kWriter) Wait(tries++);
    }
    waiting_.fetch_sub(1, std::memory_order_relaxed);
  }

  /// For a writer that is about to take the lock again: lets waiting readers go first, for at most
  /// kPatience tries.
  void LetReadersIn() const noexcept {
    for (uint32_t tries = 0; tries < kPatience; ++tries) {
      if (waiting_.load(std::memory_order_relaxed) == 0) return;
      Wait(tries);
    }
  }

  void unlock_shared() noexcept { state_.fetch_sub(kReader, std::memory_order_release); }

  void lock() noexcept {
    // Once the flag is set, new readers wait. Then wait until the readers inside have left.
    const uint32_t before = state_.fetch_or(kWriter, std::memory_order_acquire);
    if (before == 0) return;
    if (before & kWriter) {
      uint32_t tries = 0;
      do {
        while (state_.load(std::memory_order_relaxed) & kWriter) Wait(tries++);
      } while (state_.fetch_or(kWriter, std::memory_order_acquire) & kWriter);
    }
    for (uint32_t tries = 0; state_.load(std::memory_order_acquire) != kWriter;) Wait(tries++);
  }

  /// Succeeds only if the lock is free.
  bool try_lock() noexcept {
    uint32_t nobody = 0;
    return state_.compare_exchange_strong(nobody, kWriter, std::memory_order_acquire,
                                          std::memory_order_relaxed);
  }

  void unlock() noexcept { state_.fetch_and(~kWriter, std::memory_order_release); }

 private:
  static constexpr uint32_t kWriter = 1;
  static constexpr uint32_t kReader = 2;
  static constexpr uint32_t kPatience = 256;

  static void Wait(uint32_t tries) noexcept {
    if (tries < 64) {
#if defined(__x86_64__)
      __builtin_ia32_pause();
#endif
    } else if (tries < 4096) {
      // Do not sleep yet: a sleep takes longer than a writer waits in LetReadersIn, so a sleeping
      // reader would miss that chance every time.
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }

  std::atomic<uint32_t> state_{0};
  std::atomic<uint32_t> waiting_{0};  ///< number of readers that wait for a writer
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SHARD_LOCK_H_
