// How fast a save copies rows: as fast as it can while nobody else needs the cores, else in so
// small a part of the time that a training step is not delayed by more.
#ifndef DE_CORE_KERNELS_SAVE_PACE_H_
#define DE_CORE_KERNELS_SAVE_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/base/cpu_quota.h"
#include "de_core/cc/kernels/work_clock.h"

namespace de::kernels {

/// Of one thread, which calls Rest after every piece of work.
class SavePace {
 public:
  /// A container may let the process use fewer than `cores`.
  explicit SavePace(size_t cores)
      : cores_(std::min(static_cast<double>(cores), engine::CpuQuota())) {
    Begin();
  }

  /// Sleeps where the rest of the process keeps more than a quarter of the cores busy, and returns
  /// whether it does. Other threads of the save shall pause then.
  bool Rest();

  double rested_seconds() const noexcept { return std::chrono::duration<double>(slept_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  void Begin();

  const double cores_;
  WorkClock work_;
  // The span of time over which the others were watched last, and what they had used before.
  Clock::time_point watched_;
  std::chrono::nanoseconds span_{0};
  uint64_t others_ = 0;
  bool busy_ = false;
  // Up to where this thread's work was made up for by rest.
  Clock::time_point rested_;
  uint64_t worked_ = 0;
  std::chrono::nanoseconds slept_{0};
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SAVE_PACE_H_
