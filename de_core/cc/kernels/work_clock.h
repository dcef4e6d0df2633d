// The CPU time of work that must not delay what the process does besides.
#ifndef DE_CORE_KERNELS_WORK_CLOCK_H_
#define DE_CORE_KERNELS_WORK_CLOCK_H_

#include <cstdint>

namespace de::kernels {

/// Counts the time of the thread that makes it, for as long as it lives. Elsewhere than on Linux
/// every time is 0.
class WorkClock {
 public:
  WorkClock();
  ~WorkClock();
  WorkClock(const WorkClock&) = delete;
  WorkClock& operator=(const WorkClock&) = delete;

  /// That this thread has used.
  uint64_t nanos() const noexcept;

  /// That the process has used while no such clock ran on the thread that used it. Never less than
  /// before.
  static uint64_t NanosOfOthers();

 private:
  const int id_;
  const uint64_t begin_;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_WORK_CLOCK_H_
