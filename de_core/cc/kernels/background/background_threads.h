// Threads for background work that must not delay the model's computation.
#ifndef DE_CORE_KERNELS_BACKGROUND_THREADS_H_
#define DE_CORE_KERNELS_BACKGROUND_THREADS_H_

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "de_core/cc/engine/base/executor.h"

namespace de::kernels {

/// Lowers the calling thread's priority for the rest of its life, so that other threads get the
/// core first. Does nothing except on Linux.
void YieldToOthers();

/// An executor with threads of its own. It starts them when there is work for several threads. On
/// Linux they have a low priority, so they run mostly on idle cores. If this work ran in
/// TensorFlow's thread pools instead, the ops of a training step would wait for it.
class BackgroundThreads final : public engine::Executor {
 public:
  explicit BackgroundThreads(size_t threads) : threads_(threads < 1 ? 1 : threads) {}
  ~BackgroundThreads() override;
  BackgroundThreads(const BackgroundThreads&) = delete;
  BackgroundThreads& operator=(const BackgroundThreads&) = delete;

  size_t threads() const override { return threads_; }
  /// Runs task 0 on the calling thread and waits for the other tasks. Only one thread may call it
  /// at a time.
  void Run(size_t count, const std::function<void(size_t)>& task) override;

 private:
  void Work();
  /// Runs the next task. The caller holds the lock before and after the call.
  void RunNext(std::unique_lock<std::mutex>* lock);

  const size_t threads_;
  std::vector<std::thread> started_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(size_t)>* task_ = nullptr;
  size_t next_ = 0;   ///< next task to run
  size_t count_ = 0;  ///< number of tasks
  size_t left_ = 0;   ///< number of unfinished tasks
  bool stop_ = false;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_BACKGROUND_THREADS_H_
