#include "de_core/cc/kernels/background/work_clock.h"

#include <algorithm>
#include <mutex>
#include <new>

#if defined(__linux__)
#include <pthread.h>
#include <time.h>
#endif

namespace de::kernels {
namespace {

constexpr uint64_t kBillion = 1000000000;

uint64_t NanosAt(int clock) noexcept {
#if defined(__linux__)
  timespec time;
  if (::clock_gettime(clock, &time) == 0) {
    return static_cast<uint64_t>(time.tv_sec) * kBillion + static_cast<uint64_t>(time.tv_nsec);
  }
#else
  (void)clock;
#endif
  return 0;
}

int ClockOfThisThread() noexcept {
  int id = -1;
#if defined(__linux__)
  (void)::pthread_getcpuclockid(::pthread_self(), &id);
#endif
  return id;
}

/// The running clocks, and the total time of finished clocks.
struct Clocks {
  std::mutex mutex;
  WorkClock* running = nullptr;  ///< the first of a list
  uint64_t past = 0;
  uint64_t others = 0;
};

Clocks& AllClocks() {
  // Never destroyed, because threads may outlive static objects. Allocates nothing, because a
  // thread that starts has no way to report a failure.
  alignas(Clocks) static char memory[sizeof(Clocks)];
  static Clocks* const clocks = new (memory) Clocks;
  return *clocks;
}

}  // namespace

WorkClock::WorkClock() : id_(ClockOfThisThread()), begin_(NanosAt(id_)) {
  Clocks& all = AllClocks();
  const std::lock_guard<std::mutex> guard(all.mutex);
  next_ = all.running;
  all.running = this;
}

WorkClock::~WorkClock() {
  Clocks& all = AllClocks();
  const std::lock_guard<std::mutex> guard(all.mutex);
  WorkClock** place = &all.running;
  while (*place != this) place = &(*place)->next_;
  *place = next_;
  all.past += nanos();
}

uint64_t WorkClock::nanos() const noexcept { return NanosAt(id_) - begin_; }

uint64_t WorkClock::NanosOfOthers() {
  Clocks& all = AllClocks();
  const std::lock_guard<std::mutex> guard(all.mutex);
  uint64_t work = all.past;
  for (const WorkClock* clock = all.running; clock != nullptr; clock = clock->next_) {
    work += clock->nanos();
  }
#if defined(__linux__)
  // The clocks are read one after another, so their difference could decrease by some nanoseconds.
  // std::max keeps the result monotonic.
  all.others = std::max(all.others + work, NanosAt(CLOCK_PROCESS_CPUTIME_ID)) - work;
#endif
  return all.others;
}

}  // namespace de::kernels
