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

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_EXECUTOR_H_
