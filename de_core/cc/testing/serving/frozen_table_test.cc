// Lookups in a mapped snapshot give the same answers as a map of the same rows, and never read
// outside the file.
#include "de_core/cc/engine/serving/frozen_table.h"

#include <gtest/gtest.h>

#include <thread>
#include <unordered_map>

#include "de_core/cc/engine/rows/row_converter.h"
#include "de_core/cc/testing/snapshot_fixture.h"
#include "de_core/cc/testing/tier/equal_hashes.h"

namespace de::engine::testing {
namespace {

constexpr size_t kFloats = 3;

RowLayout Layout(KeyType key_type, DType dtype = DType::kFloat32, size_t dim = kFloats) {
  return RowLayout(key_type, dtype, dim);
}

/// A table that is opened on bytes in memory; owns these bytes.
struct Opened {
  explicit Opened(const std::string& bytes) : memory(bytes) {
    status = OpenFrozen({memory.data(), memory.size()}, &table);
  }
  AlignedBytes memory;
  std::unique_ptr<FrozenTable> table;
  Status status;
};

/// Keys of both types, in the same order.
struct Batch {
  explicit Batch(std::vector<SampleKey> sample) : keys(std::move(sample)) {
    for (const SampleKey& key : keys) {
      ints.push_back(key.number);
      strings.push_back(key.text);
    }
  }
  Keys For(KeyType type) const {
    return type == KeyType::kInt64 ? Keys{ints.data(), nullptr, keys.size()}
                                   : Keys{nullptr, strings.data(), keys.size()};
  }
  std::vector<SampleKey> keys;
  std::vector<int64_t> ints;
  std::vector<std::string_view> strings;
};

/// Returns every key of the table and as many absent keys, shuffled.
Batch HitsAndMisses(const SampleTable& table) {
  std::mt19937_64 random(7);
  std::vector<SampleKey> keys = table.keys();
  for (size_t i = 0; i < table.size() + 10; ++i) {
    keys.push_back({static_cast<int64_t>(random()), "absent " + std::to_string(i)});
  }
  std::shuffle(keys.begin(), keys.end(), random);
  return Batch(std::move(keys));
}

void ExpectFindsLikeAMap(const SampleTable& table, const FrozenTable& frozen, size_t batch_size) {
  std::unordered_map<uint64_t, std::string> map;
  const size_t bytes = frozen.value_bytes();
  for (size_t i = 0; i < table.size(); ++i) {
    map[table.WordOf(table.keys()[i])] = std::string(table.row(i).substr(0, bytes));
  }
  std::unique_ptr<const Initializer> initial;
  ASSERT_TRUE(
      Initializer::Create(SampleHeader().initializer, frozen.value_dtype(), frozen.dim(), &initial)
          .ok());
  const Batch batch = HitsAndMisses(table);
  const Keys all = batch.For(frozen.key_type());
  for (size_t begin = 0; begin < all.size; begin += batch_size) {
    const size_t count = std::min(batch_size, all.size - begin);
    std::vector<uint64_t> values(count * bytes / 8 + 1);
    std::vector<char> found(count, 2);
    const Status status = frozen.Find(all.Slice(begin, count), {values.data()},
                                      reinterpret_cast<bool*>(found.data()));
    ASSERT_TRUE(status.ok()) << status.message;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t word = table.WordOf(batch.keys[begin + i]);
      const auto row = map.find(word);
      std::vector<uint64_t> expected(bytes / 8 + 1);
      if (row != map.end()) {
        std::memcpy(expected.data(), row->second.data(), bytes);
      } else {
        initial->Fill(word, expected.data());
      }
      ASSERT_EQ(found[i], row != map.end());
      ASSERT_EQ(
          std::memcmp(reinterpret_cast<char*>(values.data()) + i * bytes, expected.data(), bytes),
          0);
    }
  }
}

struct Case {
  KeyType key_type;
  DType dtype;
  size_t dim;
  size_t rows;
  uint32_t bits;
  size_t batch;
};

class FrozenLookups : public ::testing::TestWithParam<Case> {};

TEST_P(FrozenLookups, equal_a_map_for_known_and_unknown_keys) {
  const Case& c = GetParam();
  const SampleTable table(Layout(c.key_type, c.dtype, c.dim), c.rows);
  const Opened opened(table.Bytes(SampleHeader(), c.bits));
  ASSERT_TRUE(opened.status.ok()) << opened.status.message;
  EXPECT_EQ(opened.table->size(), c.rows);
  EXPECT_EQ(opened.table->dim(), c.dim);
  if (c.bits == 12) EXPECT_GT(opened.table->reader().sections().size(), 250U);
  ExpectFindsLikeAMap(table, *opened.table, c.batch);
}

INSTANTIATE_TEST_SUITE_P(
    Tables, FrozenLookups,
    ::testing::Values(Case{KeyType::kInt64, DType::kFloat32, 16, 100000, 5, 100000},
                      Case{KeyType::kInt64, DType::kFloat32, 16, 100000, 4, 1000},
                      Case{KeyType::kInt64, DType::kFloat32, 8, 20000, 3, 5000},
                      Case{KeyType::kInt64, DType::kFloat32, 32, 20000, 4, 2049},
                      Case{KeyType::kInt64, DType::kFloat32, 64, 20000, 2, 40010},
                      Case{KeyType::kInt64, DType::kFloat32, 1, 1000, 0, 1},
                      Case{KeyType::kInt64, DType::kFloat32, 3, 1000, 9, 17},
                      Case{KeyType::kInt64, DType::kHalf, 3, 1000, 2, 63},
                      Case{KeyType::kInt64, DType::kBFloat16, 8, 1000, 2, 64},
                      Case{KeyType::kInt64, DType::kFloat64, 4096, 20, 1, 65},
                      // 300 keys in up to 2^12 sections: most have at most one key.
                      Case{KeyType::kInt64, DType::kFloat32, 3, 300, 12, 100},
                      Case{KeyType::kInt64, DType::kFloat32, 4, 0, 3, 20},
                      Case{KeyType::kInt64, DType::kFloat32, 4, 1, 3, 20},
                      Case{KeyType::kString, DType::kFloat32, 16, 50000, 5, 50000},
                      Case{KeyType::kString, DType::kFloat32, 5, 1000, 3, 1},
                      Case{KeyType::kString, DType::kHalf, 3, 1000, 3, 33}));

TEST(FrozenTable, reads_stored_values_of_every_width_as_the_writer_rounded_them) {
  for (const DType stored : {DType::kHalf, DType::kBFloat16, DType::kInt8}) {
    for (const size_t dim : {1, 3, 8, 16, 20, 32, 33, 64, 80, 124, 128, 129, 300}) {
      const SampleTable table(Layout(KeyType::kInt64, DType::kFloat32, dim), 500);
      const Opened opened(table.Bytes(SampleHeader(), 2, stored));
      ASSERT_TRUE(opened.status.ok()) << opened.status.message;
      const RowLayout& layout = opened.table->header().layout;
      RowConverter store, read;
      ASSERT_TRUE(
          RowConverter::Create(Layout(KeyType::kInt64, DType::kFloat32, dim), layout, false, &store)
              .ok());
      ASSERT_TRUE(
          RowConverter::Create(layout, Layout(KeyType::kInt64, DType::kFloat32, dim), false, &read)
              .ok());
      std::unordered_map<int64_t, std::string> expected;
      for (size_t i = 0; i < table.size(); ++i) {
        std::string row(layout.stride(), '\0'), values(dim * sizeof(float), '\0');
        store.Convert(table.row(i).data(), row.data());
        read.Convert(row.data(), values.data());
        expected[table.keys()[i].number] = values;
      }
      const Batch batch = HitsAndMisses(table);
      for (const size_t size : {size_t{1}, size_t{67}, batch.keys.size()}) {
        std::string values(size * dim * sizeof(float) + 8, '#');
        std::vector<char> found(size, 2);
        ASSERT_TRUE(opened.table
                        ->Find(batch.For(KeyType::kInt64).Slice(0, size), {values.data()},
                               reinterpret_cast<bool*>(found.data()))
                        .ok());
        EXPECT_EQ(values.substr(values.size() - 8), "########");
        for (size_t i = 0; i < size; ++i) {
          const auto row = expected.find(batch.ints[i]);
          ASSERT_EQ(found[i], row != expected.end());
          if (row == expected.end()) continue;
          ASSERT_EQ(values.substr(i * dim * sizeof(float), dim * sizeof(float)), row->second)
              << NameOf(stored) << ", dim=" << dim << ", batch=" << size << ", key " << i;
        }
      }
    }
  }
}

TEST(FrozenTable, tells_string_keys_of_one_hash_apart) {
  std::vector<SampleKey> keys;
  for (uint64_t first = 1; first <= 12; ++first) keys.push_back({0, TextOfGroup(first, 7)});
  ASSERT_EQ(HashBytes(keys[0].text), HashBytes(keys[11].text));
  const SampleKey absent = keys.back();
  keys.pop_back();
  SampleTable table(Layout(KeyType::kString), keys.size());
  table.SetKeys(keys);
  const Opened opened(table.Bytes(SampleHeader(), 0));
  ASSERT_TRUE(opened.status.ok()) << opened.status.message;
  keys = table.keys();
  keys.push_back(absent);
  const Batch batch(keys);
  std::vector<float> values(keys.size() * kFloats);
  std::vector<char> found(keys.size());
  ASSERT_TRUE(opened.table
                  ->Find(batch.For(KeyType::kString), {values.data()},
                         reinterpret_cast<bool*>(found.data()))
                  .ok());
  for (size_t i = 0; i < table.size(); ++i) {
    EXPECT_TRUE(found[i]);
    EXPECT_EQ(std::memcmp(&values[i * kFloats], table.row(i).data(), kFloats * 4), 0);
  }
  EXPECT_FALSE(found.back());
}

TEST(FrozenTable, reads_values_only_from_a_checkpoint_with_slots) {
  RowLayout layout = Layout(KeyType::kInt64);
  layout.Append("adagrad", {{"accumulator", DType::kFloat32, kFloats, 0.1}});
  const SampleTable table(layout, 500);
  const Opened opened(table.Bytes(SampleHeader(), 2));
  ASSERT_TRUE(opened.status.ok());
  EXPECT_EQ(opened.table->value_bytes(), kFloats * sizeof(float));
  ExpectFindsLikeAMap(table, *opened.table, 100);
}

TEST(FrozenTable, string_values_are_views_and_unknown_keys_read_empty_or_the_constant) {
  const SampleTable table(Layout(KeyType::kInt64, DType::kString, 2), 1000);
  SnapshotHeader header = SampleHeader();
  header.initializer = {};
  for (const bool constant : {false, true}) {
    if (constant) header.metadata = {{"oov", "constant"}, {"oov_value", "unknown"}};
    const Opened opened(table.Bytes(header, 3));
    ASSERT_TRUE(opened.status.ok()) << opened.status.message;
    std::vector<SampleKey> keys = table.keys();
    keys.push_back({12345, ""});
    const Batch batch(keys);
    std::vector<std::string_view> values(keys.size() * 2);
    ASSERT_TRUE(
        opened.table->Find(batch.For(KeyType::kInt64), {nullptr, values.data()}, nullptr).ok());
    for (size_t i = 0; i < table.size(); ++i) {
      for (size_t j = 0; j < 2; ++j) ASSERT_EQ(values[i * 2 + j], table.value(i, j));
    }
    EXPECT_EQ(values.back(), constant ? "unknown" : "");
  }
}

// -------------------------------------------------------------------------------- unknown keys

class UnknownKeys : public ::testing::Test {
 protected:
  /// Returns the row of an unknown key under the policy in the file.
  std::vector<float> Row(const OovPolicy& policy, Status* status) {
    SnapshotHeader header = SampleHeader();
    header.metadata["oov"] = NameOf(policy.kind);
    header.metadata["oov_value"] = policy.value;
    const Opened opened(SampleTable(Layout(KeyType::kInt64), 10).Bytes(header, 0));
    std::vector<float> row(kFloats, -1.0F);
    *status = opened.status;
    if (!status->ok()) return row;
    EXPECT_EQ(opened.table->oov().kind, policy.kind);
    const int64_t key = 4711;
    *status = opened.table->Find({&key, nullptr, 1}, {row.data()}, nullptr);
    return row;
  }
};

TEST_F(UnknownKeys, read_as_the_policy_says) {
  Status status;
  EXPECT_EQ(Row({OovPolicy::Kind::kZeros, ""}, &status), (std::vector<float>{0, 0, 0}));
  EXPECT_TRUE(status.ok());
  EXPECT_EQ(Row({OovPolicy::Kind::kConstant, "-2.5"}, &status),
            (std::vector<float>{-2.5, -2.5, -2.5}));
  const float row[] = {1, 2, 3};
  const std::string row_bytes(reinterpret_cast<const char*>(row), sizeof(row));
  EXPECT_EQ(Row({OovPolicy::Kind::kRow, row_bytes}, &status), (std::vector<float>{1, 2, 3}));

  std::unique_ptr<const Initializer> initial;
  ASSERT_TRUE(
      Initializer::Create(SampleHeader().initializer, DType::kFloat32, kFloats, &initial).ok());
  std::vector<float> expected(kFloats);
  initial->Fill(4711, expected.data());
  EXPECT_EQ(Row({}, &status), expected);
}

TEST_F(UnknownKeys, are_named_by_the_policy_error) {
  Status status;
  Row({OovPolicy::Kind::kError, ""}, &status);
  EXPECT_EQ(status.code, Code::kNotFound);
  EXPECT_NE(status.message.find("key=4711, table=users"), std::string::npos) << status.message;
}

TEST_F(UnknownKeys, the_first_of_a_batch_is_named) {
  constexpr size_t kKnown = 5000;
  SnapshotHeader header = SampleHeader();
  header.metadata["oov"] = "error";
  for (const KeyType type : {KeyType::kInt64, KeyType::kString}) {
    const SampleTable table(Layout(type), kKnown);
    const Opened opened(table.Bytes(header, 1));
    ASSERT_TRUE(opened.status.ok()) << opened.status.message;
    std::vector<float> rows(kKnown * kFloats);
    // Tries a missing key in each part of the batch that a lookup processes separately. Later keys
    // are missing too.
    for (const size_t first : {size_t{0}, size_t{1}, size_t{2047}, size_t{2048}, size_t{4999}}) {
      std::vector<SampleKey> keys = table.keys();
      for (size_t at = first; at < kKnown; at += 1 + at % 7) {
        keys[at] = {-1000000 - static_cast<int64_t>(at), "missing " + std::to_string(at) + "!"};
      }
      const Batch batch(keys);
      const Status status = opened.table->Find(batch.For(type), {rows.data()}, nullptr);
      EXPECT_EQ(status.code, Code::kNotFound);
      const std::string name = type == KeyType::kString ? "\"" + keys[first].text + "\""
                                                        : std::to_string(keys[first].number);
      EXPECT_NE(status.message.find("key=" + name + ","), std::string::npos) << status.message;
    }
  }
}

TEST_F(UnknownKeys, policies_that_do_not_fit_are_refused_at_open) {
  Status status;
  Row({OovPolicy::Kind::kConstant, "zero"}, &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  Row({OovPolicy::Kind::kConstant, "1 2"}, &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  Row({OovPolicy::Kind::kRow, "short"}, &status);
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  SnapshotHeader header = SampleHeader();
  header.metadata["oov"] = "guess";
  const Opened opened(SampleTable(Layout(KeyType::kInt64), 1).Bytes(header, 0));
  EXPECT_EQ(opened.status.code, Code::kInvalidArgument);
}

TEST(FrozenTable, refuses_keys_values_and_memory_that_do_not_fit) {
  const std::string bytes = SampleTable(Layout(KeyType::kInt64), 10).Bytes(SampleHeader(), 0);
  const Opened opened(bytes);
  const std::string_view text = "1";
  const int64_t number = 1;
  std::vector<float> row(kFloats);
  std::string_view string_row[kFloats];
  EXPECT_EQ(opened.table->Find({nullptr, &text, 1}, {row.data()}, nullptr).code,
            Code::kInvalidArgument);
  EXPECT_EQ(opened.table->Find({&number, nullptr, 1}, {nullptr, string_row}, nullptr).code,
            Code::kInvalidArgument);
  EXPECT_TRUE(opened.table->Find({}, {}, nullptr).ok());

  const AlignedBytes shifted(std::string(8, '\0') + bytes);
  std::unique_ptr<FrozenTable> table;
  EXPECT_EQ(OpenFrozen({shifted.data() + 8, bytes.size()}, &table).code, Code::kInvalidArgument);
}

TEST(FrozenTable, many_threads_look_up_at_once) {
  const SampleTable table(Layout(KeyType::kString), 2000);
  const Opened opened(table.Bytes(SampleHeader(), 4));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] { ExpectFindsLikeAMap(table, *opened.table, 500); });
  }
  for (std::thread& thread : threads) thread.join();
}

// --------------------------------------------------------------------------------- damaged files

// ../fuzz/snapshot_fuzz.cc, which runs with these tests, looks keys up in files with other damage.
TEST(DamagedFrozenTable, a_row_number_outside_its_section_is_an_error_not_a_row) {
  const SampleTable table(Layout(KeyType::kInt64), 1);
  std::string bytes = table.Bytes(SampleHeader(), 0);
  const Opened intact(bytes);
  const uint64_t line = intact.table->reader().sections()[0].offset + sizeof(BlockRecord);
  bytes[line + offsetof(IndexLine, rows)] = 1;
  const Opened opened(bytes);
  ASSERT_TRUE(opened.status.ok());
  std::vector<float> row(kFloats);
  const Status status =
      opened.table->Find({&table.keys()[0].number, nullptr, 1}, {row.data()}, nullptr);
  EXPECT_EQ(status.code, Code::kDataLoss);
  EXPECT_NE(status.message.find("section 0 at offset"), std::string::npos) << status.message;
}

}  // namespace
}  // namespace de::engine::testing
