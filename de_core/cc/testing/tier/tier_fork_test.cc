// A process forks while it has a table with a tier: the child gets errors, the parent goes on.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <numeric>

#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/tiered_table.h"
#include "de_core/cc/testing/batches.h"

namespace de::engine {
namespace {

constexpr size_t kDim = 10, kKeys = 2000, kBatch = 100;

class TierForkTest : public ::testing::Test {
 protected:
  TierForkTest() {
    EXPECT_NE(mkdtemp(directory_.data()), nullptr);
    Open();
    std::iota(keys_.begin(), keys_.end(), 0);
    EXPECT_TRUE(Put(0).ok());
  }
  ~TierForkTest() override {
    table_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Open() {
    table_.reset();
    DiskOptions disk;
    disk.directory = directory_;
    disk.segment_bytes = 1 << 16;
    TableOptions options;
    options.dim = kDim;
    std::unique_ptr<DiskRows> cold;
    Status status = DiskRows::Create(disk, KeyType::kInt64, &cold);
    ASSERT_TRUE(status.ok()) << status.message;
    ASSERT_TRUE(TieredTable::Create(options, 20000, std::move(cold), &table_).ok());
  }
  Keys BatchAt(size_t at) const { return {&keys_[at], nullptr, kBatch}; }
  /// Writes to each row its key and `add`.
  Status Put(float add) {
    std::vector<float> rows(kBatch * kDim);
    for (size_t at = 0; at < kKeys; at += kBatch) {
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<float>(at + i / kDim) + add;
      DE_RETURN_IF_ERROR(table_->InsertOrAssign(BatchAt(at), RowsIn(rows), nullptr));
    }
    return Status::Ok();
  }
  Status Read(size_t at, std::vector<float>* rows) const {
    rows->resize(kBatch * kDim);
    return table_->FindToTrain(BatchAt(at), RowsTo(rows), nullptr, nullptr);
  }
  void ExpectRows(float add) {
    std::vector<float> rows;
    for (size_t at = 0; at < kKeys; at += kBatch) {
      const Status status = Read(at, &rows);
      ASSERT_TRUE(status.ok()) << status.message;
      for (size_t i = 0; i < rows.size(); ++i) {
        ASSERT_EQ(rows[i], static_cast<float>(at + i / kDim) + add);
      }
    }
    EXPECT_EQ(table_->size(), kKeys);
  }
  /// Runs `child` in a forked process, which must return true. Meanwhile runs `parent` here.
  static void Fork(
      const std::function<bool()>& child, const std::function<void()>& parent = [] {}) {
    const pid_t process = fork();
    ASSERT_GE(process, 0);
    if (process == 0) {
      alarm(60);  // seconds; ends a child that waits forever
      _exit(child() ? 0 : 1);
    }
    parent();
    int status = 0;
    ASSERT_EQ(waitpid(process, &status, 0), process);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }

  std::string directory_ = ::testing::TempDir() + "/tier_fork_XXXXXX";
  std::unique_ptr<TableBackend> table_;
  std::vector<int64_t> keys_ = std::vector<int64_t>(kKeys);
};

bool IsRefused(const Status& status) {
  return status.code == Code::kFailedPrecondition &&
         status.message.find("forked") != std::string::npos;
}

TEST_F(TierForkTest, AChildGetsAnErrorAtFirstUse) {
  Fork([&] {
    std::vector<float> rows;
    RowBatch batch;
    ExportCursor cursor;
    SaveSelection selection;
    return IsRefused(Put(0.5F)) && IsRefused(Read(0, &rows)) &&
           IsRefused(table_->ExportBatch(&cursor, &batch)) && IsRefused(table_->Clear()) &&
           IsRefused(table_->Erase(BatchAt(0), nullptr)) &&
           IsRefused(table_->EnsureSlots("o", {{"m", DType::kFloat32, 1, 0}})) &&
           IsRefused(table_->NewRowSource()->Begin(selection, 0, false));
  });
  ExpectRows(0);
  EXPECT_TRUE(Put(0.25F).ok());
  ExpectRows(0.25F);
}

TEST_F(TierForkTest, AParentReadsAndWritesBesideAChild) {
  Fork(
      [&] {
        std::vector<float> rows;
        for (int i = 0; i < 1000; ++i) {
          if (!IsRefused(Read(0, &rows))) return false;
        }
        table_.reset();
        return true;
      },
      [&] {
        ExpectRows(0);
        EXPECT_TRUE(Put(0.5F).ok());
        ExpectRows(0.5F);
      });
  ExpectRows(0.5F);
}

TEST_F(TierForkTest, AChildThatLivesDoesNotKeepTheFolder) {
  int wait[2];
  ASSERT_EQ(pipe(wait), 0);
  Fork(
      [&] {
        close(wait[1]);
        char byte = 0;
        return read(wait[0], &byte, 1) == 1;
      },
      [&] {
        Open();  // ends the table, and makes another in its folder
        EXPECT_TRUE(Put(0).ok());
        ExpectRows(0);
        EXPECT_EQ(write(wait[1], "x", 1), 1);
      });
  close(wait[0]);
  close(wait[1]);
}

TEST_F(TierForkTest, AChildMakesATableOfItsOwn) {
  Fork([&] {
    directory_ += "/child";
    Open();
    return Put(1).ok();
  });
  ExpectRows(0);
}

}  // namespace
}  // namespace de::engine
