// A tiered table beside a table in memory: saves, evictions, its bound of memory and its reads.
// tier_simulation_test.cc compares the results of all verbs with a map.
#include "de_core/cc/engine/tier/tiered_table.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/testing/saved_table.h"
#include "de_core/cc/testing/string_sink.h"
#include "de_core/cc/testing/tier/equal_hashes.h"
#include "de_core/cc/testing/tier/simulated_disk.h"

namespace de::engine {
namespace {

using testing::SimulatedDisk;

constexpr size_t kDim = 3;

TableOptions Options(KeyType key_type) {
  TableOptions options;
  options.key_type = key_type;
  options.dim = kDim;
  options.initializer.kind = InitializerOptions::Kind::kUniform;
  options.initializer.a = -1;
  options.initializer.b = 1;
  options.policy.columns[static_cast<size_t>(RowColumn::kScore)] = true;
  return options;
}

/// A batch of keys with repetitions.
struct Batch {
  Batch(std::mt19937_64* random, KeyType key_type, size_t universe) {
    const size_t size = (*random)() % 40;
    for (size_t i = 0; i < size; ++i) {
      ints.push_back(static_cast<int64_t>((*random)() % universe) * 7919);
      texts.push_back("key " + std::to_string(ints.back()));
      for (size_t c = 0; c < kDim; ++c) {
        values.push_back(static_cast<float>((*random)() % 1000) / 8);
      }
    }
    views.assign(texts.begin(), texts.end());
    keys.size = size;
    if (key_type == KeyType::kString) {
      keys.strings = views.data();
    } else {
      keys.ints = ints.data();
    }
  }
  Values rows() const { return RowsIn(values); }

  std::vector<int64_t> ints;
  std::vector<std::string> texts;
  std::vector<std::string_view> views;
  std::vector<float> values;
  Keys keys;
};

class TieredTableTest : public ::testing::TestWithParam<KeyType> {
 protected:
  TieredTableTest() {
    tiered_ = testing::TableOn(disk_, Options(GetParam()), 400);
    EXPECT_TRUE(Table::Create(Options(GetParam()), &plain_).ok());
  }

  template <typename Verb>
  void Both(const Verb& verb) {
    for (TableBackend* table : {tiered_.get(), static_cast<TableBackend*>(plain_.get())}) {
      const Status status = verb(table);
      ASSERT_TRUE(status.ok()) << status.message;
    }
  }

  void Compare(const Keys& keys) {
    std::vector<float> rows[2];
    std::vector<char> found[2];
    size_t side = 0;
    Both([&](TableBackend* table) {
      rows[side].resize(keys.size * kDim);
      found[side].resize(keys.size);
      const Status status = table->FindToTrain(
          keys, RowsTo(&rows[side]), reinterpret_cast<bool*>(found[side].data()), nullptr);
      ++side;
      return status;
    });
    EXPECT_EQ(rows[0], rows[1]);
    EXPECT_EQ(found[0], found[1]);
    EXPECT_EQ(tiered_->size(), plain_->size());
  }

  /// Returns all rows, with their slots but without the times of writes, by key.
  static std::map<std::string, std::string> Contents(TableBackend* table) {
    std::map<std::string, std::string> all;
    RowBatch batch;
    for (ExportCursor cursor; !cursor.done;) {
      EXPECT_TRUE(table->ExportBatch(&cursor, &batch).ok());
      for (size_t i = 0; i < batch.size(); ++i) {
        const char* const row = batch.rows.data() + i * batch.layout.stride();
        std::string bytes(row, batch.layout.value_bytes());
        for (const RowSlot& slot : batch.layout.slots()) {
          if (slot.spec.name == NameOf(RowColumn::kTime)) continue;
          bytes.append(row + slot.offset, slot.bytes());
        }
        const std::string key =
            batch.keys.empty() ? std::to_string(batch.words[i]) : std::string(batch.keys[i]);
        EXPECT_TRUE(all.emplace(key, bytes).second) << "a row was exported twice";
      }
    }
    return all;
  }

  void Step(std::mt19937_64* random) {
    const Batch batch(random, GetParam(), 300);
    const Keys& keys = batch.keys;
    const OptimizerRule* const adagrad = FindRule("adagrad");
    const std::vector<double> hyper = {0.1, 0.01, 0.1};
    switch ((*random)() % 5) {
      case 0:
        Both([&](TableBackend* t) { return t->InsertOrAssign(keys, batch.rows(), nullptr); });
        break;
      case 1:
      case 2:
        Both([&](TableBackend* t) {
          return t->Apply(*adagrad, "o", hyper, keys, batch.values.data(), nullptr, nullptr);
        });
        break;
      case 3:
        Both([&](TableBackend* t) { return t->Erase(keys, nullptr); });
        break;
      default:
        Both([&](TableBackend* t) {
          return WriteColumn(*t, RowColumn::kScore, keys, batch.ints.data());
        });
    }
    Compare(keys);
  }

  const std::shared_ptr<SimulatedDisk> disk_ = std::make_shared<SimulatedDisk>();
  std::unique_ptr<TableBackend> tiered_;
  std::unique_ptr<Table> plain_;
};

TEST_P(TieredTableTest, ExportsShortKeysWithoutColdRows) {
  const std::vector<int64_t> ints = {7};
  const std::vector<std::string_view> texts = {"k"};
  Keys keys;
  keys.size = 1;
  if (GetParam() == KeyType::kString) {
    keys.strings = texts.data();
  } else {
    keys.ints = ints.data();
  }
  const std::vector<float> row(kDim, 2.0F);
  Both([&](TableBackend* table) { return table->InsertOrAssign(keys, RowsIn(row), nullptr); });
  EXPECT_EQ(disk_->writes, 0U);
  EXPECT_EQ(Contents(tiered_.get()), Contents(plain_.get()));
}

TEST_P(TieredTableTest, SavesAndDeltasHoldHotAndColdRows) {
  std::mt19937_64 random(11);
  std::vector<std::string> files;
  for (uint8_t number = 1; number < 16; ++number) {
    // Few steps between saves: most keys of a step were cold at the save before.
    for (size_t i = 0; i < (number == 1 ? 60U : 4U) && !HasFailure(); ++i) Step(&random);
    files.push_back(testing::Save(tiered_.get(), testing::ChainOf("c", number > 1), number));
    ASSERT_FALSE(files.back().empty());
  }
  const std::map<std::string, std::string> expected = Contents(plain_.get());
  EXPECT_GT(expected.size(), 50U);
  const testing::Readers readers(files);
  Both([&](TableBackend* table) {
    RestoreReport report;
    return RestoreTable(table, readers.all, {}, nullptr, &report);
  });
  EXPECT_EQ(Contents(plain_.get()), expected);
  EXPECT_EQ(Contents(tiered_.get()), expected);
  EXPECT_EQ(tiered_->size(), plain_->size());
}

TEST_P(TieredTableTest, ADeltaHoldsNoUnchangedRow) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 60; ++i) {
    const Batch batch(&random, GetParam(), 300);
    ASSERT_TRUE(tiered_->InsertOrAssign(batch.keys, batch.rows(), nullptr).ok());
  }
  ASSERT_GT(tiered_->Stats().tier->cold_rows, 100U);
  SaveOptions base;
  base.chain = "chain";
  ASSERT_NE(testing::Save(tiered_.get(), base, 1), "");
  // The rows of these keys push other rows, which are unchanged, out of memory.
  std::set<std::string> changed;
  for (int i = 0; i < 3; ++i) {
    const Batch batch(&random, GetParam(), 300);
    ASSERT_TRUE(tiered_->InsertOrAssign(batch.keys, batch.rows(), nullptr).ok());
    changed.insert(batch.texts.begin(), batch.texts.end());
  }
  SaveOptions delta = base;
  delta.delta = true;
  delta.id[0] = 2;
  std::unique_ptr<TableSave> save;
  ASSERT_TRUE(TableSave::Begin(tiered_.get(), delta, &save).ok());
  StringSink sink;
  ASSERT_TRUE(save->Write(&sink, nullptr).ok());
  EXPECT_EQ(save->report().rows, changed.size());
  EXPECT_EQ(save->report().tombstones, 0U);
}

/// Keys [first, last), and rows of one value for them.
struct KeyRange {
  KeyRange(KeyType key_type, int64_t first, int64_t last) {
    for (int64_t key = first; key < last; ++key) {
      ints.push_back(key);
      texts.push_back("key " + std::to_string(key));
    }
    views.assign(texts.begin(), texts.end());
    keys = {key_type == KeyType::kString ? nullptr : ints.data(),
            key_type == KeyType::kString ? views.data() : nullptr, ints.size()};
  }
  void Put(TableBackend* table, float value) const {
    const std::vector<float> rows(ints.size() * kDim, value);
    const Status status = table->InsertOrAssign(keys, RowsIn(rows), nullptr);
    ASSERT_TRUE(status.ok()) << status.message;
  }

  std::vector<int64_t> ints;
  std::vector<std::string> texts;
  std::vector<std::string_view> views;
  Keys keys;
};

/// Runs a verb of the table before each write of a save.
class BusySink final : public ByteSink {
 public:
  explicit BusySink(std::function<void()> verb) : verb_(std::move(verb)) {}
  Status Append(const void* data, size_t size) override {
    verb_();
    return saved.Append(data, size);
  }
  StringSink saved;

 private:
  std::function<void()> verb_;
};

TEST_P(TieredTableTest, ADeltaHoldsTheChangesOfRowsThatLeaveTheMemoryDuringIt) {
  for (const int64_t count : {500, 80'000}) {  // so many changes are not listed, but scanned for
    std::unique_ptr<TableBackend> tables[] = {
        testing::TableOn(std::make_shared<SimulatedDisk>(), Options(GetParam()), 100U * count),
        nullptr};
    ASSERT_TRUE(Table::Create(Options(GetParam()), &plain_).ok());
    tables[1] = std::move(plain_);
    for (const auto& table : tables) {
      const KeyRange all(GetParam(), 0, count), erased(GetParam(), 0, count / 10);
      all.Put(table.get(), 1);
      std::vector<std::string> files = {
          testing::Save(table.get(), testing::ChainOf("c", false), 1)};
      all.Put(table.get(), 2);
      SaveOptions options = testing::ChainOf("c", true);
      options.id[0] = 2;
      std::unique_ptr<TableSave> save;
      ASSERT_TRUE(TableSave::Begin(table.get(), options, &save).ok());
      int64_t next = count;
      BusySink sink([&] {
        if (next == count) ASSERT_TRUE(table->Erase(erased.keys, nullptr).ok());
        if (next == 3 * count) return;
        KeyRange(GetParam(), next, next + count / 2).Put(table.get(), 3);
        next += count / 2;
      });
      ASSERT_TRUE(save->Write(&sink, nullptr).ok());
      files.push_back(sink.saved.bytes());
      if (table->Stats().tier) ASSERT_GT(table->Stats().tier->rows_out, count / 2U);
      std::unique_ptr<Table> restored;
      ASSERT_TRUE(Table::Create(Options(GetParam()), &restored).ok());
      const testing::Readers readers(files);
      RestoreReport report;
      ASSERT_TRUE(RestoreTable(restored.get(), readers.all, {}, nullptr, &report).ok());
      std::vector<float> values(all.ints.size() * kDim);
      const auto found = std::make_unique<bool[]>(all.ints.size());
      ASSERT_TRUE(restored->Find(all.keys, RowsTo(&values), found.get(), nullptr).ok());
      for (size_t i = 0; i < all.ints.size(); ++i) {
        ASSERT_TRUE(found[i] || i < erased.ints.size()) << "row " << i << " of " << count;
        ASSERT_TRUE(!found[i] || values[i * kDim] == 2) << "row " << i << " of " << count;
      }
    }
  }
}

TEST(TieredTableHashTest, ADeltaHoldsTheErasureOfOneOfTwoKeysOfEqualHash) {
  const std::string texts[] = {testing::TextOfGroup(0, 0), testing::TextOfGroup(1, 0)};
  const std::string_view views[] = {texts[0], texts[1]};
  const std::vector<float> rows(2 * kDim, 1.0F);
  for (const bool has_tier : {false, true}) {
    std::unique_ptr<Table> plain;
    ASSERT_TRUE(Table::Create(Options(KeyType::kString), &plain).ok());
    std::unique_ptr<TableBackend> table = std::move(plain);
    if (has_tier) {
      table = testing::TableOn(std::make_shared<SimulatedDisk>(), Options(KeyType::kString), 400);
    }
    ASSERT_TRUE(table->InsertOrAssign({nullptr, views, 2}, RowsIn(rows), nullptr).ok());
    std::vector<std::string> files = {testing::Save(table.get(), testing::ChainOf("c", false), 1)};
    ASSERT_TRUE(table->Erase({nullptr, views, 1}, nullptr).ok());
    files.push_back(testing::Save(table.get(), testing::ChainOf("c", true), 2));
    std::unique_ptr<Table> restored;
    ASSERT_TRUE(Table::Create(Options(KeyType::kString), &restored).ok());
    const testing::Readers readers(files);
    RestoreReport report;
    ASSERT_TRUE(RestoreTable(restored.get(), readers.all, {}, nullptr, &report).ok());
    bool found[2];
    ASSERT_TRUE(restored->Find({nullptr, views, 2}, {}, found, nullptr).ok());
    EXPECT_FALSE(found[0]) << has_tier;
    EXPECT_TRUE(found[1]) << has_tier;
  }
}

TEST_P(TieredTableTest, SavesChosenKeysAndKeptRows) {
  std::mt19937_64 random(3);
  for (size_t i = 0; i < 60; ++i) Step(&random);
  const Batch chosen(&random, GetParam(), 300);
  SaveOptions options;
  options.keys = &chosen.keys;
  options.keep = {{std::string(kMetadataOwner), std::string(NameOf(RowColumn::kScore)), 1}};
  const testing::Readers readers(
      {testing::Save(tiered_.get(), options, 1), testing::Save(plain_.get(), options, 2)});
  ASSERT_GT(readers.all[0]->rows(), 0U);
  EXPECT_EQ(readers.all[0]->rows(), readers.all[1]->rows());
}

TEST_P(TieredTableTest, RanksAndEvictsHotAndColdRows) {
  std::mt19937_64 random(5);
  for (size_t i = 0; i < 60; ++i) Step(&random);
  std::vector<RowRank> rows[2];
  const uint64_t kept = plain_->size() / 2;
  const Candidates wanted(plain_->size(), kept);
  size_t side = 0;
  Both([&](TableBackend* table) {
    return table->RankCandidates(RowColumn::kScore, wanted, &rows[side++]);
  });
  const RowRank least = FirstKept(wanted, rows[0], /*keep_none=*/false);
  Both([&](TableBackend* table) {
    uint64_t evicted = 0;
    return table->EvictBelow(RowColumn::kScore, least, &evicted);
  });
  EXPECT_EQ(tiered_->size(), kept);
  EXPECT_EQ(Contents(tiered_.get()), Contents(plain_.get()));
}

TEST_P(TieredTableTest, AFullDiskIsAnErrorThatChangesNothing) {
  std::mt19937_64 random(9);
  for (size_t i = 0; i < 60; ++i) Step(&random);
  const std::map<std::string, std::string> before = Contents(tiered_.get());
  disk_->capacity = 0;
  size_t failed = 0;
  for (size_t i = 0; i < 20; ++i) {
    const Batch batch(&random, GetParam(), 5000);
    const Status status = tiered_->InsertOrAssign(batch.keys, batch.rows(), nullptr);
    if (batch.keys.size == 0) continue;
    EXPECT_EQ(status.code, Code::kResourceExhausted) << status.message;
    ++failed;
  }
  EXPECT_GT(failed, 10U);
  EXPECT_EQ(Contents(tiered_.get()), before);
  disk_->capacity = ~size_t{0};
  for (size_t i = 0; i < 20; ++i) Step(&random);
}

TEST_P(TieredTableTest, AStepHardlyReadsAgainWhatItsLookupHasRead) {
  const auto table = testing::TableOn(disk_, Options(GetParam()), 40000);
  std::mt19937_64 random(4);
  for (size_t i = 0; i < 400; ++i) {
    const Batch batch(&random, GetParam(), 5000);
    ASSERT_TRUE(table->InsertOrAssign(batch.keys, batch.rows(), nullptr).ok());
  }
  const auto read_by = [&](const std::function<Status()>& verb) {
    const size_t before = disk_->reads;
    EXPECT_TRUE(verb().ok());
    return disk_->reads - before;
  };
  size_t looked_up = 0, again = 0;
  for (size_t i = 0; i < 20; ++i) {
    const Batch batch(&random, GetParam(), 5000);
    std::vector<float> rows(batch.keys.size * kDim);
    const ValuesOut out = RowsTo(&rows);
    looked_up += read_by([&] { return table->FindToTrain(batch.keys, out, nullptr, nullptr); });
    const auto add = [&] {
      return table->AccumOrAssign(batch.keys, batch.values.data(), nullptr, nullptr);
    };
    again += read_by(add);  // a row of the batch that had to make room for others
    const Batch other(&random, GetParam(), 5000);  // moves rows of the batch out
    ASSERT_TRUE(table->InsertOrAssign(other.keys, other.rows(), nullptr).ok());
  }
  EXPECT_GT(looked_up, 100U);
  EXPECT_LT(again, looked_up / 4);
}

TEST(TieredTableMemoryTest, NewSlotsDoNotExceedTheBound) {
  constexpr uint64_t kMemory = 800'000;
  constexpr size_t kRowDim = 64;
  TableOptions options;
  options.dim = kRowDim;
  const auto disk = std::make_shared<SimulatedDisk>();
  const auto table = testing::TableOn(disk, options, kMemory);
  std::vector<int64_t> keys(10'000);
  std::iota(keys.begin(), keys.end(), 0);
  const std::vector<float> ones(100 * kRowDim, 1.0F);
  for (size_t at = 0; at < keys.size(); at += 100) {
    ASSERT_TRUE(table->InsertOrAssign({&keys[at], nullptr, 100}, RowsIn(ones), nullptr).ok());
  }
  const uint64_t before = table->Stats().tier->hot_rows;
  ASSERT_GT(before * table->layout().stride(), kMemory / 2);
  bool is_first = true;
  disk->on_write = [&] {
    EXPECT_TRUE(!is_first || !table->layout().HasOwner("adam")) << "rows must leave first";
    is_first = false;
  };
  const std::vector<double> hyper = {1e-3, 0.9, 0.999, 1e-7, 0.9, 0.999, 0};
  ASSERT_TRUE(table
                  ->Apply(*FindRule("adam"), "adam", hyper, {keys.data(), nullptr, 10}, ones.data(),
                          nullptr, nullptr)
                  .ok());
  const RowLayout layout = table->layout();
  EXPECT_TRUE(layout.HasOwner("adam"));
  EXPECT_LE(table->Stats().tier->hot_rows * layout.stride(), kMemory);
  EXPECT_EQ(table->size(), keys.size());
}

TEST(TieredTableMemoryTest, StringKeysDoNotExceedTheBound) {
  constexpr uint64_t kMemory = 16'000'000;
  constexpr size_t kBatch = 500;
  for (const size_t length : {size_t{20}, size_t{300}}) {
    TableOptions options;
    options.key_type = KeyType::kString;
    const auto table = testing::TableOn(std::make_shared<SimulatedDisk>(), options, kMemory);
    const std::vector<float> ones(kBatch * options.dim, 1.0F);
    for (size_t at = 0; at < 250'000; at += kBatch) {
      std::vector<std::string> texts;
      for (size_t i = at; i < at + kBatch; ++i) {
        texts.push_back(std::to_string(i));
        texts.back().resize(length, 'k');
      }
      const std::vector<std::string_view> views(texts.begin(), texts.end());
      ASSERT_TRUE(
          table->InsertOrAssign({nullptr, views.data(), kBatch}, RowsIn(ones), nullptr).ok());
    }
    const TableStats stats = table->Stats();
    ASSERT_GT(stats.tier->cold_rows, 10'000U) << length;
    EXPECT_LE(stats.row_bytes + stats.slot_bytes + stats.index_bytes + stats.string_bytes, kMemory)
        << length;
  }
}

TEST(TieredTableOptionsTest, RefusesWhatATierCannotDo) {
  std::unique_ptr<TableBackend> table;
  const auto create = [&](const TableOptions& options) {
    std::unique_ptr<DiskRows> cold;
    EXPECT_TRUE(
        DiskRows::Create({}, std::make_shared<SimulatedDisk>(), KeyType::kInt64, &cold).ok());
    return TieredTable::Create(options, 1000, std::move(cold), &table).code;
  };
  TableOptions strings;
  strings.value_dtype = DType::kString;
  EXPECT_EQ(create(strings), Code::kInvalidArgument);
  TableOptions bounded;
  EXPECT_TRUE(ParseRowPolicy("evict_by=1;max_rows=10", &bounded.policy).ok());
  EXPECT_EQ(create(bounded), Code::kInvalidArgument);
  TableOptions expiring;
  expiring.policy.ttl_steps = 5;
  EXPECT_EQ(create(expiring), Code::kInvalidArgument);
  EXPECT_EQ(create({}), Code::kOk);
}

INSTANTIATE_TEST_SUITE_P(KeyTypes, TieredTableTest,
                         ::testing::Values(KeyType::kInt64, KeyType::kString));

}  // namespace
}  // namespace de::engine
