// Limits how fast a save copies rows: at full speed while cores are idle, otherwise in such a small
// fraction of the time that a training step is delayed at most by this fraction.
#ifndef DE_CORE_KERNELS_SAVE_PACE_H_
#define DE_CORE_KERNELS_SAVE_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "de_core/cc/engine/base/cpu_quota.h"
#include "de_core/cc/kernels/background/work_clock.h"

namespace de::kernels {

/// Used by one thread, which calls Rest after every piece of work.
class SavePace {
 public:
  /// A container may allow fewer than `cores`.
  explicit SavePace(size_t cores)
      : cores_(std::min(static_cast<double>(cores), engine::CpuQuota())) {
    Begin();
  }

  /// Sleeps if the rest of the process keeps more than a quarter of the cores busy. Returns whether
  /// it is busy; then other threads of the save must pause.
  bool Rest();

  double rested_seconds() const noexcept { return std::chrono::duration<double>(slept_).count(); }

 private:
  using Clock = std::chrono::steady_clock;

  void Begin();

  const double cores_;
  WorkClock work_;
  // Start of the last time span in which other threads were measured, and their CPU time before it.
  Clock::time_point watched_;
  std::chrono::nanoseconds span_{0};
  uint64_t others_ = 0;
  bool busy_ = false;
  // This thread's work up to this time has been compensated by rest.
  Clock::time_point rested_;
  uint64_t worked_ = 0;
  std::chrono::nanoseconds slept_{0};
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_SAVE_PACE_H_
