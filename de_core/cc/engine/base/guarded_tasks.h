// Runs the tasks of one operation on one thread or several. If tasks fail, returns the error of one
// of them.
#ifndef DE_CORE_ENGINE_GUARDED_TASKS_H_
#define DE_CORE_ENGINE_GUARDED_TASKS_H_

#include <atomic>
#include <cstddef>
#include <mutex>
#include <utility>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Stores the first failure of tasks that run in parallel.
class FirstFailure {
 public:
  /// Runs a task, which returns a Status. Stores the Status if it is the first that is not OK.
  template <typename Task>
  void Run(const Task& task) noexcept {
    Status status = Guarded(task);
    if (status.ok()) return;
    const std::lock_guard<std::mutex> guard(mutex_);
    if (failed_.exchange(true, std::memory_order_relaxed)) return;
    failure_ = std::move(status);
  }

  /// True if a task failed. A long task can check this and stop early.
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  /// Returns OK if no task failed. Call it when all tasks are done.
  Status Take() noexcept { return std::move(failure_); }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status failure_;
};

/// Calls task(0) … task(count - 1), which return a Status, on `executor`, or one after another if
/// it is nullptr. Returns the Status of a failed task, or OK, when all are done.
template <typename Task>
Status RunGuarded(Executor* executor, size_t count, const Task& task) noexcept {
  FirstFailure failure;
  failure.Run([&] {
    RunTasks(executor, count, [&](size_t at) { failure.Run([&] { return task(at); }); });
    return Status::Ok();
  });
  return failure.Take();
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_GUARDED_TASKS_H_
