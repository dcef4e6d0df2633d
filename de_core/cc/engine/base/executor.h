// Spreads the work of a verb (an operation on a table, such as a lookup) over threads. The caller
// provides the thread pool.
#ifndef DE_CORE_ENGINE_EXECUTOR_H_
#define DE_CORE_ENGINE_EXECUTOR_H_

#include <cstddef>
#include <functional>

namespace de::engine {

class Executor {
 public:
  virtual ~Executor() = default;
  /// Number of threads that may run at once. With 1, every verb runs on the caller's thread.
  virtual size_t threads() const = 0;
  /// Runs task(0) … task(count - 1), possibly in parallel and in any order. Returns when all are
  /// done. For a save, task(0) must not wait for others, which wait for it.
  virtual void Run(size_t count, const std::function<void(size_t)>& task) = 0;
};

/// Returns `executor` if it has several threads and the work is `worth` them, otherwise nullptr.
inline Executor* ThreadsFor(bool worth, Executor* executor) {
  return worth && executor != nullptr && executor->threads() > 1 ? executor : nullptr;
}

/// Calls Executor::Run, or runs the tasks one after another if `executor` is nullptr.
template <typename Task>
void RunTasks(Executor* executor, size_t count, const Task& task) {
  if (executor != nullptr) return executor->Run(count, task);
  for (size_t at = 0; at < count; ++at) task(at);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_EXECUTOR_H_
