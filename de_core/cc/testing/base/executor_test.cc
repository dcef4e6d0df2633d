#include "de_core/cc/engine/base/executor.h"

#include <gtest/gtest.h>

#include <vector>

#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

TEST(Executor, only_several_threads_are_worth_waking_for_only_large_batches) {
  Threads one(1), two(2);
  EXPECT_EQ(ThreadsFor(true, &two), &two);
  EXPECT_EQ(ThreadsFor(false, &two), nullptr);
  EXPECT_EQ(ThreadsFor(true, &one), nullptr);
  EXPECT_EQ(ThreadsFor(true, nullptr), nullptr);
}

TEST(Executor, without_threads_tasks_run_one_after_the_other_in_order) {
  std::vector<size_t> ran;
  RunTasks(nullptr, 5, [&](size_t task) { ran.push_back(task); });
  EXPECT_EQ(ran, (std::vector<size_t>{0, 1, 2, 3, 4}));
  RunTasks(nullptr, 0, [&](size_t) { ran.clear(); });
  EXPECT_EQ(ran.size(), 5U);
}

TEST(Executor, with_threads_each_task_runs_once_before_the_return) {
  Threads threads(3);
  Backwards backwards;
  for (Executor* const executor :
       {static_cast<Executor*>(&threads), static_cast<Executor*>(&backwards)}) {
    std::vector<int> runs(20);
    RunTasks(executor, runs.size(), [&](size_t task) { ++runs[task]; });
    EXPECT_EQ(runs, std::vector<int>(runs.size(), 1));
    RunTasks(executor, 0, [&](size_t) { runs.clear(); });
    EXPECT_EQ(runs.size(), 20U);
  }
}

}  // namespace
}  // namespace de::engine
