// A save ends and writes the same file, whenever an executor begins its tasks.
#include "de_core/cc/engine/save/save_pipeline.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "de_core/cc/testing/full_sink.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

constexpr size_t kTasks = 3;
constexpr size_t kDim = 64, kRows = 20000;

/// Runs the tasks one after another on the caller's thread.
class InOrder final : public Executor {
 public:
  size_t threads() const override { return kTasks - 1; }  // a save runs one task more
  void Run(size_t count, const std::function<void(size_t)>& task) override {
    for (size_t number = 0; number < count; ++number) task(number);
  }
};

/// Runs each task on a new thread. The tasks numbered in `late` start some milliseconds after the
/// others.
class Late final : public Executor {
 public:
  explicit Late(uint32_t late) : late_(late) {}
  size_t threads() const override { return kTasks - 1; }  // a save runs one task more
  void Run(size_t count, const std::function<void(size_t)>& task) override {
    std::vector<std::thread> threads;
    for (size_t number = 0; number < count; ++number) {
      threads.emplace_back([&, number] {
        const bool late = (late_ >> number & 1) != 0;
        std::this_thread::sleep_for(std::chrono::milliseconds(late ? 30 : 0));
        task(number);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  const uint32_t late_;
};

class SavePipelineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const int64_t key : Numbers(0, kRows)) {
      Put(table_.get(), {key}, static_cast<float>(key));
    }
    expected_ = Saved(nullptr, {});
    ASSERT_GT(expected_.size(), kRows * kDim * sizeof(float));
  }

  std::string Saved(Executor* executor, const std::function<bool()>& rest) {
    FullSink disk(~size_t{0});
    EXPECT_EQ(Save(executor, rest, &disk).code, Code::kOk);
    return disk.bytes;
  }

  Status Save(Executor* executor, const std::function<bool()>& rest, FullSink* disk) {
    SaveOptions options = options_;
    options.rest = rest;
    std::unique_ptr<TableSave> save;
    const Status begun = TableSave::Begin(table_.get(), options, &save);
    return begun.ok() ? save->Write(disk, executor) : begun;
  }

  /// Checks that a save writes the expected file when `rest` never asks the copying thread to work
  /// alone, always does, and sometimes does; and that it fails on a full disk.
  void ExpectSame(Executor* executor) {
    EXPECT_TRUE(Saved(executor, {}) == expected_);
    EXPECT_TRUE(Saved(executor, [] { return true; }) == expected_);
    int calls = 0;
    EXPECT_TRUE(Saved(executor, [&] { return ++calls / 3 % 2 == 1; }) == expected_);
    for (const size_t room : {size_t{0}, expected_.size() / 2, expected_.size() - 1}) {
      FullSink disk(room);
      EXPECT_EQ(Save(executor, {}, &disk).code, Code::kResourceExhausted);
    }
  }

  /// Makes the following saves deltas that contain every third row.
  void ExpectDeltas() {
    options_.chain = "chain";
    std::unique_ptr<TableSave> base;
    ASSERT_TRUE(TableSave::Begin(table_.get(), options_, &base).ok());
    FullSink disk(~size_t{0});
    ASSERT_TRUE(base->Write(&disk, nullptr).ok());
    ASSERT_TRUE(base->Done().ok());
    std::vector<int64_t> keys(kRows / 3);
    for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(3 * i);
    Put(table_.get(), keys, 7);
    options_.delta = true;
    expected_ = Saved(nullptr, {});
    ASSERT_LT(expected_.size(), disk.bytes.size() / 2);
    ASSERT_GT(expected_.size(), keys.size() * kDim * sizeof(float));
  }

  const std::unique_ptr<Table> table_ = Make(kDim);
  SaveOptions options_;
  std::string expected_;
};

TEST_F(SavePipelineTest, tasks_one_after_another) {
  for (const bool delta : {false, true}) {
    if (delta) ExpectDeltas();
    InOrder executor;
    ExpectSame(&executor);
  }
  Late executor(1);
  ExpectSame(&executor);
}

TEST_F(SavePipelineTest, tasks_that_begin_late) {
  for (uint32_t late = 0; late < uint32_t{1} << kTasks; ++late) {
    SCOPED_TRACE(late);
    Late executor(late);
    ExpectSame(&executor);
  }
}

}  // namespace
}  // namespace de::engine::testing
