// Parsing of policies, their columns in a row, and expired rows.
#include "de_core/cc/engine/policy/row_policy.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "de_core/cc/engine/base/hash.h"

namespace de::engine {
namespace {

constexpr RowColumn kColumns[] = {RowColumn::kTime, RowColumn::kUses, RowColumn::kScore,
                                  RowColumn::kStep};

/// A policy, its layout and one row.
struct Row {
  explicit Row(const std::string& text) : layout(KeyType::kInt64, DType::kHalf, 3) {
    RowPolicyOptions options;
    const Status status = ParseRowPolicy(text, &options);
    EXPECT_TRUE(status.ok()) << status.message;
    policy = std::make_unique<RowPolicy>(options, &layout);
    bytes.resize(layout.stride() / 8 + 1);
    layout.FillSlots(row(), 0);
  }
  char* row() { return reinterpret_cast<char*>(bytes.data()); }
  int64_t Read(RowColumn column) { return policy->Read(row(), column); }

  RowLayout layout;
  std::unique_ptr<RowPolicy> policy;
  std::vector<int64_t> bytes;
};

TEST(RowColumn, names_stand_for_one_column_each) {
  for (const RowColumn column : kColumns) EXPECT_EQ(RowColumnOf(NameOf(column)), column);
  for (const char* name : {"", "times", "Time", "kTime"}) {
    EXPECT_EQ(RowColumnOf(name), RowColumn::kNone) << name;
  }
}

TEST(ParseRowPolicy, takes_every_field) {
  RowPolicyOptions options;
  options.max_rows = 5;
  ASSERT_TRUE(ParseRowPolicy("", &options).ok());
  EXPECT_EQ(options.max_rows, 0U) << "nothing stays of what was there";
  const Status status = ParseRowPolicy(
      "score=1;time=0;admission=2;min_count=3;capacity=4;error_bits=4576918229304087675;"  // 0.01
      "probability_bits=4602678819172646912;seed=18446744073709551615;"                    // 0.5
      "evict_by=2;max_rows=6;max_bytes=7;ttl_steps=8;ttl_micros=9;count_reads=1;",
      &options);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_TRUE(options.columns[static_cast<size_t>(RowColumn::kScore)]);
  EXPECT_FALSE(options.columns[static_cast<size_t>(RowColumn::kTime)]);
  EXPECT_EQ(options.admission.kind, AdmissionOptions::Kind::kBloom);
  EXPECT_EQ(options.admission.min_count, 3U);
  EXPECT_EQ(options.admission.capacity, 4U);
  EXPECT_EQ(options.admission.error, 0.01);
  EXPECT_EQ(options.admission.probability, 0.5);
  EXPECT_EQ(options.admission.seed, ~uint64_t{0});
  EXPECT_EQ(options.evict_by, RowColumn::kUses);
  EXPECT_EQ(options.max_rows, 6U);
  EXPECT_EQ(options.max_bytes, 7U);
  EXPECT_EQ(options.ttl_steps, 8);
  EXPECT_EQ(options.ttl_micros, 9);
  EXPECT_TRUE(options.count_reads);
}

TEST(ParseRowPolicy, names_the_field_that_is_none) {
  const auto refused = [](const std::string& text, const std::string& received) {
    RowPolicyOptions options;
    const Status status = ParseRowPolicy(text, &options);
    EXPECT_EQ(status.code, Code::kInvalidArgument) << text;
    EXPECT_NE(status.message.find("Received: " + received), std::string::npos) << status.message;
  };
  for (const std::string field :
       {"", "seed", "seed=", "=1", "seed=+1", "seed=-1", "seed= 1", "seed=1 ", "seed=0x1",
        "seed=18446744073709551616", "SEED=1", "seed=1=1", "admission=4", "evict_by=5"}) {
    refused("time=1;" + field + ";uses=1", "'" + field + "'");
  }
  refused("admission=1;min_count=0", "min_count=0");
  refused("max_rows=1", "max_rows=1, max_bytes=0, evict_by=''");
  refused("evict_by=1", "max_rows=0, max_bytes=0, evict_by='time'");
  refused("ttl_steps=9223372036854775808", "ttl_steps=-9223372036854775808");
}

TEST(RowPolicy, keeps_the_columns_asked_for_and_those_it_needs_alone) {
  const std::vector<std::pair<std::string, std::set<std::string>>> cases = {
      {"", {}},
      {"score=1", {"score"}},
      {"ttl_steps=1", {"step"}},
      {"ttl_micros=1;uses=1", {"time", "uses"}},
      {"evict_by=3;max_rows=1", {"score"}},
      {"evict_by=1;max_bytes=1;time=1;ttl_micros=1;step=0", {"time"}},
  };
  for (const auto& [text, columns] : cases) {
    Row row(text);
    EXPECT_EQ(row.layout.slots().size(), columns.size()) << text;
    size_t end = 0;
    for (const RowColumn column : kColumns) {
      const RowSlot* slot = row.layout.FindSlot(kMetadataOwner, NameOf(column));
      EXPECT_EQ(slot != nullptr, columns.count(std::string(NameOf(column))) == 1) << text;
      EXPECT_EQ(row.policy->offset(column), slot == nullptr ? 0 : slot->offset);
      if (slot == nullptr) continue;
      EXPECT_EQ(slot->offset % 8, 0U);
      EXPECT_EQ(row.Read(column), 0);
      end = std::max(end, slot->offset + 8);
    }
    EXPECT_EQ(row.policy->end(), end) << text;
    EXPECT_EQ(row.policy->tracks(), !columns.empty()) << text;
    EXPECT_FALSE(row.policy->has_filters());
    // Touch must not write to columns that the policy does not have.
    row.policy->Touch(row.row(), {5, 6});
  }
}

TEST(RowPolicy, a_write_and_a_read_leave_when_and_how_often) {
  Row row("time=1;uses=1;step=1;score=1");
  row.policy->Touch(row.row(), {100, 3});
  row.policy->TouchShared(row.row(), {200, 4});
  EXPECT_EQ(row.Read(RowColumn::kTime), 200);
  EXPECT_EQ(row.Read(RowColumn::kStep), 4);
  EXPECT_EQ(row.Read(RowColumn::kUses), 2);
  EXPECT_EQ(row.Read(RowColumn::kScore), 0);
}

TEST(RowPolicy, a_row_outlives_its_time_to_live_by_nothing) {
  Row steps("ttl_steps=10;time=1");
  steps.policy->Touch(steps.row(), {0, 5});
  EXPECT_FALSE(steps.policy->Expired(steps.row(), {1 << 30, 15}));
  EXPECT_TRUE(steps.policy->Expired(steps.row(), {0, 16}));
  Row micros("ttl_micros=10;step=1");
  micros.policy->Touch(micros.row(), {1000, 0});
  EXPECT_FALSE(micros.policy->Expired(micros.row(), {1010, 1 << 30}));
  EXPECT_TRUE(micros.policy->Expired(micros.row(), {1011, 0}));
  EXPECT_TRUE(micros.policy->expires());
  Row neither("time=1;step=1");
  EXPECT_FALSE(neither.policy->expires());
  EXPECT_FALSE(neither.policy->Expired(neither.row(), {INT64_MAX, INT64_MAX}));
}

TEST(RowPolicy, steps_are_counted_and_never_go_back) {
  Row row("step=1");
  EXPECT_EQ(row.policy->BeginStep().step, 1);
  EXPECT_EQ(row.policy->BeginWrite().step, 1);
  row.policy->WitnessSteps(40);
  row.policy->WitnessSteps(7);
  EXPECT_EQ(row.policy->Now().step, 40);
  EXPECT_EQ(row.policy->BeginStep().step, 41);
  EXPECT_EQ(row.policy->Now().micros, 0) << "without a time column it is not read";
}

TEST(RowPolicy, refused_keys_are_counted_and_forgotten_by_shard) {
  Row row("admission=1;min_count=2");
  ASSERT_TRUE(row.policy->has_filters());
  const auto admit = [&](uint64_t word) {
    return row.policy->Admit({word, Mix64(word), nullptr}, {0, 0});
  };
  EXPECT_FALSE(admit(1));
  EXPECT_TRUE(admit(1));
  EXPECT_FALSE(admit(2));
  EXPECT_EQ(row.policy->refused(), 2U);
  row.policy->weights[ShardOfHash(Mix64(2))] = 9;
  row.policy->Forget(ShardOfHash(Mix64(2)));
  EXPECT_EQ(row.policy->weights[ShardOfHash(Mix64(2))], 0U);
  EXPECT_FALSE(admit(2));
  EXPECT_EQ(row.policy->refused(), 3U);
}

TEST(RowPolicy, threads_get_stamps_of_their_own_and_lose_no_use) {
  Row row("time=1;uses=1;step=1");
  constexpr int kThreads = 4, kTimes = 3000;
  std::vector<std::vector<Stamp>> stamps(kThreads);
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      for (int j = 0; j < kTimes; ++j) {
        stamps[i].push_back(row.policy->BeginStep());
        row.policy->TouchShared(row.row(), stamps[i].back());
        EXPECT_GE(row.policy->Now().micros, stamps[i].back().micros);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::set<int64_t> micros, steps;
  for (const auto& own : stamps) {
    for (size_t j = 0; j < own.size(); ++j) {
      micros.insert(own[j].micros);
      steps.insert(own[j].step);
      EXPECT_TRUE(j == 0 || own[j].micros > own[j - 1].micros);
    }
  }
  constexpr size_t kAll = kThreads * kTimes;
  EXPECT_EQ(micros.size(), kAll);
  EXPECT_EQ(steps.size(), kAll);
  EXPECT_EQ(*steps.rbegin(), static_cast<int64_t>(kAll));
  EXPECT_EQ(row.Read(RowColumn::kUses), static_cast<int64_t>(kAll));
}

}  // namespace
}  // namespace de::engine
