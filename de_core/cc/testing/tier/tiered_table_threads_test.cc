// Verbs of a tiered table run at once: readers go on while a step uses the disk, and no update is
// lost.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <random>
#include <thread>

#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/tiered_table.h"
#include "de_core/cc/testing/batches.h"
#include "de_core/cc/testing/tier/simulated_disk.h"

namespace de::engine {
namespace {

using testing::SimulatedDisk;

constexpr size_t kDim = 4;

TableOptions Options() {
  TableOptions options;
  options.dim = kDim;
  options.policy.columns[static_cast<size_t>(RowColumn::kScore)] = true;
  return options;
}

/// Adds 1 to the rows of `keys`.
Status AddOne(TableBackend* table, const std::vector<int64_t>& keys) {
  const std::vector<float> ones(keys.size() * kDim, 1.0F);
  return table->AccumOrAssign(KeysOf(keys), ones.data(), nullptr, nullptr);
}

std::vector<float> Lookup(const TableBackend& table, const std::vector<int64_t>& keys) {
  std::vector<float> rows(keys.size() * kDim);
  EXPECT_TRUE(table.Find(KeysOf(keys), RowsTo(&rows), nullptr, nullptr).ok());
  return rows;
}

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> keys;
  for (int64_t key = begin; key < end; ++key) keys.push_back(key);
  return keys;
}

class SimulatedDiskTest : public ::testing::Test {
 protected:
  SimulatedDiskTest() {
    for (int64_t i = 0; i < 100; ++i) {
      EXPECT_TRUE(AddOne(table_.get(), Range(i * 50, i * 50 + 50)).ok());
    }
  }
  const std::shared_ptr<SimulatedDisk> disk_ = std::make_shared<SimulatedDisk>();
  const std::unique_ptr<TableBackend> table_ = testing::TableOn(disk_, Options(), 20000);
};

TEST_F(SimulatedDiskTest, ReadersGoOnWhileAStepWritesToTheDisk) {
  std::atomic<size_t> reads{0};
  std::atomic<bool> stop{false};
  std::thread reader([&] {
    while (!stop) {
      EXPECT_EQ(Lookup(*table_, Range(0, 5000)), std::vector<float>(5000 * kDim, 1.0F));
      ++reads;
    }
  });
  disk_->on_write = [&] {
    const size_t before = reads;
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(10);
    while (reads < before + 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    EXPECT_GE(reads, before + 2) << "readers waited for the disk";
  };
  EXPECT_TRUE(AddOne(table_.get(), Range(10000, 10050)).ok());
  stop = true;
  reader.join();
  EXPECT_GT(reads, 0U);
  EXPECT_GT(disk_->writes, 0U);
}

TEST_F(SimulatedDiskTest, StepsGoOnWhileALookupReadsTheDisk) {
  const std::vector<int64_t> keys = Range(0, 5);
  std::atomic<bool> is_first{true};
  disk_->on_read = [&] {
    if (!is_first.exchange(false)) return;  // the step reads rows too
    std::thread([&] { EXPECT_TRUE(AddOne(table_.get(), keys).ok()); }).join();
    for (int64_t i = 10; i < 100; ++i) {  // the rows become cold again
      EXPECT_TRUE(AddOne(table_.get(), Range(i * 50, i * 50 + 50)).ok());
    }
  };
  EXPECT_EQ(Lookup(*table_, keys), std::vector<float>(5 * kDim, 1.0F)) << "as when it began";
  EXPECT_EQ(Lookup(*table_, keys), std::vector<float>(5 * kDim, 2.0F)) << "not from the cache";
}

TEST_F(SimulatedDiskTest, VerbsThatReadMoveNoRow) {
  const TierStats before = *table_->Stats().tier;
  const size_t written = disk_->writes;
  ASSERT_GT(before.cold_rows, 4000U);
  const std::vector<int64_t> keys = Range(0, 6000);  // the last 1,000 have no row
  const Keys all = KeysOf(keys);
  std::vector<int64_t> scores(keys.size());
  const auto found = std::make_unique<bool[]>(keys.size());
  ASSERT_TRUE(ReadColumn(*table_, RowColumn::kScore, all, scores.data(), found.get()).ok());
  EXPECT_EQ(std::count(found.get(), found.get() + keys.size(), true), 5000);
  std::vector<int64_t> slots(keys.size());
  ASSERT_TRUE(table_
                  ->FindSlot(std::string(kMetadataOwner), std::string(NameOf(RowColumn::kScore)), 8,
                             all, reinterpret_cast<char*>(slots.data()), found.get())
                  .ok());
  EXPECT_EQ(std::count(found.get(), found.get() + keys.size(), true), 5000);
  const TierStats after = *table_->Stats().tier;
  EXPECT_EQ(after.rows_in, before.rows_in);
  EXPECT_EQ(after.rows_out, before.rows_out);
  EXPECT_EQ(disk_->writes, written);
}

TEST(TieredTableThreadsTest, NoUpdateIsLost) {
  std::string directory = ::testing::TempDir() + "/tiered_threads_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  std::unique_ptr<DiskRows> cold;
  ASSERT_TRUE(DiskRows::Create({directory, 1 << 16, 16, true}, KeyType::kInt64, &cold).ok());
  std::unique_ptr<TableBackend> table;
  ASSERT_TRUE(TieredTable::Create(Options(), 10000, std::move(cold), &table).ok());
  constexpr int64_t kKeys = 2000;
  constexpr int kWriters = 2, kSteps = 150;
  std::vector<std::atomic<int>> counts(kKeys);
  std::atomic<int> running{kWriters};
  std::vector<std::thread> threads;
  for (int writer = 0; writer < kWriters; ++writer) {
    threads.emplace_back([&, writer] {
      std::mt19937_64 random(static_cast<uint64_t>(writer));
      for (int step = 0; step < kSteps; ++step) {
        const auto begin = static_cast<int64_t>(random() % (kKeys - 100));
        const std::vector<int64_t> keys = Range(begin, begin + 100);
        if (step % 3 == 0) Lookup(*table, keys);
        EXPECT_TRUE(AddOne(table.get(), keys).ok());
        for (const int64_t key : keys) ++counts[static_cast<size_t>(key)];
      }
      --running;
    });
  }
  threads.emplace_back([&] {  // a row is never seen half written
    std::mt19937_64 random(7);
    while (running > 0) {
      const auto begin = static_cast<int64_t>(random() % (kKeys - 300));
      const std::vector<float> rows = Lookup(*table, Range(begin, begin + 300));
      for (size_t i = 0; i < rows.size(); ++i) EXPECT_EQ(rows[i], rows[i / kDim * kDim]);
    }
  });
  threads.emplace_back([&] {
    RowBatch batch;
    while (running > 0) {
      for (ExportCursor cursor; !cursor.done;) {
        EXPECT_TRUE(table->ExportBatch(&cursor, &batch).ok());
      }
      EXPECT_GE(table->Stats().tier->disk_bytes, 0U);
    }
  });
  for (std::thread& thread : threads) thread.join();
  const std::vector<float> rows = Lookup(*table, Range(0, kKeys));
  for (size_t i = 0; i < static_cast<size_t>(kKeys); ++i) {
    EXPECT_EQ(rows[i * kDim], static_cast<float>(counts[i]));
  }
  EXPECT_GT(table->Stats().tier->rows_in, 1000U);
  table.reset();
  std::filesystem::remove_all(directory);
}

}  // namespace
}  // namespace de::engine
