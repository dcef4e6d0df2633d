// The table compared with std::unordered_map, and each guarantee of table.h.
#include "de_core/cc/engine/table/table.h"

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <unordered_map>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {
namespace {

/// A batch of keys of either type that it owns: key i is the integer, or its decimal digits.
class TestKeys {
 public:
  TestKeys(KeyType type, std::vector<int64_t> numbers) : numbers_(std::move(numbers)) {
    if (type == KeyType::kString) {
      for (int64_t n : numbers_) texts_.push_back(TextOf(n));
      views_.assign(texts_.begin(), texts_.end());
    }
  }
  static std::string TextOf(int64_t n) {
    // Lengths from 0 up, with embedded zero bytes.
    if (n == 0) return "";
    std::string text = std::to_string(n);
    if (n % 3 == 0) text += std::string(1, '\0') + "tail that makes the key longer than a line";
    return text;
  }
  Keys keys() const {
    return {views_.empty() ? numbers_.data() : nullptr, views_.empty() ? nullptr : views_.data(),
            numbers_.size()};
  }
  const std::vector<int64_t>& numbers() const { return numbers_; }

 private:
  std::vector<int64_t> numbers_;
  std::vector<std::string> texts_;
  std::vector<std::string_view> views_;
};

std::unique_ptr<Table> MakeTable(KeyType key_type, size_t dim, DType dtype = DType::kFloat32) {
  TableOptions options;
  options.key_type = key_type;
  options.dim = dim;
  options.value_dtype = dtype;
  std::unique_ptr<Table> table;
  const Status status = Table::Create(options, &table);
  EXPECT_TRUE(status.ok()) << status.message;
  return table;
}

Values ValuesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), nullptr};
}

void Put(Table* table, const TestKeys& keys, const std::vector<float>& values) {
  const Status status = table->InsertOrAssign(keys.keys(), ValuesOf(values), nullptr);
  ASSERT_TRUE(status.ok()) << status.message;
}

std::vector<float> Get(const Table& table, const TestKeys& keys, std::vector<char>* found) {
  std::vector<float> out(keys.numbers().size() * table.options().dim, -1);
  found->assign(keys.numbers().size(), 2);
  const Status status = table.Find(keys.keys(), {reinterpret_cast<char*>(out.data()), nullptr},
                                   reinterpret_cast<bool*>(found->data()), nullptr);
  EXPECT_TRUE(status.ok()) << status.message;
  return out;
}

class TableOfKeyType : public ::testing::TestWithParam<KeyType> {};
INSTANTIATE_TEST_SUITE_P(KeyTypes, TableOfKeyType,
                         ::testing::Values(KeyType::kInt64, KeyType::kString));

TEST_P(TableOfKeyType, AgreesWithAMapOverRandomVerbs) {
  constexpr size_t kDim = 3;
  const auto table = MakeTable(GetParam(), kDim);
  std::unordered_map<int64_t, float> oracle;  // all elements of a row are equal
  std::mt19937_64 random(7);
  float next = 1;
  for (int step = 0; step < 400; ++step) {
    std::vector<int64_t> numbers(1 + random() % 300);
    for (int64_t& n : numbers) n = static_cast<int64_t>(random() % 4000);
    const TestKeys keys(GetParam(), numbers);
    const auto verb = random() % 10;
    std::vector<float> values(numbers.size() * kDim);
    for (size_t i = 0; i < values.size(); ++i) values[i] = next + static_cast<float>(i / kDim);
    next += 1000;
    if (verb < 4) {
      Put(table.get(), keys, values);
      for (size_t i = 0; i < numbers.size(); ++i) oracle[numbers[i]] = values[i * kDim];
    } else if (verb < 6) {
      ASSERT_TRUE(table->Erase(keys.keys(), nullptr).ok());
      for (int64_t n : numbers) oracle.erase(n);
    } else if (verb == 6) {
      ASSERT_TRUE(table->AccumOrAssign(keys.keys(), values.data(), nullptr, nullptr).ok());
      for (size_t i = 0; i < numbers.size(); ++i) oracle[numbers[i]] += values[i * kDim];
    } else if (verb == 7 && step % 7 == 0) {
      ASSERT_TRUE(table->ShrinkToFit().ok());
    } else if (verb == 8 && step % 50 == 0) {
      ASSERT_TRUE(table->Clear().ok());
      oracle.clear();
    }
    ASSERT_EQ(table->size(), oracle.size());
    std::vector<char> found;
    const std::vector<float> rows = Get(*table, keys, &found);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const auto at = oracle.find(numbers[i]);
      ASSERT_EQ(found[i], at != oracle.end());
      for (size_t c = 0; c < kDim; ++c) {
        ASSERT_EQ(rows[i * kDim + c], at == oracle.end() ? 0 : at->second);
      }
    }
  }
}

TEST_P(TableOfKeyType, ExportVisitsEveryRowOnce) {
  const auto table = MakeTable(GetParam(), 1);
  std::vector<int64_t> numbers(50000);
  std::vector<float> values(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int64_t>(i * 7);
    values[i] = static_cast<float>(i);
  }
  const TestKeys keys(GetParam(), numbers);
  Put(table.get(), keys, values);
  std::map<uint64_t, float> seen;
  std::set<std::string> names;
  uint64_t last = 0;
  for (ExportCursor cursor; !cursor.done;) {
    RowBatch batch;
    ASSERT_TRUE(table->ExportBatch(&cursor, &batch).ok());
    for (size_t i = 0; i < batch.size(); ++i) {
      const uint64_t hash = Mix64(batch.words[i]);
      ASSERT_GE(hash, batch.hash_begin);
      ASSERT_LE(hash, batch.hash_last);
      float value;
      std::memcpy(&value, batch.rows.data() + i * table->layout().stride(), sizeof(value));
      ASSERT_TRUE(seen.emplace(batch.words[i], value).second);
      if (!batch.keys.empty()) {
        ASSERT_EQ(HashBytes(batch.keys[i]), batch.words[i]);
        names.emplace(batch.keys[i]);
      }
    }
    ASSERT_TRUE(batch.hash_begin == last);
    last = batch.hash_last + 1;
  }
  EXPECT_EQ(last, 0U);
  EXPECT_EQ(seen.size(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    const uint64_t word = WordOf(keys.keys(), i);
    ASSERT_EQ(seen.at(word), values[i]);
    if (GetParam() == KeyType::kString) {
      ASSERT_EQ(names.count(TestKeys::TextOf(numbers[i])), 1U);
    }
  }
}

TEST_P(TableOfKeyType, ALaterRowOfOneKeyInABatchWins) {
  const auto table = MakeTable(GetParam(), 1);
  const TestKeys keys(GetParam(), {5, 6, 5, 5});
  Put(table.get(), keys, {1, 2, 3, 4});
  std::vector<char> found;
  EXPECT_EQ(Get(*table, keys, &found), (std::vector<float>{4, 2, 4, 4}));
}

TEST_P(TableOfKeyType, EraseIfRemovesWhatThePredicateNames) {
  const auto table = MakeTable(GetParam(), 1);
  std::vector<int64_t> numbers(20000);
  std::vector<float> values(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<int64_t>(i);
    values[i] = static_cast<float>(i % 4);
  }
  const TestKeys keys(GetParam(), numbers);
  Put(table.get(), keys, values);
  uint64_t erased = 0;
  ASSERT_TRUE(table
                  ->EraseIf(
                      [](uint64_t, const char* row) {
                        float value;
                        std::memcpy(&value, row, sizeof(value));
                        return value == 2;
                      },
                      &erased)
                  .ok());
  EXPECT_EQ(erased, 5000U);
  std::vector<char> found;
  Get(*table, keys, &found);
  for (size_t i = 0; i < numbers.size(); ++i) ASSERT_EQ(found[i], values[i] != 2);
}

TEST(Table, EveryIntegerIsAKey) {
  const auto table = MakeTable(KeyType::kInt64, 1);
  const TestKeys keys(KeyType::kInt64, {0, -1, 1, std::numeric_limits<int64_t>::min(),
                                        std::numeric_limits<int64_t>::max(), 0x7ff0000000000000});
  std::vector<char> found;
  Get(*table, keys, &found);
  EXPECT_EQ(found, std::vector<char>(6, 0));
  Put(table.get(), keys, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(Get(*table, keys, &found), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(found, std::vector<char>(6, 1));
}

TEST(Table, HostileKeysOfOneHashPrefixStillWork) {
  ASSERT_EQ(UnMix64(Mix64(123456789)), 123456789U);
  const auto table = MakeTable(KeyType::kInt64, 1);
  std::vector<int64_t> numbers;
  std::vector<float> values;
  for (uint64_t i = 0; i < 60000; ++i) {
    // All in one shard and in one place of the directory, however deep it is.
    numbers.push_back(static_cast<int64_t>(UnMix64(0xabcdef0000000000ULL | (i * 71582))));
    values.push_back(static_cast<float>(i));
  }
  const TestKeys keys(KeyType::kInt64, numbers);
  Put(table.get(), keys, values);
  std::vector<char> found;
  EXPECT_EQ(Get(*table, keys, &found), values);
  EXPECT_EQ(table->size(), numbers.size());
  EXPECT_LT(table->Stats().index_bytes, numbers.size() * 64);
}

TEST(Table, KeysChosenToHurtLieAsNearTheirHomesAsRandomOnes) {
  constexpr uint64_t kRows = 60000;
  const auto stats_of = [](const std::function<uint64_t(uint64_t)>& key) {
    std::vector<int64_t> numbers;
    for (uint64_t i = 0; i < kRows; ++i) numbers.push_back(static_cast<int64_t>(key(i)));
    const auto table = MakeTable(KeyType::kInt64, 1);
    Put(table.get(), TestKeys(KeyType::kInt64, numbers), std::vector<float>(kRows, 1));
    return table->Stats();
  };
  const TableStats random = stats_of([](uint64_t i) { return Mix64(i ^ 0x5555); });
  const std::function<uint64_t(uint64_t)> hostile[] = {
      [](uint64_t i) { return i; },
      [](uint64_t i) { return i << 12; },
      [](uint64_t i) { return i << 32; },
      [](uint64_t i) { return i << 48; },
      [](uint64_t i) { return Mix64(i) << 32 | 0x1234; },
      [](uint64_t i) { return UnMix64(Mix64(i) >> 4 | 0xbULL << 60); },  // all in one shard
  };
  for (size_t i = 0; i < std::size(hostile); ++i) {
    const TableStats stats = stats_of(hostile[i]);
    EXPECT_EQ(stats.rows, kRows) << i;
    EXPECT_GT(stats.probes[0], kRows * 8 / 10) << i;
    EXPECT_LT(stats.probes.back(), kRows / 100) << i;
    EXPECT_LT(stats.index_bytes, 2 * random.index_bytes) << i;
  }
}

TEST(Table, NewSlotsKeepRowsAndStartAtTheirInitialValue) {
  const auto table = MakeTable(KeyType::kString, 2);
  const TestKeys keys(KeyType::kString, {0, 1, 2, 3});
  const std::vector<float> values{1, 2, 3, 4, 5, 6, 7, 8};
  Put(table.get(), keys, values);
  ASSERT_TRUE(table->EnsureSlots("adam", {{"m", DType::kFloat32, 2, 0.5}}).ok());
  std::vector<char> found;
  EXPECT_EQ(Get(*table, keys, &found), values);
  RowBatch batch;
  size_t rows = 0;
  for (ExportCursor cursor; !cursor.done;) {
    ASSERT_TRUE(table->ExportBatch(&cursor, &batch).ok());
    const RowLayout layout = table->layout();
    for (size_t i = 0; i < batch.size(); ++i, ++rows) {
      float slot[2];
      std::memcpy(slot,
                  batch.rows.data() + i * layout.stride() + layout.FindSlot("adam", "m")->offset,
                  sizeof(slot));
      EXPECT_EQ(slot[0], 0.5F);
      EXPECT_EQ(slot[1], 0.5F);
    }
  }
  EXPECT_EQ(rows, 4U);
  EXPECT_FALSE(table->EnsureSlots("adam", {{"m", DType::kFloat32, 1, 0.5}}).ok());
}

TEST(Table, AGradientStepSumsDuplicatesAndStartsFromTheInitialRow) {
  TableOptions options;
  options.dim = 2;
  options.initializer.kind = InitializerOptions::Kind::kConstant;
  options.initializer.a = 10;
  std::unique_ptr<Table> table;
  ASSERT_TRUE(Table::Create(options, &table).ok());
  const TestKeys keys(KeyType::kInt64, {1, 2, 1, 1});
  const std::vector<float> grads{1, 2, 10, 20, 1, 2, 1, 2};
  const Status status =
      table->Apply(*FindRule("sgd"), "sgd", {0.5}, keys.keys(), grads.data(), nullptr);
  ASSERT_TRUE(status.ok()) << status.message;
  std::vector<char> found;
  EXPECT_EQ(Get(*table, TestKeys(KeyType::kInt64, {1, 2, 3}), &found),
            (std::vector<float>{8.5, 7, 5, 0, 10, 10}));
  EXPECT_EQ(found, (std::vector<char>{1, 1, 0}));
}

TEST(Table, StringValuesAreCopiedReplacedAndFreed) {
  const auto table = MakeTable(KeyType::kInt64, 2, DType::kString);
  const TestKeys keys(KeyType::kInt64, {1, 2});
  class Sink final : public ValueSink {
   public:
    void Set(size_t element, std::string_view bytes) override { got[element] = bytes; }
    std::map<size_t, std::string> got;
  };
  const std::string longer(5000, 'x');
  for (int round = 0; round < 3; ++round) {
    const std::vector<std::string_view> values{"a", "", longer, "dd"};
    ASSERT_TRUE(table->InsertOrAssign(keys.keys(), {nullptr, values.data()}, nullptr).ok());
    ASSERT_TRUE(table->ShrinkToFit().ok());
    Sink sink;
    ASSERT_TRUE(table->Find(keys.keys(), {nullptr, &sink}, nullptr, nullptr).ok());
    EXPECT_EQ(sink.got, (std::map<size_t, std::string>{{0, "a"}, {1, ""}, {2, longer}, {3, "dd"}}));
  }
  ASSERT_TRUE(table->Erase(keys.keys(), nullptr).ok());
  EXPECT_EQ(table->size(), 0U);
}

TEST(Table, MemoryOfErasedRowsComesBackOnShrink) {
  const auto table = MakeTable(KeyType::kInt64, 16);
  std::vector<int64_t> numbers(100000);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i);
  const TestKeys all(KeyType::kInt64, numbers);
  Put(table.get(), all, std::vector<float>(numbers.size() * 16, 1));
  const TableStats before = table->Stats();
  numbers.resize(95000);
  ASSERT_TRUE(table->Erase(TestKeys(KeyType::kInt64, numbers).keys(), nullptr).ok());
  EXPECT_GE(table->Stats().row_bytes, before.row_bytes);
  ASSERT_TRUE(table->ShrinkToFit().ok());
  const TableStats after = table->Stats();
  EXPECT_EQ(after.rows, 5000U);
  EXPECT_LT(after.row_bytes, before.row_bytes / 10);
  EXPECT_LT(after.index_bytes, before.index_bytes / 5);
  std::vector<char> found;
  Get(*table, all, &found);
  for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], i >= 95000);
}

TEST(Table, BadArgumentsAreNamedAndChangeNothing) {
  TableOptions options;
  options.dim = 0;
  std::unique_ptr<Table> none;
  EXPECT_EQ(Table::Create(options, &none).code, Code::kInvalidArgument);
  options.dim = 4097;
  EXPECT_EQ(Table::Create(options, &none).code, Code::kInvalidArgument);
  const auto table = MakeTable(KeyType::kString, 1);
  const TestKeys ints(KeyType::kInt64, {1});
  const std::vector<float> one{1};
  EXPECT_EQ(table->InsertOrAssign(ints.keys(), ValuesOf(one), nullptr).code,
            Code::kInvalidArgument);
  EXPECT_EQ(table->size(), 0U);
  const auto integers = MakeTable(KeyType::kInt64, 1, DType::kInt32);
  EXPECT_EQ(integers->Apply(*FindRule("sgd"), "sgd", {0.5}, ints.keys(), one.data(), nullptr).code,
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace de::engine
