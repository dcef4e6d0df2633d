// Rows on disk beside a std::map with the same rows.
#include "de_core/cc/engine/tier/disk_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "de_core/cc/testing/tier/disk_rows_fixture.h"

namespace de::engine {
namespace {

namespace fs = std::filesystem;

INSTANTIATE_TEST_SUITE_P(Reads, DiskRowsTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "ByRing" : "ByThreads"; });

TEST_P(DiskRowsTest, HoldsTheNewestRowOfEachKey) {
  for (const KeyType key_type : {KeyType::kInt64, KeyType::kString}) {
    Open(key_type);
    const RowLayout layout = Layout();
    std::mt19937 random(1);
    std::map<int64_t, char> expected;
    for (int step = 0; step < 300; ++step) {
      std::vector<int64_t> keys;
      std::vector<char> fills;
      for (int64_t key = 0; key < 2000; ++key) {
        if (random() % 20 == 0) keys.push_back(key);
      }
      if (random() % 4 == 0) {
        ASSERT_TRUE(rows_->Erase(Batch(keys).keys()).ok());
        for (const int64_t key : keys) expected.erase(key);
      } else {
        for (const int64_t key : keys) {
          fills.push_back(static_cast<char>(random() % 127 + 1));
          expected[key] = fills.back();
        }
        Append(layout, keys, fills);
      }
      if (step % 30 == 0) {
        ExpectRows(layout, expected, 2000);
        ExpectScan(layout, expected, step % 60 == 0 ? 64 : 4096);
      }
    }
    ExpectRows(layout, expected, 2000);
    // Gaps were cleaned, 256 KiB at once: 30,000 rows were appended.
    const TierStats stats = rows_->Stats();
    EXPECT_LE(stats.disk_bytes,
              rows_->live_bytes() * 3 / 2 + 3 * (uint64_t{1} << 16) + (uint64_t{1} << 18));
    EXPECT_EQ(stats.disk_bytes > 0, !Files().empty());
    ASSERT_TRUE(rows_->Clear([] { return Status::Ok(); }).ok());
    EXPECT_TRUE(rows_->empty());
    EXPECT_TRUE(Files().empty());
    ExpectRows(layout, {}, 2000);
    rows_.reset();
  }
}

TEST_P(DiskRowsTest, RowsReplaceOlderRowsWhenTheyAreCommitted) {
  Open();
  const KeyBatch keys = Batch({1, 2}), more = Batch({2});
  Append(Layout(), {1, 2}, {1, 1});
  const RowBatch rows = Rows(Layout(), keys, {2, 2}), later = Rows(Layout(), more, {3});
  ASSERT_TRUE(rows_->Stage(rows).ok());
  ExpectRows(Layout(), {{1, 1}, {2, 1}}, 3);
  rows_->Discard();
  ASSERT_TRUE(rows_->Commit().ok());
  ExpectRows(Layout(), {{1, 1}, {2, 1}}, 3);
  ASSERT_TRUE(rows_->Stage(rows).ok());
  ASSERT_TRUE(rows_->Stage(later).ok());
  ASSERT_TRUE(rows_->Commit().ok());
  ExpectRows(Layout(), {{1, 2}, {2, 3}}, 3);
}

TEST_P(DiskRowsTest, CleaningBesideStagedRowsKeepsTheNewest) {
  Open();
  std::map<int64_t, char> expected;
  std::vector<int64_t> keys(6000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  std::mt19937 random(1);
  for (int step = 0; step < 60; ++step) {  // the cleaned rows are among those that are staged
    std::vector<char> fills;
    for (const int64_t key : keys) {
      fills.push_back(static_cast<char>(random() % 127 + 1));
      expected[key] = fills.back();
    }
    const KeyBatch batch = Batch(keys);
    const RowBatch rows = Rows(Layout(), batch, fills);
    if (step % 5 == 4) {  // written, but not committed
      RowBatch other = rows;
      std::fill(other.rows.begin(), other.rows.end(), 'x');
      ASSERT_TRUE(rows_->Stage(other).ok());
      rows_->Discard();
    }
    ASSERT_TRUE(rows_->Stage(rows).ok());
    ASSERT_TRUE(rows_->Commit().ok());
  }
  ExpectRows(Layout(), expected, 6000);
  EXPECT_LE(rows_->Stats().disk_bytes, 7 * rows_->live_bytes());  // each append fills a file
}

TEST_P(DiskRowsTest, FilesBecomeFewerAfterRowsAreErased) {
  Open();
  std::vector<int64_t> keys(20000), erased, changed;
  std::map<int64_t, char> expected;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  for (const int64_t key : keys) {
    if (key % 10 == 0) expected[key] = 1;
    if (key % 10 != 0) erased.push_back(key);
    if (key % 100 == 0) changed.push_back(key);
  }
  for (size_t at = 0; at < keys.size(); at += 1000) {
    const auto begin = keys.begin() + static_cast<std::ptrdiff_t>(at);
    Append(Layout(), {begin, begin + 1000}, std::vector<char>(1000, 1));
  }
  ASSERT_TRUE(rows_->Erase(Batch(erased).keys()).ok());  // each file keeps some rows
  const uint64_t before = rows_->Stats().disk_bytes;
  for (char fill = 2; fill < 60; ++fill) {
    Append(Layout(), changed, std::vector<char>(changed.size(), fill));
    for (const int64_t key : changed) expected[key] = fill;
  }
  ExpectRows(Layout(), expected, 20000);
  EXPECT_GT(before, 6 * rows_->live_bytes());
  EXPECT_LE(rows_->Stats().disk_bytes, rows_->live_bytes() * 3 / 2 + (uint64_t{6} << 16));
}

TEST_P(DiskRowsTest, CleansFilesInWhichABlocksLastBytesAreTooFewForARecordsBeginning) {
  Open();
  const RowLayout layout = Layout(2);  // records of 24 bytes: 341 leave 8 of two blocks
  std::map<int64_t, char> expected;
  std::vector<int64_t> stay, change;
  for (int64_t key = 0; key < 341; ++key) {
    stay.push_back(key);
    change.push_back(341 + key);
    expected[key] = 7;
  }
  Append(layout, stay, std::vector<char>(stay.size(), 7));
  for (char fill = 1; fill < 100; ++fill) {
    Append(layout, change, std::vector<char>(change.size(), fill));
    for (const int64_t key : change) expected[key] = fill;
  }
  ExpectRows(layout, expected, 2 * 341);
  EXPECT_LE(rows_->Stats().disk_bytes, uint64_t{6} << 16);  // 100 appends took 800 KiB
}

TEST_P(DiskRowsTest, FindsPositionsWithoutReading) {
  Open();
  Append(Layout(), {3, 1}, {1, 2});
  const KeyBatch batch = Batch({0, 1, 2, 3});
  LocatedRows located;
  ASSERT_TRUE(rows_->Locate(batch.keys(), nullptr, &located).ok());
  EXPECT_EQ(located.positions, (std::vector<uint32_t>{1, 3}));
  EXPECT_EQ(rows_->Stats().reads, 0u);
  testing::FoundRows found;
  const KeyBatch absent = Batch({7, 8});
  ASSERT_TRUE(testing::Find(*rows_, absent.keys(), Layout(), nullptr, &found).ok());
  EXPECT_EQ(rows_->Stats().reads, 0u);
}

TEST_P(DiskRowsTest, LocatedRowsStayReadable) {
  Open();
  Append(Layout(), {1, 2, 3}, {1, 2, 3});
  const KeyBatch batch = Batch({1, 2, 3});
  LocatedRows located;
  ASSERT_TRUE(rows_->Locate(batch.keys(), nullptr, &located).ok());
  bool newest[3];
  ASSERT_TRUE(rows_->AreNewest(batch.keys(), located, newest).ok());
  EXPECT_TRUE(newest[0] && newest[1] && newest[2]);
  Append(Layout(), {1}, {4});
  ASSERT_TRUE(rows_->Erase(Batch({2}).keys()).ok());
  ASSERT_TRUE(rows_->AreNewest(batch.keys(), located, newest).ok());
  EXPECT_TRUE(!newest[0] && !newest[1] && newest[2]);
  ASSERT_TRUE(rows_->Clear([] { return Status::Ok(); }).ok());
  Append(Layout(), {1, 2, 3}, {7, 8, 9});  // the same places in another file
  ASSERT_TRUE(rows_->AreNewest(batch.keys(), located, newest).ok());
  EXPECT_TRUE(!newest[0] && !newest[1] && !newest[2]);
  std::vector<char> rows;
  ASSERT_TRUE(rows_->Read(batch.keys(), located, Layout(), nullptr, &rows).ok());
  ASSERT_EQ(rows.size(), 3 * Layout().stride());
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(rows[i * Layout().stride()], static_cast<char>(i + 1));
  EXPECT_EQ(Files().size(), 2u);
  located = LocatedRows();
  EXPECT_EQ(Files().size(), 1u);
}

TEST_P(DiskRowsTest, AFileWithoutRowsIsWrittenAgainUnlessItIsRead) {
  Open();
  std::vector<int64_t> keys(2000);
  std::map<int64_t, char> expected;
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i);
  Append(Layout(), keys, std::vector<char>(keys.size(), 100));
  const KeyBatch batch = Batch(keys);
  LocatedRows located;
  ASSERT_TRUE(rows_->Locate(batch.keys(), nullptr, &located).ok());
  for (char fill = 1; fill < 60; ++fill) {
    Append(Layout(), keys, std::vector<char>(keys.size(), fill));
    for (const int64_t key : keys) expected[key] = fill;
  }
  ExpectRows(Layout(), expected, 2000);
  std::vector<char> rows;
  ASSERT_TRUE(rows_->Read(batch.keys(), located, Layout(), nullptr, &rows).ok());
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(rows[i * Layout().stride()], 100);
  located = LocatedRows();
  // Each batch needs a file. Without files that are written again, the names would end with 59.
  for (const fs::path& file : Files()) {
    EXPECT_LT(std::stoi(file.filename().string().substr(5)), 20) << file;
  }
  // Nor do the numbers of the files grow.
  ASSERT_TRUE(rows_->Locate(batch.keys(), nullptr, &located).ok());
  for (const auto& [number, file] : located.files) EXPECT_LT(number, 20U);
}

TEST_P(DiskRowsTest, ConvertsRowsToTheLayoutOfToday) {
  Open();
  RowLayout with = Layout();
  Append(Layout(), {1}, {5});
  with.Append("adam", {{"m", DType::kFloat32, 8, 2.0}});
  Append(with, {2}, {6});
  const auto slot_of = [&](int64_t key, const RowLayout& layout) {
    testing::FoundRows found;
    const KeyBatch batch = Batch({key});
    EXPECT_TRUE(testing::Find(*rows_, batch.keys(), layout, nullptr, &found).ok());
    float value = 0;
    std::memcpy(&value, found.rows.data() + layout.slots()[0].offset, sizeof(value));
    return value;
  };
  float six = 0;
  std::memset(&six, 6, sizeof(six));
  EXPECT_EQ(slot_of(1, with), 2.0F);
  EXPECT_EQ(slot_of(2, with), six);
  rows_->DropSlots("adam");
  EXPECT_EQ(slot_of(2, with), 2.0F);
  Append(Layout(), {3}, {7});
  Append(with, {4}, {6});
  EXPECT_EQ(slot_of(4, with), six);
  EXPECT_EQ(slot_of(2, with), 2.0F);
  ExpectRows(Layout(), {{1, 5}, {2, 6}, {3, 7}, {4, 6}}, 5);
}

TEST_P(DiskRowsTest, KeepsRowsGreaterThanABlock) {
  Open(KeyType::kString, 1 << 20);
  for (const size_t dim : {size_t{1}, size_t{500}, size_t{1100}, kMaxDim}) {
    const RowLayout layout = Layout(dim);
    Append(layout, {1, 2, 3}, {1, 2, 3});
    ExpectRows(layout, {{1, 1}, {2, 2}, {3, 3}}, 5);
    ASSERT_TRUE(rows_->Clear([] { return Status::Ok(); }).ok());
  }
}

TEST_P(DiskRowsTest, RefusesARowThatIsTooLarge) {
  Open(KeyType::kString);
  const std::string key(kMaxRecordBytes, 'k');
  KeyBatch batch;
  batch.ints = {0};
  batch.texts = {key};
  batch.views = {batch.texts[0]};
  const Status status = testing::Append(rows_.get(), Rows(Layout(), batch, {1}));
  EXPECT_EQ(status.code, Code::kInvalidArgument);
  EXPECT_TRUE(rows_->empty());
}

TEST_P(DiskRowsTest, OneObjectUsesADirectoryAndRemovesWhatIsLeft) {
  Open();
  Append(Layout(), {1}, {1});
  std::unique_ptr<DiskRows> other;
  EXPECT_EQ(DiskRows::Create(DiskOptions{directory_}, KeyType::kInt64, &other).code,
            Code::kFailedPrecondition);
  EXPECT_EQ(Files().size(), 1u);
  rows_.reset();
  EXPECT_TRUE(Files().empty());
  std::ofstream(directory_ + "/rows-7") << "left by a killed process";
  std::ofstream(directory_ + "/other") << "not ours";
  Open();
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(Files()[0].filename(), "other");
  const std::string file = directory_ + "/other";
  EXPECT_EQ(DiskRows::Create(DiskOptions{file}, KeyType::kInt64, &other).code,
            Code::kInvalidArgument);
  EXPECT_EQ(DiskRows::Create(DiskOptions{directory_ + "/new", 1}, KeyType::kInt64, &other).code,
            Code::kInvalidArgument);
}

TEST_P(DiskRowsTest, ReadsRunAtOnce) {
  Open();
  std::vector<int64_t> keys(5000);
  std::map<int64_t, char> expected;
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = static_cast<int64_t>(i);
    expected[keys[i]] = static_cast<char>(i % 100 + 1);
  }
  std::vector<char> fills;
  for (const auto& [key, fill] : expected) fills.push_back(fill);
  Append(Layout(), keys, fills);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 5; ++j) ExpectRows(Layout(), expected, 5000);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace de::engine
