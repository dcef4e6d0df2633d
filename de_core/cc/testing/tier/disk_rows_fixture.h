// Rows on a disk, and rows to compare them with.
#ifndef DE_CORE_TESTING_DISK_ROWS_FIXTURE_H_
#define DE_CORE_TESTING_DISK_ROWS_FIXTURE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/testing/test_executor.h"
#include "de_core/cc/testing/tier/cold_rows_calls.h"
#include "de_core/cc/testing/tier/simulated_disk.h"

namespace de::engine {

/// The parameter says if reads use io_uring.
class DiskRowsTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    std::string name = ::testing::TempDir() + "/disk_rows_XXXXXX";
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    directory_ = name;
  }
  void TearDown() override {
    rows_.reset();
    std::filesystem::remove_all(directory_);
  }
  void Open(KeyType key_type = KeyType::kInt64, uint64_t segment_bytes = 1 << 16) {
    key_type_ = key_type;
    const DiskOptions options{directory_, segment_bytes, 16, GetParam(), true};
    const Status status = DiskRows::Create(options, key_type, &rows_);
    ASSERT_TRUE(status.ok()) << status.message;
  }
  std::shared_ptr<testing::SimulatedDisk> OpenSimulated() {
    const auto disk = std::make_shared<testing::SimulatedDisk>();
    DiskOptions options;
    options.segment_bytes = 1 << 16;
    options.own_thread = false;
    EXPECT_TRUE(DiskRows::Create(options, disk, key_type_, &rows_).ok());
    return disk;
  }
  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      if (entry.path().filename() != "lock") files.push_back(entry.path());
    }
    return files;
  }
  RowLayout Layout(size_t dim = 8) const { return {key_type_, DType::kFloat32, dim}; }

  /// Keys of a batch, and the memory that they refer to.
  struct KeyBatch {
    std::vector<int64_t> ints;
    std::vector<std::string> texts;
    std::vector<std::string_view> views;
    Keys keys() const {
      return {texts.empty() ? ints.data() : nullptr, texts.empty() ? nullptr : views.data(),
              ints.size()};
    }
  };
  KeyBatch Batch(const std::vector<int64_t>& numbers) const {
    KeyBatch batch;
    batch.ints = numbers;
    if (key_type_ == KeyType::kString) {
      for (const int64_t number : numbers) batch.texts.push_back("key " + std::to_string(number));
      for (const std::string& text : batch.texts) batch.views.push_back(text);
    }
    return batch;
  }
  /// Makes rows that are filled with `fills`, in any order.
  RowBatch Rows(const RowLayout& layout, const KeyBatch& keys, const std::vector<char>& fills) {
    RowBatch rows;
    rows.layout = layout;
    rows.keys = keys.views;
    for (size_t i = 0; i < fills.size(); ++i) {
      rows.words.push_back(keys.texts.empty() ? static_cast<uint64_t>(keys.ints[i])
                                              : HashBytes(keys.views[i]));
      rows.rows.insert(rows.rows.end(), layout.stride(), fills[i]);
    }
    return rows;
  }
  void Append(const RowLayout& layout, const std::vector<int64_t>& keys,
              const std::vector<char>& fills) {
    const KeyBatch batch = Batch(keys);
    const Status status = testing::Append(rows_.get(), Rows(layout, batch, fills));
    ASSERT_TRUE(status.ok()) << status.message;
  }
  /// Checks that exactly the rows of `expected` are found.
  void ExpectRows(const RowLayout& layout, const std::map<int64_t, char>& expected,
                  int64_t highest) {
    std::vector<int64_t> numbers;
    for (int64_t key = 0; key < highest; ++key) numbers.push_back(key);
    const KeyBatch batch = Batch(numbers);
    testing::FoundRows found;
    Threads executor(2);
    const Status status = testing::Find(*rows_, batch.keys(), layout, &executor, &found);
    ASSERT_TRUE(status.ok()) << status.message;
    ASSERT_EQ(found.positions.size(), expected.size());
    size_t at = 0;
    for (const auto& [key, fill] : expected) {
      ASSERT_EQ(found.positions[at], static_cast<uint32_t>(key));
      const char* const row = found.rows.data() + at * layout.stride();
      ASSERT_EQ(std::count(row, row + layout.value_bytes(), fill),
                static_cast<std::ptrdiff_t>(layout.value_bytes()));
      ++at;
    }
  }
  /// Checks that scans visit exactly the rows of `expected`, ascending by hash.
  void ExpectScan(const RowLayout& layout, const std::map<int64_t, char>& expected, size_t most) {
    std::map<uint64_t, char> found;
    uint64_t before = 0;
    RowBatch batch;
    for (uint64_t begin = 0;; begin = batch.hash_last + 1) {
      LocatedRows located;
      ASSERT_TRUE(rows_->LocateRange(begin, ~uint64_t{0}, most, &located).ok());
      const Status status = rows_->ReadRange(located, layout, &batch);
      ASSERT_TRUE(status.ok()) << status.message;
      ASSERT_EQ(batch.hash_begin, begin);
      for (size_t i = 0; i < batch.size(); ++i) {
        const uint64_t hash = Mix64(batch.words[i]);
        ASSERT_GE(hash, std::max(before, begin));
        ASSERT_LE(hash, batch.hash_last);
        before = hash;
        if (key_type_ == KeyType::kString) {
          ASSERT_EQ(HashBytes(batch.keys[i]), batch.words[i]);
        }
        ASSERT_TRUE(found.emplace(batch.words[i], batch.rows[i * layout.stride()]).second);
      }
      if (batch.hash_last == ~uint64_t{0}) break;
    }
    ASSERT_EQ(found.size(), expected.size());
    for (const auto& [key, fill] : expected) {
      const KeyBatch one = Batch({key});
      const uint64_t word =
          one.texts.empty() ? static_cast<uint64_t>(key) : HashBytes(one.views[0]);
      ASSERT_EQ(found.at(word), fill);
    }
  }

  std::string directory_;
  KeyType key_type_ = KeyType::kInt64;
  std::unique_ptr<DiskRows> rows_;
};

}  // namespace de::engine

#endif  // DE_CORE_TESTING_DISK_ROWS_FIXTURE_H_
