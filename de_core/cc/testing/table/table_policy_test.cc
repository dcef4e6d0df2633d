// Size limits, expiry and metadata of rows: the parts that Python tests cannot reach.
#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <random>
#include <thread>

#include "de_core/cc/engine/save/table_restore.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

Status Upsert(Table* table, const std::vector<int64_t>& keys) {
  const std::vector<float> values(keys.size() * table->options().dim, 1.0F);
  return table->InsertOrAssign(KeysOf(keys), RowsIn(values), nullptr);
}

TEST(TablePolicy, ABatchFarLargerThanTheBoundNeverTakesMuchMore) {
  const auto table = Make("evict_by=1;max_rows=1000");
  ASSERT_TRUE(Upsert(table.get(), Numbers(0, 100000)).ok());
  EXPECT_LE(table->size(), 1000U);
  EXPECT_GE(table->size(), 900U);
  // The table needs memory for max_rows rows and one part of the batch per shard, not for the whole
  // batch.
  EXPECT_LE(table->Stats().row_bytes, kShards * (1000 + 2 * 512) * table->layout().stride());
}

TEST(TablePolicy, ABoundOfBytesKeepsAsManyRowsHoweverTheyCame) {
  constexpr uint64_t kBytes = 400000;
  const auto table = Make("evict_by=1;max_bytes=" + std::to_string(kBytes));
  ASSERT_TRUE(Upsert(table.get(), Numbers(0, 40000)).ok());
  const TableStats stats = table->Stats();
  EXPECT_LE(stats.rows * table->layout().stride() + stats.index_bytes, kBytes);
  EXPECT_GT(stats.rows, 6000U);  // 10,000 rows of 16 bytes, with 26 of the index
  // Space beyond the bound is not reserved, and space in advance evicts no row.
  ASSERT_TRUE(table->Reserve(1000000).ok());
  EXPECT_LE(table->Stats().index_bytes, kBytes);
  ASSERT_TRUE(Upsert(table.get(), Numbers(100000, 1000)).ok());
  EXPECT_GT(table->size(), 6000U);
}

TEST(TablePolicy, ABoundOfBytesHoldsWhileRowsWiden) {
  constexpr uint64_t kBytes = 400000;
  TableOptions options;
  options.dim = 4;
  const auto table = Make("evict_by=1;max_bytes=" + std::to_string(kBytes), options);
  uint64_t most = 0;
  for (int64_t first = 0; first < 60000; first += 300) {
    if (first == 30000) {
      ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, 4, 0}}).ok());
    }
    ASSERT_TRUE(Upsert(table.get(), Numbers(first, 300)).ok());
    const TableStats stats = table->Stats();
    most = std::max(most, stats.rows * table->layout().stride() + stats.index_bytes);
  }
  EXPECT_LE(most, kBytes);
  EXPECT_GT(most, kBytes * 3 / 4);
  EXPECT_GT(table->Stats().evicted, 40000U);
}

TEST(TablePolicy, ExpiredRowsGoAsOthersAreWritten) {
  const auto table = Make("ttl_steps=1");
  const OptimizerRule* sgd = FindRule("sgd");
  const auto train = [&](const std::vector<int64_t>& keys) {
    const std::vector<float> grads(keys.size());
    return table->Apply(*sgd, "sgd", {1.0}, KeysOf(keys), grads.data(), nullptr);
  };
  ASSERT_TRUE(train(Numbers(0, 20000)).ok());
  for (int64_t step = 0; step < 24; ++step) ASSERT_TRUE(train(Numbers(-2000, 2000)).ok());
  EXPECT_EQ(table->size(), 2000U);
  EXPECT_EQ(table->Stats().evicted, 20000U);
}

TEST(TablePolicy, SnapshotsSeeNoExpiredRowAndKeepTheCounts) {
  const auto table = Make("ttl_steps=1;admission=1;min_count=3");
  const OptimizerRule* sgd = FindRule("sgd");
  const float grads[2] = {};
  const std::vector<int64_t> keys = {1, 2};
  const auto train = [&](Table* target) {
    return target->Apply(*sgd, "sgd", {1.0}, KeysOf(keys), grads, nullptr).ok();
  };
  ASSERT_TRUE(train(table.get()) && train(table.get()));
  EXPECT_EQ(table->size(), 0U);
  std::map<std::string, std::string> state;
  table->SaveState(&state);
  const auto copy = Make("ttl_steps=1;admission=1;min_count=3");
  ASSERT_TRUE(copy->LoadCounts(state).ok());
  ASSERT_TRUE(train(copy.get()));
  EXPECT_EQ(copy->size(), 2U);
  state["de.admission"].resize(40);
  EXPECT_FALSE(copy->LoadCounts(state).ok());
}

/// A table that is saved as a base and, after lookups of some keys, as a delta.
class LookedUp : public ::testing::TestWithParam<std::tuple<const char*, KeyType>> {
 protected:
  static constexpr int64_t kRows = 20000;

  std::unique_ptr<Table> MakeTable() const {
    TableOptions options;
    options.key_type = std::get<1>(GetParam());
    return Make(std::get<0>(GetParam()), std::move(options));
  }

  Keys Of(int64_t begin, int64_t end) {
    numbers_ = Numbers(begin, static_cast<size_t>(end - begin));
    texts_.clear();
    for (const int64_t number : numbers_) texts_.push_back("key " + std::to_string(number));
    views_.assign(texts_.begin(), texts_.end());
    return std::get<1>(GetParam()) == KeyType::kString ? KeysOf(views_) : KeysOf(numbers_);
  }

  Status Write(Table* table, const Keys& keys) {
    const std::vector<float> values(keys.size, 1.0F);
    return table->InsertOrAssign(keys, RowsIn(values), nullptr);
  }

  Status LookUp(Table* table, const Keys& keys) {
    std::vector<float> values(keys.size);
    return table->Find(keys, RowsTo(&values), nullptr, nullptr);
  }

  std::vector<int64_t> Column(const Table& table, RowColumn column) {
    std::vector<int64_t> values(kRows);
    EXPECT_TRUE(ReadColumn(table, column, Of(0, kRows), values.data()).ok());
    return values;
  }

 private:
  std::vector<int64_t> numbers_;
  std::vector<std::string> texts_;
  std::vector<std::string_view> views_;
};

TEST_P(LookedUp, RowsAreInTheNextDeltaAndInNoPublishedOne) {
  const auto table = MakeTable();
  ASSERT_TRUE(Write(table.get(), Of(0, kRows)).ok());
  const bool uses = table->layout().FindSlot(kMetadataOwner, "uses") != nullptr;
  const RowColumn column = uses ? RowColumn::kUses : RowColumn::kTime;
  SaveOptions published = ChainOf("published", false);
  published.values_only = true;
  ASSERT_NE(Save(table.get(), published, 1), "");
  std::vector<std::string> files = {Save(table.get(), ChainOf("c", false), 2)};
  for (uint8_t delta = 3; delta < 6; ++delta) {
    ASSERT_TRUE(LookUp(table.get(), Of(delta * 1000, delta * 1000 + 500)).ok());
    ASSERT_TRUE(Write(table.get(), Of(delta, delta + 1)).ok());
    files.push_back(Save(table.get(), ChainOf("c", true), delta));
    EXPECT_EQ(Readers({files.back()}).all[0]->rows(), 501U);
    const auto restored = MakeTable();
    RestoreReport report;
    ASSERT_TRUE(RestoreTable(restored.get(), Readers(files).all, {}, nullptr, &report).ok());
    EXPECT_EQ(Column(*restored, column), Column(*table, column));
  }
  published.delta = true;
  EXPECT_EQ(Readers({Save(table.get(), published, 9)}).all[0]->rows(), 3U);
}

INSTANTIATE_TEST_SUITE_P(
    Policies, LookedUp,
    ::testing::Combine(::testing::Values("evict_by=1;max_rows=50000;count_reads=1",
                                         "evict_by=2;max_rows=50000;count_reads=1",
                                         "ttl_micros=3600000000;count_reads=1"),
                       ::testing::Values(KeyType::kInt64, KeyType::kString)));

TEST(TablePolicy, ATableWithoutAPolicyHasNoColumnsAndSaysSo) {
  const auto table = Make("");
  EXPECT_TRUE(table->layout().slots().empty());
  uint64_t evicted = 0;
  const Status status = table->EvictBelow(RowColumn::kTime, kAboveAll, &evicted);
  EXPECT_FALSE(status.ok());
}

TEST(TablePolicyStress, AllVerbsAtOnceStayWithinTheBound) {
  constexpr uint64_t kBound = 3000;
  const auto table =
      Make("evict_by=1;max_rows=3000;count_reads=1;uses=1;ttl_steps=40;admission=1;min_count=2");
  // Each thread goes on until all have done their rounds.
  constexpr int kRounds = 300;
  std::atomic<int> unfinished{0};
  std::atomic<int> failed{0};
  std::atomic<uint64_t> most{0};
  std::vector<std::thread> threads;
  const auto start = [&](auto&& verb) {
    ++unfinished;
    threads.emplace_back([&, verb, seed = threads.size()] {
      std::mt19937_64 random(seed);
      std::vector<int64_t> keys(400);
      for (int round = 1; unfinished > 0; ++round) {
        for (int64_t& key : keys) key = static_cast<int64_t>(random() % 8000);
        failed += !verb(keys).ok();
        if (round == kRounds) --unfinished;
      }
    });
  };
  const OptimizerRule* sgd = FindRule("sgd");
  for (int i = 0; i < 2; ++i) {
    start([&](const std::vector<int64_t>& keys) {
      const std::vector<float> grads(keys.size(), 1.0F);
      return table->Apply(*sgd, "sgd", {0.1}, KeysOf(keys), grads.data(), nullptr);
    });
  }
  start([&](const std::vector<int64_t>& keys) { return Upsert(table.get(), keys); });
  for (int i = 0; i < 2; ++i) {
    start([&](const std::vector<int64_t>& keys) {
      std::vector<float> rows(keys.size());
      return table->Find(KeysOf(keys), RowsTo(&rows), nullptr, nullptr);
    });
  }
  start([&](const std::vector<int64_t>& keys) {
    std::vector<int64_t> uses(keys.size());
    const Status status = ReadColumn(*table, RowColumn::kUses, KeysOf(keys), uses.data());
    return status.ok() ? table->Touch(KeysOf(keys)) : status;
  });
  start([&](const std::vector<int64_t>&) {
    std::vector<RowRank> rows;
    const uint64_t size = table->size();
    const Candidates wanted(size, 2500);
    const Status status = table->RankCandidates(RowColumn::kUses, wanted, &rows);
    if (!status.ok()) return status;
    uint64_t evicted = 0;
    return table->EvictBelow(RowColumn::kUses, FirstKept(wanted, std::move(rows), false), &evicted);
  });
  start([&](const std::vector<int64_t>&) {
    RowBatch batch;
    for (ExportCursor cursor; !cursor.done;) {
      if (const Status status = table->ExportBatch(&cursor, &batch); !status.ok()) return status;
    }
    std::map<std::string, std::string> state;
    table->SaveState(&state);
    most = std::max(most.load(), table->size());
    return Status::Ok();
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failed, 0);
  EXPECT_LE(most, kBound + 3 * 512);
  ASSERT_TRUE(Upsert(table.get(), {1}).ok());
  EXPECT_LE(table->size(), kBound);
}

}  // namespace
}  // namespace de::engine::testing
