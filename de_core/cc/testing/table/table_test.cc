// Guarantees of table.h about hostile keys, memory and bad arguments. ../fuzz/table_fuzz.cc, which
// runs with these tests, compares the verbs with a std::unordered_map.
#include "de_core/cc/engine/table/table.h"

#include <gtest/gtest.h>

#include <functional>
#include <iterator>
#include <limits>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

std::vector<char> FoundIn(const Table& table, const std::vector<int64_t>& keys) {
  std::vector<char> found(keys.size(), 2);
  EXPECT_TRUE(table.Find(KeysOf(keys), {}, reinterpret_cast<bool*>(found.data()), nullptr).ok());
  return found;
}

TEST(Table, EveryIntegerIsAKey) {
  const auto table = Make(1);
  const std::vector<int64_t> keys = {0,
                                     -1,
                                     1,
                                     std::numeric_limits<int64_t>::min(),
                                     std::numeric_limits<int64_t>::max(),
                                     0x7ff0000000000000};
  EXPECT_EQ(FoundIn(*table, keys), std::vector<char>(6, 0));
  for (size_t i = 0; i < keys.size(); ++i) Put(table.get(), {keys[i]}, static_cast<float>(i));
  EXPECT_EQ(FoundIn(*table, keys), std::vector<char>(6, 1));
  const auto rows = Contents(*table);
  for (size_t i = 0; i < keys.size(); ++i) EXPECT_EQ(rows.at(keys[i])[0], static_cast<float>(i));
}

TEST(Table, KeysChosenToHurtLieAsNearTheirHomesAsRandomOnes) {
  constexpr uint64_t kRows = 60000;
  const auto stats_of = [](const std::function<uint64_t(uint64_t)>& key) {
    std::vector<int64_t> numbers;
    for (uint64_t i = 0; i < kRows; ++i) numbers.push_back(static_cast<int64_t>(key(i)));
    const auto table = Make(1);
    Put(table.get(), numbers, 1);
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

TEST(Table, MemoryOfErasedRowsComesBackOnShrink) {
  const auto table = Make(16);
  const std::vector<int64_t> keys = Numbers(0, 100000);
  Put(table.get(), keys, 1);
  const TableStats before = table->Stats();
  ASSERT_TRUE(table->Erase({keys.data(), nullptr, 95000}, nullptr).ok());
  EXPECT_GE(table->Stats().row_bytes, before.row_bytes);
  ASSERT_TRUE(table->ShrinkToFit().ok());
  const TableStats after = table->Stats();
  EXPECT_EQ(after.rows, 5000U);
  EXPECT_LT(after.row_bytes, before.row_bytes / 10);
  EXPECT_LT(after.index_bytes, before.index_bytes / 5);
  const std::vector<char> found = FoundIn(*table, keys);
  for (size_t i = 0; i < found.size(); ++i) ASSERT_EQ(found[i], i >= 95000);
}

TEST(Table, BadArgumentsAreNamedAndChangeNothing) {
  std::unique_ptr<Table> table;
  for (const size_t dim : {0, 4097}) {
    TableOptions options;
    options.dim = dim;
    EXPECT_EQ(Table::Create(options, &table).code, Code::kInvalidArgument);
  }
  const int64_t key = 1;
  const float one = 1;
  const auto strings = MakeStrings(1);
  EXPECT_EQ(strings
                ->InsertOrAssign({&key, nullptr, 1}, {reinterpret_cast<const char*>(&one), nullptr},
                                 nullptr)
                .code,
            Code::kInvalidArgument);
  EXPECT_EQ(strings->size(), 0U);
  TableOptions integers;
  integers.value_dtype = DType::kInt32;
  ASSERT_TRUE(Table::Create(integers, &table).ok());
  EXPECT_EQ(table->Apply(*FindRule("sgd"), "sgd", {0.5}, {&key, nullptr, 1}, &one, nullptr).code,
            Code::kInvalidArgument);
}

}  // namespace
}  // namespace de::engine::testing
