#include "de_core/cc/engine/base/guarded_tasks.h"

#include <gtest/gtest.h>

#include <new>
#include <string>
#include <vector>

#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

TEST(GuardedTasks, EachRunsOnceWithAndWithoutThreads) {
  Threads threads(3);
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&threads)}) {
    std::vector<int> runs(100);
    EXPECT_TRUE(RunGuarded(executor, runs.size(), [&](size_t at) {
                  ++runs[at];
                  return Status::Ok();
                }).ok());
    EXPECT_EQ(runs, std::vector<int>(100, 1));
  }
}

TEST(GuardedTasks, OneFailureComesBackAndAllOthersRun) {
  Threads threads(3);
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&threads)}) {
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
