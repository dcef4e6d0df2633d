// Lookups, scans, appends, erasures and background merges at the same time.
#include <atomic>
#include <random>
#include <thread>

#include "de_core/cc/testing/runs/run_store_fixture.h"
#include "de_core/cc/testing/sanitized.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

using namespace testing;  // NOLINT: the fixture

constexpr int64_t kKeys = 600;
constexpr int kSteps = kSanitized ? 60 : 200;

TEST(RunStoreStress, ReadersSeeTheNewestRowsWhileRunsAreMerged) {
  for (const bool io_uring : {true, false}) {
    const TempDirectory directory;
    RunStoreOptions options = SmallOptions(directory.path());
    options.background = true;
    options.io_uring = io_uring;
    options.queue_depth = 4;
    std::unique_ptr<RunStore> store = OpenStore(options);
    const RowLayout layout = LayoutOf(KeyType::kInt64, 40);
    // Each append writes all keys of a part, so a row's value is at least that of the last append
    // that returned.
    std::atomic<int> written[6] = {};
    std::atomic<bool> stop{false};
    std::vector<std::thread> readers;
    for (uint64_t reader = 0; reader < 2; ++reader) {
      readers.emplace_back([&, reader] {
        std::mt19937_64 random(reader);
        Threads executor(2);
        while (!stop) {
          const auto part = static_cast<int64_t>(random() % 6);
          const int least = written[part];
          std::vector<int64_t> keys;
          for (int64_t i = 0; i < 100; ++i) keys.push_back(part * 100 + i);
          Rows rows;
          const Status status = FindRows(*store, layout, keys, &rows, &executor);
          EXPECT_TRUE(status.ok()) << status.message;
          if (least > 0) {
            EXPECT_EQ(rows.size(), 100U);
          }
          for (const auto& [key, value] : rows) EXPECT_GE(value, static_cast<float>(least));
          if (random() % 8 != 0) continue;
          std::map<uint64_t, float> scanned;
          EXPECT_TRUE(ScanRows(*store, layout, 200, &scanned).ok());
        }
      });
    }
    std::mt19937_64 random(9);
    for (int step = 1; step <= kSteps; ++step) {
      const auto part = static_cast<int64_t>(random() % 6);
      Rows batch;
      for (int64_t i = 0; i < 100; ++i) batch[part * 100 + i] = static_cast<float>(step);
      ASSERT_TRUE(AppendRows(store.get(), layout, batch).ok());
      written[part] = step;
      ASSERT_TRUE(EraseKeys(store.get(), KeyType::kInt64, {kKeys + step}).ok());
      if (step % 40 == 0) {
        store->PauseCompaction();
        const uint64_t merges = store->Stats().compactions;
        ASSERT_TRUE(AppendRows(store.get(), layout, batch).ok());
        EXPECT_EQ(store->Stats().compactions, merges);
        store->ResumeCompaction();
      }
    }
    stop = true;
    for (std::thread& reader : readers) reader.join();
    const RunStoreStats stats = store->Stats();
    EXPECT_GT(stats.compactions, 0U);
    EXPECT_EQ(stats.error, "");
    Rows last;
    for (int64_t key = 0; key < kKeys; ++key) {
      if (written[key / 100] > 0) last[key] = static_cast<float>(written[key / 100]);
    }
    ExpectRows(*store, layout, last, {kKeys + 1});
    store.reset();
    ExpectRows(*OpenStore(options), layout, last);
  }
}

}  // namespace
}  // namespace de::engine
