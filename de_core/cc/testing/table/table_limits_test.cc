// Requests beyond a table's limits are refused with a clear error, before anything is read.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "de_core/cc/engine/batch/pooling.h"
#include "de_core/cc/engine/serving/frozen_chain.h"
#include "de_core/cc/testing/saved_table.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine::testing {
namespace {

// A batch that claims 2^31 keys, but only one is in memory: a verb that read the keys would
// crash.
constexpr int64_t kKey = 5;
constexpr Keys kTooMany{&kKey, nullptr, size_t{1} << 31};

#define EXPECT_TOO_MANY(expression)                                                \
  do {                                                                             \
    const Status status = (expression);                                            \
    EXPECT_EQ(status.code, Code::kInvalidArgument);                                \
    EXPECT_NE(status.message.find("Received: 2147483648 keys"), std::string::npos) \
        << status.message;                                                         \
  } while (false)

TEST(TableLimits, every_verb_refuses_2_to_the_31_keys) {
  const auto table = Make("score=1");
  ASSERT_TRUE(table->EnsureSlots("owner", {{"slot", DType::kFloat32, 1, 0}}).ok());
  float value = 0;
  char* const data = reinterpret_cast<char*>(&value);
  bool found = false;
  EXPECT_TOO_MANY(table->Find(kTooMany, {data, nullptr}, &found, nullptr));
  EXPECT_TOO_MANY(table->FindToTrain(kTooMany, {data, nullptr}, &found, nullptr));
  EXPECT_TOO_MANY(table->FindOrInsert(kTooMany, {data, nullptr}, &found, nullptr));
  EXPECT_TOO_MANY(table->Find(kTooMany, {}, &found, nullptr));
  EXPECT_TOO_MANY(table->InsertOrAssign(kTooMany, {data, nullptr}, nullptr));
  EXPECT_TOO_MANY(table->AccumOrAssign(kTooMany, data, data, nullptr));
  EXPECT_TOO_MANY(table->Apply(*FindRule("sgd"), "sgd", {0.1}, kTooMany, data, nullptr));
  EXPECT_TOO_MANY(table->Erase(kTooMany, nullptr));
  EXPECT_TOO_MANY(table->Touch(kTooMany));
  EXPECT_TOO_MANY(table->FindSlot("owner", "slot", 4, kTooMany, data, &found));
  EXPECT_TOO_MANY(table->AssignSlot("owner", "slot", 4, kTooMany, data));
  EXPECT_TOO_MANY(table->LoadRows(table->layout(), kTooMany, {data, nullptr}, nullptr));
  EXPECT_EQ(table->size(), 0U);
}

TEST(TableLimits, a_pooled_gradient_refuses_2_to_the_31_keys) {
  EXPECT_TOO_MANY(PooledGradient().Build(kTooMany, nullptr));
}

TEST(TableLimits, served_files_refuse_2_to_the_31_keys) {
  const auto table = Make(1);
  Put(table.get(), Numbers(0, 100), 1);
  const AlignedBytes base(Save(table.get(), ChainOf("c", false), 1));
  Put(table.get(), Numbers(0, 10), 2);
  const AlignedBytes delta(Save(table.get(), ChainOf("c", true), 2));
  float value = 0;
  bool found = false;
  for (const bool with_delta : {false, true}) {
    std::vector<std::string_view> files = {{base.data(), base.size()}};
    if (with_delta) files.emplace_back(delta.data(), delta.size());
    std::unique_ptr<FrozenChain> chain;
    ASSERT_TRUE(OpenChain(files, &chain).ok());
    EXPECT_TOO_MANY(chain->Find(kTooMany, {&value}, &found));
  }
}

TEST(TableLimits, room_for_more_rows_than_a_table_numbers_is_refused) {
  const auto table = Make(1);
  Put(table.get(), Numbers(0, 100), 1);
  for (const uint64_t rows : {kMaxRows + 1, uint64_t{32'000'000'000'000}, ~uint64_t{0}}) {
    const Status status = table->Reserve(rows);
    EXPECT_EQ(status.code, Code::kInvalidArgument);
    EXPECT_NE(status.message.find("Received: rows=" + std::to_string(rows)), std::string::npos);
    TableOptions options;
    options.init_size = rows;
    std::unique_ptr<Table> never;
    EXPECT_EQ(Table::Create(options, &never).code, Code::kInvalidArgument);
  }
  EXPECT_EQ(Contents(*table).size(), 100U);
}

}  // namespace
}  // namespace de::engine::testing
