// Executors for the engine's multithreaded code: real ones, and an adversarial one.
#ifndef DE_CORE_TESTING_TEST_EXECUTOR_H_
#define DE_CORE_TESTING_TEST_EXECUTOR_H_

#include <functional>
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

/// Reports three threads, but runs the tasks one after another, the last one first.
class Backwards final : public Executor {
 public:
  size_t threads() const override { return 3; }
  void Run(size_t count, const std::function<void(size_t)>& task) override {
    while (count > 0) task(--count);
  }
};

}  // namespace de::engine

#endif  // DE_CORE_TESTING_TEST_EXECUTOR_H_
