// Measures the CPU time of background work, which must not delay the rest of the process.
#ifndef DE_CORE_KERNELS_WORK_CLOCK_H_
#define DE_CORE_KERNELS_WORK_CLOCK_H_

#include <cstdint>

namespace de::kernels {

/// Measures the CPU time of the thread that creates the clock, while the clock exists. Always 0
/// except on Linux.
class WorkClock {
 public:
  WorkClock();
  ~WorkClock();
  WorkClock(const WorkClock&) = delete;
  WorkClock& operator=(const WorkClock&) = delete;

  /// CPU time of this thread in nanoseconds.
  uint64_t nanos() const noexcept;

  /// CPU time of the process minus the CPU time of threads with a live WorkClock. Monotonic.
  static uint64_t NanosOfOthers();

 private:
  const int id_;
  const uint64_t begin_;
  WorkClock* next_ = nullptr;  ///< in the list of running clocks
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_WORK_CLOCK_H_
