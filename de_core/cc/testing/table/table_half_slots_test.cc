// Tables with bfloat16 slots: their bytes per row, and the bits after a restart.
// tests/optimizers/test_half_precision.py tests conversions from and to float32.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine::testing {
namespace {

constexpr size_t kDim = 3;

std::unique_ptr<Table> MakeHalf(size_t dim, DType slot_dtype = DType::kBFloat16) {
  TableOptions options;
  options.dim = dim;
  options.slot_dtype = slot_dtype;
  return Make("", options);
}

void Step(Table* table, const std::vector<int64_t>& keys, float gradient,
          const std::string& rule = "adam", Executor* executor = nullptr) {
  std::vector<double> hyper = {0.1, 0.9, 0.99, 1e-7, 0.5, 0.5, 0};
  hyper.resize(FindRule(rule)->min_hyper);
  std::vector<float> gradients(keys.size() * table->options().dim);
  for (size_t i = 0; i < gradients.size(); ++i) {
    gradients[i] = gradient + 0.001F * static_cast<float>(i % 97);
  }
  const Keys all = KeysOf(keys);
  ASSERT_TRUE(table->Apply(*FindRule(rule), "opt", hyper, all, gradients.data(), executor).ok());
}

/// The whole rows of a table, by key.
std::map<int64_t, std::string> Bytes(const Table& table) {
  std::map<int64_t, std::string> all;
  RowBatch batch;
  for (ExportCursor cursor; !cursor.done;) {
    EXPECT_TRUE(table.ExportBatch(&cursor, &batch).ok());
    const size_t stride = batch.layout.stride();
    for (size_t i = 0; i < batch.size(); ++i) {
      all[static_cast<int64_t>(batch.words[i])].assign(batch.rows.data() + i * stride, stride);
    }
  }
  return all;
}

TEST(TableHalfSlots, TakeTheBytesThatTheirDtypeSays) {
  const std::vector<std::pair<std::string, std::vector<size_t>>> expected = {
      // bytes per row of dim 64 with float32 and with bfloat16 slots
      {"adam", {256 + 2 * 256, 256 + 2 * 128}},
      {"rowwise_adam", {256 + 256 + 4, 256 + 128 + 4}},
      {"adagrad", {256 + 256, 256 + 128}},
      {"rowwise_adagrad", {256 + 4, 256 + 4}},
      {"sgd", {256, 256}},
  };
  for (const auto& [rule, bytes] : expected) {
    const auto full = MakeHalf(64, DType::kFloat32), half = MakeHalf(64);
    Step(full.get(), {7}, 1, rule);
    Step(half.get(), {7}, 1, rule);
    EXPECT_EQ(full->layout().stride(), bytes[0]) << rule;
    EXPECT_EQ(half->layout().stride(), bytes[1]) << rule;
  }
}

TEST(TableHalfSlots, HaveTheSameBitsAfterARestartAndOnAnyThreads) {
  const std::vector<int64_t> keys = Numbers(0, 5000);
  const auto first = MakeHalf(kDim);
  Threads threads(3);
  for (int i = 0; i < 3; ++i) Step(first.get(), keys, 0.5F, "adam", &threads);
  const std::vector<std::string> files = {Save(first.get(), {}, 1)};
  for (int i = 0; i < 3; ++i) Step(first.get(), keys, 0.25F);
  const auto second = MakeHalf(kDim);
  const auto used = MakeHalf(kDim);  // restores into a table that has done more steps
  for (int i = 0; i < 9; ++i) Step(used.get(), keys, 2.0F);
  for (Table* const table : {second.get(), used.get()}) {
    RestoreReport report;
    ASSERT_TRUE(RestoreTable(table, Readers(files).all, {}, nullptr, &report).ok());
    for (int i = 0; i < 3; ++i) Step(table, keys, 0.25F, "adam", &threads);
    EXPECT_EQ(Bytes(*table), Bytes(*first));
  }
  // Other random bits would give another table.
  const auto shifted = MakeHalf(kDim);
  Step(shifted.get(), {-1}, 0.5F);
  for (int i = 0; i < 3; ++i) Step(shifted.get(), keys, 0.5F);
  for (int i = 0; i < 3; ++i) Step(shifted.get(), keys, 0.25F);
  ASSERT_TRUE(shifted->Erase({keys.data(), nullptr, 0}, nullptr).ok());
  EXPECT_NE(Bytes(*shifted)[17], Bytes(*first)[17]);
}

TEST(TableHalfSlots, NeedRowsThatAreComputedInFloat) {
  for (const DType value : {DType::kFloat64, DType::kInt8, DType::kString}) {
    TableOptions options;
    options.value_dtype = value;
    options.slot_dtype = DType::kBFloat16;
    std::unique_ptr<Table> table;
    EXPECT_EQ(Table::Create(options, &table).code, Code::kInvalidArgument);
  }
  const auto table = MakeHalf(kDim);
  EXPECT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, kDim, 0}}).ok());
  const Status other = table->EnsureSlots("opt", {{"m", DType::kInt64, kDim, 0}});
  EXPECT_NE(other.message.find("dtype=int64 where the table holds width=3, dtype=float"),
            std::string::npos)
      << other.message;
}

}  // namespace
}  // namespace de::engine::testing
