// Threads for work that shall not delay what the model computes meanwhile.
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

/// Lets all other threads go first, from now on, in the calling thread. On Linux only.
void YieldToOthers();

/// An executor with threads of its own, which it starts when there is work for several, and which
/// the system runs when others leave a core free (elsewhere than on Linux: as any others).
/// TensorFlow's pools would make a step's ops wait behind such work.
class BackgroundThreads final : public engine::Executor {
 public:
  explicit BackgroundThreads(size_t threads) : threads_(threads < 1 ? 1 : threads) {}
  ~BackgroundThreads() override;
  BackgroundThreads(const BackgroundThreads&) = delete;
  BackgroundThreads& operator=(const BackgroundThreads&) = delete;

  size_t threads() const override { return threads_; }
  /// The caller runs task 0, and waits for the others. For one caller at a time.
  void Run(size_t count, const std::function<void(size_t)>& task) override;

 private:
  void Work();
  /// Called and left with the lock.
  void RunNext(std::unique_lock<std::mutex>* lock);

  const size_t threads_;
  std::vector<std::thread> started_;
  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(size_t)>* task_ = nullptr;
  size_t next_ = 0;   ///< of the tasks
  size_t count_ = 0;  ///< of them
  size_t left_ = 0;   ///< that are not done
  bool stop_ = false;
};

}  // namespace de::kernels

#endif  // DE_CORE_KERNELS_BACKGROUND_THREADS_H_
