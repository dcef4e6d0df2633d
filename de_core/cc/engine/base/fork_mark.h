// Tells whether this process was forked from the process that made an object.
#ifndef DE_CORE_ENGINE_FORK_MARK_H_
#define DE_CORE_ENGINE_FORK_MARK_H_

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace de::engine {

/// Member of an object that a forked process must not use: its threads and files belong to the
/// parent, and another thread may have held its locks.
class ForkMark {
 public:
  ForkMark() noexcept : made_(Forks()) {}

  /// True in a process that was forked after the object was made.
  bool forked() const noexcept { return made_ != Forks(); }

 private:
  static std::atomic<uint32_t>& Count() noexcept {
    static std::atomic<uint32_t> count{0};
    return count;
  }
  /// Number of forks from the first process to this one.
  static uint32_t Forks() noexcept {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { Count().fetch_add(1, std::memory_order_relaxed); });
    static_cast<void>(registered);
    return Count().load(std::memory_order_relaxed);
  }

  const uint32_t made_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_FORK_MARK_H_
