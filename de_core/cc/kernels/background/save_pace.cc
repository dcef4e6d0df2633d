#include "de_core/cc/kernels/background/save_pace.h"

#include <algorithm>
#include <thread>

#include "de_core/cc/engine/base/container_limits.h"

namespace de::kernels {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;

// The fraction of all cores that the saving thread may use while the cores are busy. They count as
// busy if the rest of the process uses more than the fraction kBusy of them.
constexpr double kShare = 0.015;
constexpr double kBusy = 0.25;
// Time before the first check. A save that is shorter than this delays nothing noticeably.
constexpr nanoseconds kFirstSpan = milliseconds(4);
constexpr nanoseconds kSpan = milliseconds(20);
constexpr nanoseconds kShortestRest = milliseconds(1);
constexpr nanoseconds kLongestRest = milliseconds(100);

}  // namespace

SavePace::SavePace(size_t cores)
    : cores_(std::min(static_cast<double>(cores), engine::CpuQuota())) {
  watched_ = rested_ = Clock::now();
  span_ = kFirstSpan;
  others_ = WorkClock::NanosOfOthers();
}

bool SavePace::Rest() {
  const Clock::time_point now = Clock::now();
  if (now - watched_ >= span_) {
    const uint64_t others = WorkClock::NanosOfOthers();
    const auto nanos = static_cast<double>(nanoseconds(now - watched_).count());
    busy_ = static_cast<double>(others - others_) > kBusy * cores_ * nanos;
    others_ = others;
    watched_ = now;
    span_ = kSpan;
  }
  const uint64_t worked = work_.nanos();
  if (busy_) {
    const double due = static_cast<double>(worked - worked_) / (kShare * cores_);
    const nanoseconds rest = nanoseconds(static_cast<int64_t>(due)) - (now - rested_);
    // too short to sleep: the next call adds it to its own rest
    if (rest > nanoseconds(0) && rest < kShortestRest) return true;
    if (rest > nanoseconds(0)) {
      std::this_thread::sleep_for(std::min(rest, kLongestRest));
      slept_ += Clock::now() - now;
    }
  }
  worked_ = worked;
  rested_ = Clock::now();
  return busy_;
}

}  // namespace de::kernels
