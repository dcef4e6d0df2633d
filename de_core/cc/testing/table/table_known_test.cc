// Optimizer steps that use what the preceding lookup recorded, compared with steps that do not.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <vector>

#include "de_core/cc/engine/table/table_find.h"
#include "de_core/cc/testing/sanitized.h"
#include "de_core/cc/testing/saved_table.h"

namespace de::engine {
namespace {

constexpr int64_t kKeys = 3000;  // number of existing keys

/// A table, and the output of its last lookup.
struct Trained {
  explicit Trained(size_t dim, const std::string& policy = "") {
    LeastKeysToRecord() = 64;  // records for the small batches here
    TableOptions options;
    options.dim = dim;
    options.initializer.kind = InitializerOptions::Kind::kUniform;
    options.initializer.a = -1;
    options.initializer.b = 1;
    table = testing::Make(policy, options);
  }

  using Verb = Status (Table::*)(const Keys&, const ValuesOut&, bool*, Executor*) const;
  void LookUp(Verb verb, const std::vector<int64_t>& keys, Executor* executor) {
    rows.assign(keys.size() * table->options().dim, -7);
    found.assign(keys.size(), 2);
    const ValuesOut out = RowsTo(&rows);
    const Status status =
        (table.get()->*verb)(KeysOf(keys), out, reinterpret_cast<bool*>(found.data()), executor);
    ASSERT_TRUE(status.ok()) << status.message;
  }

  void Step(const std::vector<int64_t>& keys, const std::vector<float>& gradients,
            Executor* executor) {
    const double momentum = 0.5;
    const Status status =
        table->Apply(*FindRule("adam"), "opt", {0.01, 0.9, 0.999, 1e-7, 0.1, 0.1, 0}, KeysOf(keys),
                     gradients.data(), executor, &momentum);
    ASSERT_TRUE(status.ok()) << status.message;
  }

  /// Returns the bytes of all rows and slots, and what keys without a row read. Bytes, because
  /// moving averages begin as NaN, and NaN does not equal NaN.
  std::string Everything() {
    const std::vector<int64_t> keys = testing::Numbers(0, kKeys);
    LookUp(&Table::Find, keys, nullptr);
    std::string all(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(float));
    all.append(found.data(), found.size());
    const RowLayout layout = table->layout();
    for (const RowSlot& slot : layout.slots()) {
      if (slot.spec.dtype != DType::kFloat32) continue;  // the time of the last use
      std::vector<float> values(keys.size() * slot.spec.width);
      EXPECT_TRUE(table
                      ->FindSlot(slot.owner, slot.spec.name, slot.bytes(), KeysOf(keys),
                                 reinterpret_cast<char*>(values.data()), nullptr)
                      .ok());
      all.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    }
    return all;
  }

  std::unique_ptr<Table> table;
  std::vector<float> rows;
  std::vector<char> found;
};

std::vector<int64_t> Drawn(std::mt19937_64* random, size_t count) {
  std::vector<int64_t> keys(count);
  for (int64_t& key : keys) key = static_cast<int64_t>((*random)() % kKeys * ((*random)() % 2));
  return keys;
}

/// An event between a lookup and the step that follows it.
const std::vector<std::function<Status(Table*, const std::vector<int64_t>&)>> kBetween = {
    [](Table*, const std::vector<int64_t>&) { return Status::Ok(); },
    [](Table* table,
       const std::vector<int64_t>& keys) {  // other keys get the numbers of erased rows
      DE_RETURN_IF_ERROR(table->Erase(KeysOf({keys[0], keys[3], keys[5], keys[7]}), nullptr));
      const std::vector<float> rows(2 * table->options().dim, 3);
      return table->InsertOrAssign(KeysOf({kKeys - 1, kKeys - 2}), RowsIn(rows), nullptr);
    },
    [](Table* table, const std::vector<int64_t>& keys) {  // keys without a row get one
      std::vector<float> rows(keys.size() * table->options().dim);
      return table->FindOrInsert(KeysOf(keys), RowsTo(&rows), nullptr, nullptr);
    },
    [](Table* table, const std::vector<int64_t>&) { return table->Clear(); },
    [](Table* table, const std::vector<int64_t>& keys) {
      DE_RETURN_IF_ERROR(table->Erase(KeysOf({keys[1], keys[2]}), nullptr));
      return table->ShrinkToFit();
    },
    [](Table* table, const std::vector<int64_t>&) { return table->Reserve(5 * kKeys); },
    [](Table* table, const std::vector<int64_t>&) {  // rows move, their numbers stay
      DE_RETURN_IF_ERROR(table->EnsureSlots("more", {{"m", DType::kFloat32, 3, 1}}));
      return table->DropSlots("more");
    },
};

class TableKnown : public ::testing::TestWithParam<std::tuple<size_t, size_t, const char*>> {};

TEST_P(TableKnown, StepsAreThoseOfATableThatKnowsNothing) {
  const auto [dim, thread_count, policy] = GetParam();
  Threads threads(thread_count);
  std::mt19937_64 random(dim);
  Trained ours(dim, policy), peer(dim, policy);
  for (size_t round = 0; round < (kSanitized ? 1 : 3) * kBetween.size(); ++round) {
    const std::vector<int64_t> keys = Drawn(&random, round % 3 == 0 ? 5000 : 700);
    std::vector<float> gradients(keys.size() * dim);
    for (float& each : gradients) each = static_cast<float>(random() % 1000) / 500 - 1;
    ours.LookUp(&Table::FindToTrain, keys, &threads);
    peer.LookUp(&Table::Find, keys, &threads);
    ASSERT_EQ(ours.rows, peer.rows) << round;
    ASSERT_EQ(ours.found, peer.found) << round;
    const auto& between = kBetween[round % kBetween.size()];
    ASSERT_TRUE(between(ours.table.get(), keys).ok());
    ASSERT_TRUE(between(peer.table.get(), keys).ok());
    ours.Step(keys, gradients, &threads);
    peer.Step(keys, gradients, &threads);
    ASSERT_TRUE(ours.Everything() == peer.Everything()) << round;
  }
  EXPECT_EQ(ours.table->Stats().hits, peer.table->Stats().hits);
  EXPECT_EQ(ours.table->Stats().misses, peer.table->Stats().misses);
}

INSTANTIATE_TEST_SUITE_P(Widths, TableKnown,
                         ::testing::Combine(::testing::Values(1, 16, 65), ::testing::Values(1, 3),
                                            ::testing::Values("", "admission=1;min_count=2",
                                                              "ttl_steps=2")));

TEST(TableKnown, KeysInAnotherOrderOrNumberAreNotThoseLookedUp) {
  Trained ours(4), peer(4);
  std::mt19937_64 random(1);
  for (int round = 0; round < 20; ++round) {
    std::vector<int64_t> keys = Drawn(&random, 200);
    const std::vector<float> gradients(keys.size() * 4, 0.5F);
    ours.LookUp(&Table::FindToTrain, keys, nullptr);
    if (round % 4 == 1) std::swap(keys[0], keys[199]);
    if (round % 4 == 2) keys.pop_back();
    if (round % 4 == 3) keys.insert(keys.end(), keys.begin(), keys.begin() + 3);
    std::vector<float> of_keys = gradients;
    of_keys.resize(keys.size() * 4, 0.25F);
    of_keys[0] = 3;
    ours.Step(keys, of_keys, nullptr);
    peer.Step(keys, of_keys, nullptr);
    ASSERT_TRUE(ours.Everything() == peer.Everything()) << round;
  }
}

TEST(TableKnown, ADeltaHoldsWhatSuchStepsChanged) {
  Trained ours(4);
  std::mt19937_64 random(1);
  const auto step = [&] {
    const std::vector<int64_t> keys = Drawn(&random, 300);
    ours.LookUp(&Table::FindToTrain, keys, nullptr);
    ours.Step(keys, std::vector<float>(keys.size() * 4, 0.5F), nullptr);
  };
  step();
  std::vector<std::string> files;
  for (uint8_t number = 1; number <= 3; ++number) {
    files.push_back(testing::Save(ours.table.get(), testing::ChainOf("chain", number > 1), number));
    if (number < 3) step();
  }
  const testing::Readers readers(files);
  Trained restored(4);
  RestoreReport report;
  ASSERT_TRUE(RestoreTable(restored.table.get(), readers.all, {}, nullptr, &report).ok());
  EXPECT_TRUE(restored.Everything() == ours.Everything());
}

}  // namespace
}  // namespace de::engine
