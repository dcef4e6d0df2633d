// Lookups on many threads while the first write loads a mapped file into a table in memory.
#include "de_core/cc/engine/serving/file_backed_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "de_core/cc/engine/serving/frozen_table.h"
#include "de_core/cc/testing/saved_table.h"
#include "de_core/cc/testing/snapshot_fixture.h"

namespace de::engine::testing {
namespace {

constexpr int kRounds = 100;
constexpr size_t kRows = 300;
constexpr int64_t kReaders = 3;
constexpr int64_t kWriters = 3;

/// A snapshot of kRows rows of one value, with a table over it.
class File {
 public:
  explicit File(float value) : bytes_(Snapshot(value)) {
    EXPECT_TRUE(OpenFrozen({bytes_.data(), bytes_.size()}, &table_).ok());
  }

  const FrozenTable& table() const { return *table_; }
  Status Restore(Table* table) const {
    std::unique_ptr<SnapshotReader> reader;
    DE_RETURN_IF_ERROR(SnapshotReader::Open(bytes_.data(), bytes_.size(), &reader));
    RestoreReport report;
    return RestoreTable(table, {reader.get()}, {}, nullptr, &report);
  }

 private:
  static std::string Snapshot(float value) {
    const auto table = Make(1);
    Put(table.get(), Numbers(0, kRows), value);
    return Save(table.get(), {}, 1);
  }

  AlignedBytes bytes_;
  std::unique_ptr<FrozenTable> table_;
};

using MappedTable = FileBackedTable<Table, File, Status>;

MappedTable::Load LoadOf(const std::shared_ptr<const File>& file, std::atomic<int>* loads) {
  return [file, loads](Table* table) {
    ++*loads;
    return file->Restore(table);
  };
}

/// Returns the row of a key, or -1 if the table is closed.
float Read(const MappedTable& mapped, int64_t key) {
  const MappedTable::Reader reader = mapped.ForReading();
  float value = -1;
  bool found = false;
  const Keys keys{&key, nullptr, 1};
  if (reader.file != nullptr) {
    EXPECT_TRUE(reader.file->table().Find(keys, {&value}, &found).ok());
  } else if (reader.table != nullptr) {
    EXPECT_TRUE(
        reader.table->Find(keys, {reinterpret_cast<char*>(&value), nullptr}, &found, nullptr).ok());
  } else {
    return -1;
  }
  EXPECT_TRUE(found);
  return value;
}

TEST(FileBackedTable, no_lookup_is_wrong_and_no_write_lost_while_a_file_becomes_a_table) {
  const auto file = std::make_shared<const File>(1.0F);
  for (int round = 0; round < kRounds; ++round) {
    MappedTable mapped(Make(1));
    std::atomic<int> loads{0};
    mapped.Begin(file, LoadOf(file, &loads));
    std::atomic<bool> written[kWriters] = {};
    std::atomic<int64_t> writing{kWriters};
    std::vector<std::thread> threads;
    for (int64_t number = 0; number < kReaders; ++number) {
      threads.emplace_back([&, number] {
        for (int64_t i = number; writing > 0; ++i) {
          const int64_t writer = i % kWriters;  // its key is its number
          const bool after = written[writer];
          const float value = Read(mapped, writer);
          EXPECT_TRUE(value == 2.0F || (value == 1.0F && !after)) << value << after;
          EXPECT_EQ(Read(mapped, kWriters + i % 200), 1.0F);
        }
      });
    }
    for (int64_t number = 0; number < kWriters; ++number) {
      threads.emplace_back([&, number] {
        std::shared_ptr<Table> table;
        EXPECT_TRUE(mapped.ForWriting(&table).ok());
        Put(table.get(), {number}, 2.0F);
        written[number] = true;
        EXPECT_EQ(Read(mapped, number), 2.0F);
        --writing;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(loads, 1);
    for (int64_t key = 0; key < static_cast<int64_t>(kRows); ++key) {
      ASSERT_EQ(Read(mapped, key), key < kWriters ? 2.0F : 1.0F);
    }
  }
}

TEST(FileBackedTable, another_file_may_take_over_and_all_be_closed_at_any_time) {
  const auto first = std::make_shared<const File>(1.0F);
  const auto second = std::make_shared<const File>(2.0F);
  for (int round = 0; round < kRounds; ++round) {
    MappedTable mapped(Make(1));
    std::atomic<int> loads{0};
    mapped.Begin(first, LoadOf(first, &loads));
    std::atomic<bool> replaced{false}, closed{false};
    std::vector<std::thread> threads;
    for (int number = 0; number < kReaders; ++number) {
      threads.emplace_back([&] {
        for (int64_t key = 0; key < 200 || !closed; ++key) {
          const bool after = replaced;
          const float value = Read(mapped, key % 200);
          const bool none = value == -1.0F && round % 2 == 1;
          EXPECT_TRUE(value == 2.0F || (value == 1.0F && !after) || none) << value;
        }
      });
    }
    threads.emplace_back([&] {
      std::shared_ptr<Table> table;
      EXPECT_TRUE(mapped.ForWriting(&table).ok());
      if (table != nullptr) Put(table.get(), {1000}, 3.0F);
    });
    mapped.Begin(second, LoadOf(second, &loads));
    replaced = true;
    if (round % 2 == 1) mapped.Close();
    closed = true;
    for (std::thread& thread : threads) thread.join();
    std::shared_ptr<Table> table;
    EXPECT_TRUE(mapped.ForWriting(&table).ok());
    EXPECT_EQ(table == nullptr, round % 2 == 1);
    EXPECT_LE(loads, 2);
  }
}

TEST(FileBackedTable, a_load_that_fails_leaves_the_file_and_is_tried_again) {
  const auto file = std::make_shared<const File>(1.0F);
  MappedTable mapped(Make(1));
  std::atomic<int> loads{0};
  mapped.Begin(file, [&](Table* table) {
    return loads++ == 0 ? Status::DataLoss("damaged") : file->Restore(table);
  });
  std::shared_ptr<Table> table;
  EXPECT_EQ(mapped.ForWriting(&table).code, Code::kDataLoss);
  EXPECT_EQ(table, nullptr);
  EXPECT_EQ(mapped.ForReading().file, file);
  EXPECT_EQ(Read(mapped, 5), 1.0F);
  ASSERT_TRUE(mapped.ForWriting(&table).ok());
  EXPECT_EQ(mapped.ForReading().table, table);
  EXPECT_EQ(Read(mapped, 5), 1.0F);
}

TEST(FileBackedTable, the_file_is_let_go_once_its_rows_are_in_the_table) {
  auto file = std::make_shared<const File>(1.0F);
  const std::weak_ptr<const File> alive = file;
  std::atomic<int> loads{0};
  MappedTable mapped(Make(1));
  mapped.Begin(file, LoadOf(file, &loads));
  file.reset();
  EXPECT_FALSE(alive.expired());
  std::shared_ptr<Table> table;
  ASSERT_TRUE(mapped.ForWriting(&table).ok());
  EXPECT_TRUE(alive.expired());
  EXPECT_EQ(Read(mapped, 7), 1.0F);
  mapped.Close();
  mapped.Begin(std::make_shared<const File>(1.0F), nullptr);
  EXPECT_EQ(Read(mapped, 7), -1.0F);
}

}  // namespace
}  // namespace de::engine::testing
