// How a verb spreads a batch over threads: the caller brings the thread pool.
#ifndef DE_CORE_ENGINE_EXECUTOR_H_
#define DE_CORE_ENGINE_EXECUTOR_H_

#include <cstddef>
#include <functional>

namespace de::engine {

class Executor {
 public:
  virtual ~Executor() = default;
  /// Threads that may run at once; 1 makes every verb run on the caller's thread.
  virtual size_t threads() const = 0;
  /// Runs task(0) … task(count - 1), possibly at once, in any order, and returns when all are done.
  virtual void Run(size_t count, const std::function<void(size_t)>& task) = 0;
};

/// `executor` where it has threads for a batch that is `worth` them, else nullptr.
inline Executor* ThreadsFor(bool worth, Executor* executor) {
  return worth && executor != nullptr && executor->threads() > 1 ? executor : nullptr;
}

/// Executor::Run, or the same one after the other where `executor` is nullptr.
template <typename Task>
void RunTasks(Executor* executor, size_t count, const Task& task) {
  if (executor != nullptr) return executor->Run(count, task);
  for (size_t at = 0; at < count; ++at) task(at);
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_EXECUTOR_H_
