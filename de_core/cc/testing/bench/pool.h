// Threads that share the work of a verb, for benchmarks.
#ifndef DE_CORE_TESTING_POOL_H_
#define DE_CORE_TESTING_POOL_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "de_core/cc/engine/base/executor.h"

namespace de::bench {

/// A pool of `threads` threads, including the caller's.
class Pool final : public engine::Executor {
 public:
  explicit Pool(size_t threads) : threads_(threads) {
    for (size_t i = 1; i < threads; ++i) helpers_.emplace_back([this] { Help(); });
  }
  ~Pool() override {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      stop_ = true;
    }
    wake_.notify_all();
    for (std::thread& helper : helpers_) helper.join();
  }

  size_t threads() const override { return threads_; }

  void Run(size_t count, const std::function<void(size_t)>& task) override {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      task_ = &task;
      count_ = count;
      next_ = 0;
      seen_ = ++generation_;
    }
    wake_.notify_all();
    for (size_t at; (at = next_.fetch_add(1)) < count;) task(at);
    std::unique_lock<std::mutex> lock(mutex_);
    task_ = nullptr;  // a late helper finds nothing to do
    done_.wait(lock, [&] { return running_ == 0; });
  }

 private:
  void Help() {
    uint64_t mine = 0;
    while (true) {
      // Poll for a short time before sleeping, as TensorFlow's own thread pool does.
      for (int i = 0; i < 2000 && seen_.load(std::memory_order_acquire) == mine; ++i) {
      }
      std::unique_lock<std::mutex> lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || generation_ != mine; });
      if (stop_) return;
      mine = generation_;
      ++running_;
      const auto* const work = task_;
      const size_t last = count_;
      lock.unlock();
      if (work != nullptr) {
        for (size_t at; (at = next_.fetch_add(1)) < last;) (*work)(at);
      }
      lock.lock();
      if (--running_ == 0) done_.notify_all();
    }
  }

  const size_t threads_;
  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const std::function<void(size_t)>* task_ = nullptr;
  size_t count_ = 0, running_ = 0;
  uint64_t generation_ = 0;
  std::atomic<uint64_t> seen_{0};  ///< generation, read without the lock while polling
  std::atomic<size_t> next_{0};
  bool stop_ = false;
  std::vector<std::thread> helpers_;
};

}  // namespace de::bench

#endif  // DE_CORE_TESTING_POOL_H_
