// Executors for the engine's multithreaded code: real ones, and an adversarial one.
#ifndef DE_CORE_TESTING_TEST_EXECUTOR_H_
#define DE_CORE_TESTING_TEST_EXECUTOR_H_

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "de_core/cc/engine/base/executor.h"

namespace de::engine {

/// Runs every task on a new thread, the last task first.
class Threads final : public Executor {
 public:
  explicit Threads(size_t count) : count_(count) {}
  size_t threads() const override { return count_; }
  void Run(size_t count, const std::function<void(size_t)>& task) override {
    std::vector<std::thread> threads;
    for (size_t i = count; i > 0; --i) threads.emplace_back(task, i - 1);
    for (std::thread& thread : threads) thread.join();
  }

 private:
  size_t count_;
};

/// Threads that wait for tasks. Run allocates nothing, and the caller runs no task. An exception
/// that leaves a task ends the process, as in TensorFlow's pool.
class PoolThreads final : public Executor {
 public:
  explicit PoolThreads(size_t count) {
    for (size_t i = 0; i < count; ++i) threads_.emplace_back([this] { Work(); });
  }
  ~PoolThreads() override {
    {
      const std::lock_guard<std::mutex> guard(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  size_t threads() const override { return threads_.size(); }

  void Run(size_t count, const std::function<void(size_t)>& task) override {
    std::unique_lock<std::mutex> lock(mutex_);
    task_ = &task;
    next_ = done_ = 0;
    count_ = count;
    changed_.notify_all();
    changed_.wait(lock, [this] { return done_ == count_; });
    count_ = next_ = done_ = 0;
  }

 private:
  void Work() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || next_ < count_; });
      if (stop_) return;
      const size_t at = next_++;
      lock.unlock();
      (*task_)(at);
      lock.lock();
      if (++done_ == count_) changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void(size_t)>* task_ = nullptr;
  size_t next_ = 0, count_ = 0, done_ = 0;
  bool stop_ = false;
  std::vector<std::thread> threads_;
};

/// Reports several threads, but runs the tasks one after another, the last one first.
class Backwards final : public Executor {
 public:
  explicit Backwards(size_t count = 3) : count_(count) {}
  size_t threads() const override { return count_; }
  void Run(size_t count, const std::function<void(size_t)>& task) override {
    while (count > 0) task(--count);
  }

 private:
  const size_t count_;
};

}  // namespace de::engine

#endif  // DE_CORE_TESTING_TEST_EXECUTOR_H_
