// The store of runs against std::map: random batches, tombstones, merges, reopening.
#include <random>

#include "de_core/cc/testing/runs/run_store_fixture.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

using namespace testing;  // NOLINT: the fixture

struct Kind {
  KeyType key_type;
  size_t dim;
  bool io_uring;
  bool direct;
};

class RunStoreKinds : public ::testing::TestWithParam<Kind> {
 protected:
  RunStoreOptions Options() const {
    RunStoreOptions options = SmallOptions(directory_.path());
    options.io_uring = GetParam().io_uring;
    options.direct = GetParam().direct;
    options.queue_depth = 8;
    return options;
  }
  RowLayout Layout() const { return LayoutOf(GetParam().key_type, GetParam().dim); }

  TempDirectory directory_;
};

INSTANTIATE_TEST_SUITE_P(All, RunStoreKinds,
                         ::testing::Values(Kind{KeyType::kInt64, 4, true, true},
                                           Kind{KeyType::kInt64, 96, false, true},
                                           Kind{KeyType::kInt64, 1100, true, false},
                                           Kind{KeyType::kString, 8, true, true},
                                           Kind{KeyType::kString, 3, false, false}));

TEST_P(RunStoreKinds, RandomBatchesReadAsInAMap) {
  std::mt19937_64 random(7);
  const RowLayout layout = Layout();
  std::unique_ptr<RunStore> store = OpenStore(Options());
  Rows rows;
  float value = 0;
  Backwards executor;
  std::vector<int64_t> all;
  for (int64_t key = 0; key < 2200; ++key) all.push_back(key * 0x1234567);
  for (int step = 0; step < 40; ++step) {
    SCOPED_TRACE(step);
    const uint64_t act = random() % 10;
    if (act < 6) {
      Rows batch;
      for (uint64_t i = random() % 200; i > 0; --i) batch[all[random() % 2000]] = ++value;
      ASSERT_TRUE(AppendRows(store.get(), layout, batch).ok());
      for (const auto& [key, written] : batch) rows[key] = written;
    } else if (act < 8) {
      std::vector<int64_t> erased;
      for (uint64_t i = random() % 200; i > 0; --i) erased.push_back(all[random() % 2000]);
      ASSERT_TRUE(EraseKeys(store.get(), layout.key_type(), erased).ok());
      for (const int64_t key : erased) rows.erase(key);
    } else if (act == 8) {
      const Status status = store->Compact(random() % 4 == 0);
      ASSERT_TRUE(status.ok()) << status.message;
    } else {
      store.reset();
      store = OpenStore(Options());
    }
    Rows found;
    ASSERT_TRUE(FindRows(*store, layout, all, &found, &executor).ok());
    ASSERT_EQ(found, rows);
  }
  ExpectRows(*store, layout, rows, {1, 2, 3});
  ASSERT_TRUE(store->Compact(true).ok());
  ExpectRows(*store, layout, rows, {1, 2, 3});
  const RunStoreStats stats = store->Stats();
  EXPECT_EQ(stats.entries, rows.size());  // no superseded row and no tombstone is left
  EXPECT_EQ(stats.disk_bytes > 0, !rows.empty());
  EXPECT_EQ(directory_.Files(".run").size(), stats.runs);
}

TEST_P(RunStoreKinds, AFoundKeyCostsAboutOneRead) {
  const RowLayout layout = Layout();
  const std::unique_ptr<RunStore> store = OpenStore(Options());
  std::vector<int64_t> here, absent;
  for (int part = 0; part < 4; ++part) {
    Rows batch;
    for (int64_t i = 0; i < 500; ++i) batch[here.emplace_back(part * 500 + i)] = 1;
    ASSERT_TRUE(AppendRows(store.get(), layout, batch).ok());
  }
  for (int64_t i = 0; i < 2000; ++i) absent.push_back(1'000'000 + i);
  Rows found;
  ASSERT_TRUE(FindRows(*store, layout, here, &found).ok());
  EXPECT_EQ(found.size(), here.size());
  const RunStoreStats before = store->Stats();
  EXPECT_LE(before.reads, here.size() + 60);
  ASSERT_TRUE(FindRows(*store, layout, absent, &found).ok());
  EXPECT_EQ(found.size(), here.size());
  EXPECT_LE(store->Stats().reads - before.reads, 120U);  // 4 runs, about 0.5 % false positives
}

TEST(RunStore, AddedSlotsReadAsTheirInitialValues) {
  const TempDirectory directory;
  const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  ASSERT_TRUE(AppendRows(store.get(), LayoutOf(KeyType::kInt64, 2, false), {{1, 5}}).ok());
  const RowLayout wide = LayoutOf(KeyType::kInt64, 2);
  const int64_t key = 1;
  for (const bool merged : {false, true}) {
    char row[16];
    bool found = false;
    ASSERT_TRUE(store->Find({&key, nullptr, 1}, wide, row, &found, nullptr).ok());
    ASSERT_TRUE(found);
    EXPECT_EQ(FloatAt(row, 0), 5) << merged;
    EXPECT_EQ(FloatAt(row, 2), 0.5) << merged;
    ASSERT_TRUE(AppendRows(store.get(), wide, {{2, 7}}).ok());
    ASSERT_TRUE(store->Compact(true).ok());
  }
}

TEST(RunStore, DroppedSlotsAreForgottenAfterReopeningAndMergingToo) {
  const TempDirectory directory;
  const RowLayout layout = LayoutOf(KeyType::kInt64, 2);
  std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  ASSERT_TRUE(AppendRows(store.get(), layout, {{1, 5}}).ok());
  ASSERT_TRUE(store->DropSlots("adagrad").ok());
  ASSERT_TRUE(AppendRows(store.get(), layout, {{2, 8}}).ok());  // with new slots of the same name
  const int64_t keys[] = {1, 2};
  for (int step = 0; step < 3; ++step) {
    std::vector<char> rows(2 * layout.stride());
    bool found[2] = {};
    ASSERT_TRUE(store->Find({keys, nullptr, 2}, layout, rows.data(), found, nullptr).ok());
    EXPECT_TRUE(found[0] && found[1]);
    EXPECT_EQ(FloatAt(rows.data(), 0), 5) << step;
    EXPECT_EQ(FloatAt(rows.data(), 2), 0.5) << step;
    EXPECT_EQ(FloatAt(rows.data() + layout.stride(), 2), 9) << step;
    if (step == 0) {
      store.reset();
      store = OpenStore(SmallOptions(directory.path()));
    } else {
      ASSERT_TRUE(store->Compact(true).ok());
    }
  }
}

TEST(RunStore, ClearRemovesAllFiles) {
  const TempDirectory directory;
  const RowLayout layout = LayoutOf(KeyType::kInt64, 2);
  const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  EXPECT_TRUE(store->empty());
  ASSERT_TRUE(AppendRows(store.get(), layout, {{1, 5}, {2, 6}}).ok());
  EXPECT_FALSE(store->empty());
  ASSERT_TRUE(store->Clear().ok());
  EXPECT_TRUE(store->empty());
  EXPECT_TRUE(directory.Files(".run").empty());
  ExpectRows(*store, layout, {}, {1, 2});
}

TEST(RunStore, RefusesRowsThatDoNotFit) {
  const TempDirectory directory;
  const std::unique_ptr<RunStore> store = OpenStore(SmallOptions(directory.path()));
  const RowLayout layout = LayoutOf(KeyType::kInt64, 2);
  ASSERT_TRUE(AppendRows(store.get(), layout, {{1, 5}}).ok());
  EXPECT_EQ(AppendRows(store.get(), LayoutOf(KeyType::kInt64, 3), {{1, 6}}).code,
            Code::kInvalidArgument);
  EXPECT_EQ(AppendRows(store.get(), LayoutOf(KeyType::kString, 2), {{1, 6}}).code,
            Code::kInvalidArgument);
  KeyBatch keys(KeyType::kInt64, {});
  RowBatch twice = BatchOf(layout, {{3, 1}, {4, 2}}, &keys);
  twice.words[1] = twice.words[0];
  EXPECT_EQ(store->Append(twice).code, Code::kInvalidArgument);
  ExpectRows(*store, layout, {{1, 5}}, {3, 4});
  std::unique_ptr<RunStore> second;
  EXPECT_EQ(RunStore::Open(SmallOptions(directory.path()), &second).code,
            Code::kFailedPrecondition);
}

TEST(RunStore, AmplificationStaysInTheStatedBounds) {
  const TempDirectory directory;
  RunStoreOptions options = SmallOptions(directory.path());
  options.part_bytes = 128 << 10;
  const std::unique_ptr<RunStore> store = OpenStore(options);
  const RowLayout layout = LayoutOf(KeyType::kInt64, 96);  // 768 bytes
  std::mt19937_64 random(3);
  constexpr int64_t kRows = 4000;
  uint64_t rows = 0;
  double most_space = 0;
  for (int step = 0; step < 320; ++step) {
    Rows batch;
    while (batch.size() < 25) {
      const int64_t key = step < 160 ? step * 25 + static_cast<int64_t>(batch.size())
                                     : static_cast<int64_t>(random() % kRows);
      batch[key] = static_cast<float>(step);
    }
    ASSERT_TRUE(AppendRows(store.get(), layout, batch).ok());
    rows += batch.size();
    ASSERT_TRUE(store->Compact().ok());
    if (step < 160) continue;
    most_space = std::max(most_space, static_cast<double>(store->Stats().disk_bytes) /
                                          static_cast<double>(kRows * layout.stride()));
  }
  const RunStoreStats stats = store->Stats();
  const double writes = static_cast<double>(stats.appended_bytes + stats.compacted_bytes) /
                        static_cast<double>(rows * layout.stride());
  EXPECT_LE(writes, 5);
  EXPECT_LE(most_space, 1.5);
  std::printf("write amplification %.2f, space amplification %.2f\n", writes, most_space);
}

}  // namespace
}  // namespace de::engine
