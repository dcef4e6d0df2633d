// Verbs on slots, compared with a map.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>

#include "de_core/cc/testing/saved_table.h"

namespace de::engine {
namespace {

constexpr size_t kDim = 3;

std::unique_ptr<Table> Make(KeyType key_type = KeyType::kInt64, const std::string& policy = "") {
  TableOptions options;
  options.key_type = key_type;
  options.dim = kDim;
  return testing::Make(policy, std::move(options));
}

/// Keys 0 … count - 1, as numbers or as texts.
struct Batch {
  explicit Batch(size_t count) {
    for (size_t i = 0; i < count; ++i) numbers.push_back(static_cast<int64_t>(i));
    for (size_t i = 0; i < count; ++i) texts.push_back("a key that is long: " + std::to_string(i));
    views.assign(texts.begin(), texts.end());
  }
  Keys Of(KeyType type) const { return type == KeyType::kString ? KeysOf(views) : KeysOf(numbers); }

  std::vector<int64_t> numbers;
  std::vector<std::string> texts;
  std::vector<std::string_view> views;
};

Status Upsert(Table* table, const Keys& keys, float value) {
  const std::vector<float> values(keys.size * kDim, value);
  return table->InsertOrAssign(keys, RowsIn(values), nullptr);
}

std::vector<float> Slot(const Table& table, const std::string& name, const Keys& keys, size_t width,
                        bool* found = nullptr) {
  std::vector<float> values(keys.size * width);
  EXPECT_TRUE(table
                  .FindSlot("opt", name, width * sizeof(float), keys,
                            reinterpret_cast<char*>(values.data()), found)
                  .ok());
  return values;
}

std::vector<float> Rows(const Table& table, const Keys& keys) {
  std::vector<float> values(keys.size * kDim);
  EXPECT_TRUE(table.Find(keys, RowsTo(&values), nullptr, nullptr).ok());
  return values;
}

class TableSlots : public ::testing::TestWithParam<KeyType> {};

TEST_P(TableSlots, AreReadAndWrittenByKey) {
  const auto table = Make(GetParam());
  const Batch all(300), stored(200);
  ASSERT_TRUE(Upsert(table.get(), stored.Of(GetParam()), 7).ok());
  ASSERT_TRUE(
      table->EnsureSlots("opt", {{"m", DType::kFloat32, 2, 0.5}, {"n", DType::kFloat32, 1, 0}})
          .ok());
  const Keys keys = all.Of(GetParam());
  std::vector<char> flags(keys.size);
  bool* const found = reinterpret_cast<bool*>(flags.data());
  for (const float value : Slot(*table, "m", keys, 2, found)) ASSERT_EQ(value, 0.5F);
  for (size_t i = 0; i < keys.size; ++i) ASSERT_EQ(found[i], i < 200);
  std::vector<float> written(keys.size * 2);
  for (size_t i = 0; i < written.size(); ++i) written[i] = static_cast<float>(i);
  ASSERT_TRUE(table
                  ->AssignSlot("opt", "m", 2 * sizeof(float), keys,
                               reinterpret_cast<const char*>(written.data()))
                  .ok());
  const std::vector<float> read = Slot(*table, "m", keys, 2);
  for (size_t i = 0; i < read.size(); ++i) {
    ASSERT_EQ(read[i], i < 400 ? written[i] : 0.5F) << "only rows that are there are written";
  }
  EXPECT_EQ(table->size(), 200U);
  for (const float value : Slot(*table, "n", keys, 1)) ASSERT_EQ(value, 0);
  for (const float value : Rows(*table, stored.Of(GetParam()))) ASSERT_EQ(value, 7);
}

TEST_P(TableSlots, GoWithTheirOwnerAndLeaveTheRestAlone) {
  const auto table = Make(GetParam());
  const Batch batch(500);
  const Keys keys = batch.Of(GetParam());
  ASSERT_TRUE(Upsert(table.get(), keys, 7).ok());
  ASSERT_TRUE(table->EnsureSlots("gone", {{"m", DType::kFloat32, 8, 1}}).ok());
  ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, 1, 2}}).ok());
  const size_t both = table->layout().stride();
  ASSERT_TRUE(table->DropSlots("gone").ok());
  ASSERT_TRUE(table->DropSlots("nobody").ok());
  EXPECT_EQ(table->layout().stride() + 8 * sizeof(float), both);
  for (const float value : Slot(*table, "m", keys, 1)) ASSERT_EQ(value, 2);
  for (const float value : Rows(*table, keys)) ASSERT_EQ(value, 7);
  std::vector<float> out(keys.size * 8);
  EXPECT_EQ(table
                ->FindSlot("gone", "m", 2 * sizeof(float), keys,
                           reinterpret_cast<char*>(out.data()), nullptr)
                .code,
            Code::kNotFound);
}

INSTANTIATE_TEST_SUITE_P(IntsAndStrings, TableSlots,
                         ::testing::Values(KeyType::kInt64, KeyType::kString));

TEST(TableSlots, WhatIsNoSlotIsNamed) {
  const auto table = Make();
  const Batch batch(1);
  float value = 0;
  const Status read = table->FindSlot("opt", "m", 2 * sizeof(float), batch.Of(KeyType::kInt64),
                                      reinterpret_cast<char*>(&value), nullptr);
  EXPECT_EQ(read.code, Code::kNotFound);
  EXPECT_NE(read.message.find("Received: 'opt/m'"), std::string::npos) << read.message;
  EXPECT_EQ(table
                ->AssignSlot("opt", "m", 2 * sizeof(float), batch.Of(KeyType::kInt64),
                             reinterpret_cast<const char*>(&value))
                .code,
            Code::kNotFound);
  EXPECT_EQ(table
                ->FindSlot("opt", "m", 2 * sizeof(float), batch.Of(KeyType::kString),
                           reinterpret_cast<char*>(&value), nullptr)
                .code,
            Code::kInvalidArgument)
      << "keys of another type";
  EXPECT_EQ(table->DropSlots("de").code, Code::kInvalidArgument) << "a policy's columns stay";
}

TEST(TableSlots, OfOtherBytesThanTheCallersAreNotCopied) {
  const auto table = Make();
  const Batch batch(1);
  const Keys keys = batch.Of(KeyType::kInt64);
  ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, 2, 0}}).ok());
  float values[2] = {};
  char* const bytes = reinterpret_cast<char*>(values);
  ASSERT_TRUE(table->FindSlot("opt", "m", sizeof(values), keys, bytes, nullptr).ok());
  ASSERT_TRUE(table->DropSlots("opt").ok());
  ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, 64, 0}}).ok());
  EXPECT_EQ(table->FindSlot("opt", "m", sizeof(values), keys, bytes, nullptr).code,
            Code::kFailedPrecondition);
  EXPECT_EQ(table->AssignSlot("opt", "m", sizeof(values), keys, bytes).code,
            Code::kFailedPrecondition);
}

TEST(TableSlots, AnExpiredRowReadsAsInitial) {
  const auto table = Make(KeyType::kInt64, "ttl_steps=1");
  const Batch one(1), two(2);
  const OptimizerRule* const rule = FindRule("adagrad");
  const std::vector<double> hyper = {0.1, 0, 1};
  const std::vector<float> gradient(kDim, 2);
  const auto step = [&](const Keys& keys) {
    return table->Apply(*rule, "opt", hyper, keys, gradient.data(), nullptr).ok();
  };
  const Keys first = one.Of(KeyType::kInt64);
  ASSERT_TRUE(step(first));
  EXPECT_EQ(Slot(*table, "accumulator", first, kDim), std::vector<float>(kDim, 5));
  const int64_t other = 99;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(step({&other, nullptr, 1}));
  bool found = true;
  EXPECT_EQ(Slot(*table, "accumulator", first, kDim, &found), std::vector<float>(kDim, 1));
  EXPECT_FALSE(found);
}

TEST(TableSlots, TheMemoryOfNarrowerRowsGoesBack) {
  const auto table = testing::Make(64);
  testing::Put(table.get(), testing::Numbers(0, 40000), 1);
  const uint64_t row_bytes = table->Stats().row_bytes;
  ASSERT_GT(row_bytes, 10000000U);
  ASSERT_TRUE(table->EnsureSlots("adam", {{"m", DType::kFloat32, 64, 0}}).ok());
  EXPECT_LT(table->Stats().free_bytes, row_bytes / 20);
}

TEST(TableSlots, ManyThreadsReadWhileOthersWriteAndWiden) {
  const auto table = Make();
  const Batch batch(2000);
  const Keys keys = batch.Of(KeyType::kInt64);
  ASSERT_TRUE(Upsert(table.get(), keys, 1).ok());
  ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, 2, 0}}).ok());
  std::vector<std::thread> threads;
  for (float value : {1.0F, 2.0F}) {
    threads.emplace_back([&, value] {
      const std::vector<float> values(keys.size * 2, value);
      for (int i = 0; i < 5; ++i) {
        EXPECT_TRUE(table
                        ->AssignSlot("opt", "m", 2 * sizeof(float), keys,
                                     reinterpret_cast<const char*>(values.data()))
                        .ok());
      }
    });
  }
  threads.emplace_back([&] {
    for (int i = 0; i < 5; ++i) {
      EXPECT_TRUE(table->EnsureSlots("brief", {{"b", DType::kFloat32, 4, 0}}).ok());
      EXPECT_TRUE(table->DropSlots("brief").ok());
    }
  });
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> read = Slot(*table, "m", keys, 2);
    for (size_t j = 0; j < read.size(); j += 2) ASSERT_EQ(read[j], read[j + 1]) << "half a write";
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace de::engine
