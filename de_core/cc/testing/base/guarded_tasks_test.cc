// Tasks on threads, and functions that throw.
#include "de_core/cc/engine/base/guarded_tasks.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

TEST(Guard, a_status_comes_back_as_it_is) {
  EXPECT_TRUE(Guarded([] { return Status::Ok(); }).ok());
  const Status status = Guarded([] { return Status::DataLoss("torn. Received: x=1"); });
  EXPECT_EQ(status.code, Code::kDataLoss);
  EXPECT_EQ(status.message, "torn. Received: x=1");
}

TEST(Guard, want_of_memory_is_named_with_its_remedy) {
  const Status status = Guarded([]() -> Status { throw std::bad_alloc(); });
  EXPECT_EQ(status.code, Code::kResourceExhausted);
  EXPECT_NE(status.message.find("bound the table's size"), std::string::npos) << status.message;
}

TEST(Guard, what_else_the_library_throws_is_internal_and_keeps_its_words) {
  const Status status = Guarded([]() -> Status { throw std::length_error("too long"); });
  EXPECT_EQ(status.code, Code::kInternal);
  EXPECT_EQ(status.message, "too long");
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

TEST(GuardedTasks, OneFailureComesBackAndAllOthersRun) {
  Threads threads(3);
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&threads)}) {
    EXPECT_TRUE(RunGuarded(executor, 100, [](size_t) { return Status::Ok(); }).ok());
    std::vector<int> runs(100);
    const Status status = RunGuarded(executor, runs.size(), [&](size_t at) -> Status {
      ++runs[at];
      if (at == 7) throw std::bad_alloc();
      if (at == 60) return Status::DataLoss("60");
      return Status::Ok();
    });
    EXPECT_TRUE(status.code == Code::kResourceExhausted || status.code == Code::kDataLoss);
    EXPECT_EQ(runs, std::vector<int>(100, 1));
  }
}

TEST(GuardedTasks, TheFirstFailureStaysAndTellsTheOthers) {
  FirstFailure failure;
  EXPECT_FALSE(failure.failed());
  failure.Run([] { return Status::NotFound("first"); });
  EXPECT_TRUE(failure.failed());
  failure.Run([] { return Status::DataLoss("second"); });
  EXPECT_EQ(failure.Take().message, "first");
}

TEST(GuardedTasks, ThreadsAreTakenWhereThereAreSomeAndTheWorkIsWorthIt) {
  Threads one(1), three(3);
  EXPECT_EQ(ThreadsFor(true, nullptr), nullptr);
  EXPECT_EQ(ThreadsFor(true, &one), nullptr);
  EXPECT_EQ(ThreadsFor(false, &three), nullptr);
  EXPECT_EQ(ThreadsFor(true, &three), &three);
}

}  // namespace
}  // namespace de::engine
