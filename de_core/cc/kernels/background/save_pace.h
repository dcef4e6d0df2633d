// Limits how fast a save copies rows. While cores are idle, it copies at full speed. While they are
// busy, it copies only in a small fraction of the time, and so delays a training step by at most
// this fraction.
#ifndef DE_CORE_KERNELS_SAVE_PACE_H_
#define DE_CORE_KERNELS_SAVE_PACE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "de_core/cc/kernels/background/work_clock.h"

namespace de::kernels {

/// Used by the thread that copies rows. It calls Rest after every piece of work.
class SavePace {
 public:
  /// Assumes `cores` cores, or the CPU quota of the container if that is lower.
  explicit SavePace(size_t cores);

  /// Sleeps if the rest of the process uses more than a quarter of the cores. Returns true in this
  /// case: then the other threads of the save must pause too.
  bool Rest();

  double rested_seconds() const noexcept { return std::chrono::duration<double>(slept_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  const double cores_;
  WorkClock work_;
  // Start of the current measurement of other threads, and their CPU time at this start.
  Clock::time_point watched_;
  std::chrono::nanoseconds span_{0};
  uint64_t others_ = 0;
  bool busy_ = false;
  // The work that this thread did before this time (`worked_`) needs no more rest.
  Clock::time_point rested_;
  uint64_t worked_ = 0;
  std::chrono::nanoseconds slept_{0};
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SAVE_PACE_H_
