// Tasks of a verb that may fail, on one thread or several: the verb gets one failure back.
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

/// Keeps the failure that comes first of tasks that run at once.
class FirstFailure {
 public:
  /// Runs a task, which returns a Status, and keeps what is not OK.
  template <typename Task>
  void Run(const Task& task) noexcept {
    Status status = Guarded(task);
    if (status.ok()) return;
    const std::lock_guard<std::mutex> guard(mutex_);
    if (failed_.exchange(true, std::memory_order_relaxed)) return;
    failure_ = std::move(status);
  }

  /// For tasks of many steps: the others' work is in vain.
  bool failed() const noexcept { return failed_.load(std::memory_order_relaxed); }

  /// OK if none failed. When all tasks are done.
  Status Take() noexcept { return std::move(failure_); }

 private:
  std::mutex mutex_;
  std::atomic<bool> failed_{false};
  Status failure_;
};

/// Calls task(0) … task(count - 1), which return a Status, on `executor` or, if it is nullptr, one
/// after the other, and returns a failure of one when all are done.
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
