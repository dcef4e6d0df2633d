// Counters of a table's ops: how often they ran, how long, and the norms of some gradients.
#ifndef DE_CORE_KERNELS_OP_CLOCK_H_
#define DE_CORE_KERNELS_OP_CLOCK_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace de::kernels {

/// Counts calls and adds up their wall time. Threads that call at the same time add up.
class OpClock {
 public:
  /// Counts one call, from its construction to its destruction.
  class Call {
   public:
    explicit Call(OpClock* clock) : clock_(clock), begin_(std::chrono::steady_clock::now()) {}
    ~Call() {
      const auto took = std::chrono::steady_clock::now() - begin_;
      const int64_t nanoseconds =
          std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
      clock_->nanoseconds_.fetch_add(static_cast<uint64_t>(nanoseconds), std::memory_order_relaxed);
      clock_->calls_.fetch_add(1, std::memory_order_relaxed);
    }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    OpClock* const clock_;
    const std::chrono::steady_clock::time_point begin_;
  };

  uint64_t calls() const noexcept { return calls_.load(std::memory_order_relaxed); }
  uint64_t nanoseconds() const noexcept { return nanoseconds_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> nanoseconds_{0};
};

/// Adds up the Euclidean norms of the gradients of every 16th step, because reading the gradients
/// of every step would cost more than a percent of a step.
class GradientNorms {
 public:
  /// Counts a step, and adds the norm of its gradients if it is the step's turn.
  template <typename Float>
  void Step(const Float* gradients, size_t count) noexcept {
    if (steps_.fetch_add(1, std::memory_order_relaxed) % kEvery != 0) return;
    std::array<double, 8> sums{};  // independent sums let the compiler use vectors
    size_t i = 0;
    for (; i + sums.size() <= count; i += sums.size()) {
      for (size_t lane = 0; lane < sums.size(); ++lane) {
        const double value = static_cast<double>(gradients[i + lane]);
        sums[lane] += value * value;
      }
    }
    double sum = 0;
    for (; i < count; ++i) {
      sum += static_cast<double>(gradients[i]) * static_cast<double>(gradients[i]);
    }
    for (const double lane : sums) sum += lane;
    if (!std::isfinite(sum)) return;  // one such gradient must not spoil all later means
    double before = norms_.load(std::memory_order_relaxed);
    while (
        !norms_.compare_exchange_weak(before, before + std::sqrt(sum), std::memory_order_relaxed)) {
    }
    read_.fetch_add(1, std::memory_order_relaxed);
  }

  /// Number of steps whose norm was added.
  uint64_t read() const noexcept { return read_.load(std::memory_order_relaxed); }
  double sum() const noexcept { return norms_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint64_t kEvery = 16;

  std::atomic<uint64_t> steps_{0};
  std::atomic<uint64_t> read_{0};
  std::atomic<double> norms_{0};
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_OP_CLOCK_H_
