// Rows on a disk that changes or loses blocks.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "de_core/cc/testing/tier/disk_rows_fixture.h"

namespace de::engine {
namespace {

namespace fs = std::filesystem;

INSTANTIATE_TEST_SUITE_P(Reads, DiskRowsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ByRing" : "ByThreads"; });

TEST_P(DiskRowsTest, NamesADamagedRow) {
  Open();
  Append(Layout(), {1, 2}, {1, 2});
  const std::vector<fs::path> files = Files();
  ASSERT_EQ(files.size(), 1u);
  {
    std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(20);
    file.put('x');
  }
  const KeyBatch batch = Batch({1, 2});
  testing::FoundRows found;
  const Status status = testing::Find(*rows_, batch.keys(), Layout(), nullptr, &found);
  EXPECT_EQ(status.code, Code::kDataLoss);
  EXPECT_NE(status.message.find(files[0].string()), std::string::npos) << status.message;
  const KeyBatch other = Batch({2});
  EXPECT_TRUE(testing::Find(*rows_, other.keys(), Layout(), nullptr, &found).ok());
  fs::resize_file(files[0], 0);
  EXPECT_EQ(testing::Find(*rows_, other.keys(), Layout(), nullptr, &found).code, Code::kInternal);
}

TEST_P(DiskRowsTest, ARecordOfAnotherPlaceIsNotTheRow) {
  Open();
  Append(Layout(), {1, 2, 3}, {1, 2, 3});
  const std::vector<fs::path> files = Files();
  ASSERT_EQ(files.size(), 1u);
  const size_t bytes = 16 + Layout().stride();
  std::string first(bytes, 0), second(bytes, 0);
  {
    std::fstream file(files[0], std::ios::in | std::ios::out | std::ios::binary);
    file.read(first.data(), static_cast<std::streamsize>(bytes));
    file.read(second.data(), static_cast<std::streamsize>(bytes));
    file.seekp(0);
    file << second << first;
  }
  for (const int64_t key : {1, 2}) {
    const KeyBatch batch = Batch({key});
    testing::FoundRows found;
    const Status status = testing::Find(*rows_, batch.keys(), Layout(), nullptr, &found);
    EXPECT_EQ(status.code, Code::kDataLoss);
    EXPECT_NE(status.message.find(files[0].string() + ", offset "), std::string::npos)
        << status.message;
  }
  const KeyBatch third = Batch({3});
  testing::FoundRows found;
  EXPECT_TRUE(testing::Find(*rows_, third.keys(), Layout(), nullptr, &found).ok());
}

TEST_P(DiskRowsTest, ARowOfAnotherKeyIsNotTheRow) {
  for (const KeyType key_type : {KeyType::kInt64, KeyType::kString}) {
    rows_.reset();
    Open(key_type);
    Append(Layout(), {1, 2}, {1, 2});
    const KeyBatch one = Batch({1}), two = Batch({2});
    LocatedRows located;
    ASSERT_TRUE(rows_->Locate(one.keys(), nullptr, &located).ok());
    std::vector<char> rows;
    EXPECT_TRUE(rows_->Read(one.keys(), located, Layout(), nullptr, &rows).ok());
    EXPECT_EQ(rows_->Read(two.keys(), located, Layout(), nullptr, &rows).code, Code::kDataLoss);
  }
}

TEST_P(DiskRowsTest, AnOlderRecordOfTheKeyIsNotTheRow) {
  Open();
  Append(Layout(), {1}, {1});
  Append(Layout(), {1}, {2});
  const fs::path path = Files()[0];
  std::string first(kBlockBytes, 0);
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.read(first.data(), kBlockBytes);
  file.seekp(kBlockBytes);
  file << first << std::flush;
  const KeyBatch batch = Batch({1});
  testing::FoundRows found;
  EXPECT_EQ(testing::Find(*rows_, batch.keys(), Layout(), nullptr, &found).code, Code::kDataLoss);
}

TEST_P(DiskRowsTest, ALostAppendStaysAnErrorWhileFilesAreCleaned) {
  Open();
  std::vector<int64_t> keys(1000), lost;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  for (int64_t key = 5000; key < 5050; ++key) lost.push_back(key);
  Append(Layout(), keys, std::vector<char>(keys.size(), 1));
  const uintmax_t begin = fs::file_size(Files()[0]);
  Append(Layout(), lost, std::vector<char>(lost.size(), 2));
  const fs::path path = Files()[0];
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(begin));
    file << std::string(fs::file_size(path) - begin, '\0');
  }
  for (char fill = 3; fill < 60; ++fill) {  // many files are cleaned, this one too
    Append(Layout(), keys, std::vector<char>(keys.size(), fill));
    const KeyBatch batch = Batch({lost[static_cast<size_t>(fill) % lost.size()]});
    testing::FoundRows found;
    const Status status = testing::Find(*rows_, batch.keys(), Layout(), nullptr, &found);
    ASSERT_EQ(status.code, Code::kDataLoss);
    ASSERT_NE(status.message.find(path.string()), std::string::npos) << status.message;
  }
  EXPECT_TRUE(fs::exists(path));
  EXPECT_LE(rows_->Stats().disk_bytes, uint64_t{8} << 16);
  const KeyBatch all = Batch(lost);
  ASSERT_TRUE(rows_->Erase(all.keys()).ok());
  for (char fill = 3; fill < 60; ++fill) {
    Append(Layout(), keys, std::vector<char>(keys.size(), fill));
  }
  EXPECT_LE(rows_->Stats().disk_bytes, uint64_t{7} << 16) << "a file without rows is removed";
}

TEST_P(DiskRowsTest, ADamagedSegmentIsNotCleaned) {
  Open();
  std::vector<int64_t> keys(1000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  Append(Layout(), keys, std::vector<char>(keys.size(), 1));
  for (const fs::path& path : Files()) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(20);
    file.put('x');
  }
  keys.erase(keys.begin(), keys.begin() + 10);
  for (int i = 0; i < 30; ++i) Append(Layout(), keys, std::vector<char>(keys.size(), 2));
  testing::FoundRows found;
  const KeyBatch batch = Batch(keys);
  ASSERT_TRUE(testing::Find(*rows_, batch.keys(), Layout(), nullptr, &found).ok());
  EXPECT_EQ(found.positions.size(), keys.size());
  const KeyBatch damaged = Batch({0});
  EXPECT_EQ(testing::Find(*rows_, damaged.keys(), Layout(), nullptr, &found).code, Code::kDataLoss);
}

TEST_P(DiskRowsTest, ReadsOnlyTheBlocksOfARow) {
  const auto disk = OpenSimulated();
  for (int64_t key = 0; key < 100; ++key) Append(Layout(), {key}, {1});
  testing::FoundRows found;
  const KeyBatch batch = Batch({90, 99});
  ASSERT_TRUE(testing::Find(*rows_, batch.keys(), Layout(), nullptr, &found).ok());
  EXPECT_EQ(disk->slot_bytes, kBlockBytes);
}

TEST_P(DiskRowsTest, RowsThatCouldNotBeMovedAreMovedLater) {
  const auto disk = OpenSimulated();
  std::vector<int64_t> some;
  std::map<int64_t, char> expected;
  std::mt19937 random(1);
  size_t failed = 0;
  for (int round = 0; round < 400; ++round) {
    disk->faults.write_error = round < 300 ? 200 : 0;
    some.clear();
    for (int64_t key = 0; key < 3000; ++key) {
      const bool is_rare = key % 2 == 0;  // so that each file has rows that stay
      if (round == 0 || (is_rare ? key / 2 % 400 == round : random() % 4 == 0)) some.push_back(key);
    }
    const KeyBatch batch = Batch(some);
    const auto fill = static_cast<char>(1 + round % 100);
    const RowBatch rows = Rows(Layout(), batch, std::vector<char>(some.size(), fill));
    if (testing::Append(rows_.get(), rows).ok()) {
      for (const int64_t key : some) expected[key] = fill;
    } else {
      ++failed;
    }
  }
  EXPECT_GT(failed, 20U);
  ExpectRows(Layout(), expected, 3000);
  EXPECT_LE(rows_->Stats().disk_bytes, rows_->live_bytes() * 3 / 2 + (uint64_t{5} << 16))
      << "gaps of files whose cleaning failed once are cleaned";
}

}  // namespace
}  // namespace de::engine
