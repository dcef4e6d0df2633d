// Overwrites of rows: all specialized widths, with AVX-512 and without, with one, few and many
// threads; equal keys in one batch; keys with and without rows mixed; tables so full that many keys
// are not in their home line.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/forced_level.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

class TableAssign : public testing::TestWithParam<std::tuple<size_t, size_t, SimdLevel>> {};

TEST_P(TableAssign, OfEqualKeysTheLastRowStaysAndNoOtherRowChanges) {
  const auto [dim, count_of_threads, level] = GetParam();
  const ForcedLevel forced(level);
  if (!forced.is(level)) GTEST_SKIP() << "this processor lacks the level";
  Threads threads(count_of_threads);
  TableOptions options;
  options.dim = dim;
  std::unique_ptr<Table> table;
  ASSERT_TRUE(Table::Create(options, &table).ok());
  ASSERT_TRUE(table->EnsureSlots("sgd", {{"momentum", DType::kFloat32, dim, 7}}).ok());

  std::unordered_map<int64_t, float> expected;  // by key: the first element of its row
  std::mt19937_64 random(1);
  float next = 1;
  for (const size_t count : {1, 5, 512, 513, 4000, 20000, 20000, 3, 2000, 15000}) {
    std::vector<int64_t> keys(count);
    std::vector<float> values;
    for (int64_t& key : keys) {
      key = static_cast<int64_t>(Mix64(random() % 20000));
      expected[key] = next;
      for (size_t e = 0; e < dim; ++e) values.push_back(next + static_cast<float>(e));
      ++next;
    }
    const Values in{reinterpret_cast<const char*>(values.data()), nullptr};
    ASSERT_TRUE(table->InsertOrAssign({keys.data(), nullptr, count}, in, &threads).ok());
  }
  ASSERT_GT(table->Stats().load_factor, 0.4) << "too roomy for keys behind their home line";
  ASSERT_EQ(table->size(), expected.size());

  std::vector<int64_t> keys;
  for (const auto& [key, first] : expected) keys.push_back(key);
  std::vector<float> rows(keys.size() * dim), slots(rows);
  const Keys all{keys.data(), nullptr, keys.size()};
  ASSERT_TRUE(
      table->Find(all, {reinterpret_cast<char*>(rows.data()), nullptr}, nullptr, nullptr).ok());
  ASSERT_TRUE(table
                  ->FindSlot("sgd", "momentum", dim * sizeof(float), all,
                             reinterpret_cast<char*>(slots.data()), nullptr)
                  .ok());
  for (size_t i = 0; i < keys.size(); ++i) {
    const float first = expected[keys[i]];
    for (size_t e = 0; e < dim; ++e) {
      ASSERT_EQ(rows[i * dim + e], first + static_cast<float>(e)) << i;
      ASSERT_EQ(slots[i * dim + e], 7) << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    WidthsAndThreads, TableAssign,
    testing::Combine(testing::Values(1, 8, 16, 32, 64, 65), testing::Values(1, 2, 3, 6),
                     testing::Values(SimdLevel::kScalar, SimdLevel::kAvx2, SimdLevel::kAvx512)));

}  // namespace
}  // namespace de::engine
