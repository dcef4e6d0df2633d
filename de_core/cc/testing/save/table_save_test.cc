// Saves of live tables while other threads write: base and deltas together equal the table.
#include "de_core/cc/engine/save/table_save.h"

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <map>
#include <random>
#include <thread>

#include "de_core/cc/engine/snapshot/snapshot_compact.h"
#include "de_core/cc/testing/full_sink.h"
#include "de_core/cc/testing/sanitized.h"
#include "de_core/cc/testing/saved_table.h"
#include "de_core/cc/testing/string_sink.h"

namespace de::engine::testing {
namespace {

/// Parameterized by dim: some widths have specialized code.
class TableSaveOf : public ::testing::TestWithParam<size_t> {};

TEST_P(TableSaveOf, base_and_deltas_follow_a_table_that_is_written_meanwhile) {
  const auto table = Make(GetParam());
  Threads threads(3);
  std::atomic<bool> stop{false};
  const auto write = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    for (float value = 1; !stop; ++value) {
      // Several threads write large batches.
      std::vector<int64_t> keys(seed == 2 && random() % 16 == 0 ? 12000 : 200), gone(50);
      for (int64_t& key : keys) key = static_cast<int64_t>(random() % 20000);
      for (int64_t& key : gone) key = static_cast<int64_t>(random() % 20000);
      Put(table.get(), keys, value, &threads);
      ASSERT_TRUE(table->Erase(KeysOf(gone), nullptr).ok());
      if (seed == 2 && random() % 50 == 0) {
        ASSERT_TRUE(table->ShrinkToFit().ok());
      }
    }
  };
  std::thread first(write, 1), second(write, 2);
  std::vector<std::string> files = {Save(table.get(), ChainOf("c", false), 1, &threads)};
  // Under a sanitizer, a save is slow while other threads write: save only once in each mode.
  const uint8_t end = kSanitized ? 4 : 8;
  for (uint8_t i = 2; i < end; ++i) {
    SaveOptions options = ChainOf("c", true);
    if (i % 2 == 0) options.held_bytes = uint64_t{1} << 30;
    if (i % 3 == 0) {
      EXPECT_NE(Save(table.get(), options, 100, &threads, /*done=*/false), "");
    }
    files.push_back(Save(table.get(), options, i, &threads));
    ASSERT_NE(files.back(), "");
  }
  stop = true;
  first.join();
  second.join();
  files.push_back(Save(table.get(), ChainOf("c", true), 9, &threads));
  EXPECT_TRUE(Restored(files, GetParam()) == Contents(*table));

  const Readers readers(files);
  StringSink sink;
  CompactReport report;
  ASSERT_TRUE(CompactSnapshots(readers.all, &sink, &report).ok());
  EXPECT_TRUE(Restored({sink.bytes()}, GetParam()) == Contents(*table));
}

TEST_P(TableSaveOf, a_consistent_save_sees_no_write_behind_its_moment) {
  const auto table = Make(GetParam());
  Threads threads(2);
  std::vector<int64_t> keys(15000);
  for (size_t i = 0; i < keys.size(); ++i) keys[i] = static_cast<int64_t>(i * 977);
  Put(table.get(), keys, 0);
  SaveOptions options;
  options.held_bytes = uint64_t{1} << 28;
  std::unique_ptr<TableSave> save;
  ASSERT_TRUE(TableSave::Begin(table.get(), options, &save).ok());
  std::unique_ptr<TableSave> other;
  EXPECT_EQ(TableSave::Begin(table.get(), options, &other).code, Code::kFailedPrecondition);
  const auto before = Contents(*table);
  Put(table.get(), keys, 1, &threads);
  Put(table.get(), {1, 2, 3}, 1);
  ASSERT_TRUE(table->Erase({keys.data(), nullptr, 2000}, nullptr).ok());
  ASSERT_TRUE(table->ShrinkToFit().ok());
  Put(table.get(), {keys.begin(), keys.begin() + 1000}, 2);
  Put(table.get(), keys, 3, &threads);
  StringSink sink;
  const Status status = save->Write(&sink, nullptr);
  ASSERT_TRUE(status.ok()) << status.message;
  EXPECT_GT(save->report().held_peak, keys.size() * table->layout().stride());
  EXPECT_TRUE(Restored({sink.bytes()}, GetParam()) == before);
}

TEST_P(TableSaveOf, a_delta_holds_the_rows_that_several_threads_wrote_and_no_others) {
  const auto table = Make(GetParam());
  Threads threads(2);
  Put(table.get(), Numbers(0, 60000), 1);
  const std::string base = Save(table.get(), ChainOf("c", false), 1);
  Put(table.get(), Numbers(10000, 15000), 2, &threads);
  Put(table.get(), Numbers(58000, 14000), 3, &threads);
  const std::string delta = Save(table.get(), ChainOf("c", true), 2);
  EXPECT_TRUE(Restored({base, delta}, GetParam()) == Contents(*table));
  EXPECT_EQ(Readers({delta}).all[0]->rows(), 29000U);
}

INSTANTIATE_TEST_SUITE_P(Dims, TableSaveOf, ::testing::Values(2, 8));

TEST(TableSave, pieces_stay_small_while_the_table_grows) {
  const auto table = Make(16);
  Put(table.get(), Numbers(0, 50000), 1);
  SaveSource source(table.get());
  ASSERT_TRUE(source.Begin({}, 0).ok());
  size_t pieces = 0, total = 0;
  for (SaveSource::Range range : source.ranges()) {
    SavedRows rows;
    uint64_t last = 0;
    for (bool done = false; !done; ++pieces) {
      if (pieces == 20) Put(table.get(), Numbers(50000, 400000), 2);
      const size_t before = rows.count();
      ASSERT_TRUE(source.Collect(&range, &rows, &last, &done).ok());
      EXPECT_LE(rows.count() - before, 2048U);
      EXPECT_EQ(done, last == range.last);
    }
    total += rows.count();
  }
  EXPECT_GE(total, 50000U);
  EXPECT_GE(pieces, total / 2048);
}

TEST(TableSave, what_is_collected_needs_no_copies) {
  const auto table = Make(16);
  const std::vector<int64_t> keys = Numbers(0, 20000);
  Put(table.get(), keys, 1);
  const auto before = Contents(*table);
  SaveOptions options;
  options.held_bytes = uint64_t{1} << 30;
  size_t pieces = 0;
  options.rest = [&] {
    Put(table.get(), keys, static_cast<float>(++pieces));
    return pieces % 3 == 0;
  };
  std::unique_ptr<TableSave> save;
  ASSERT_TRUE(TableSave::Begin(table.get(), options, &save).ok());
  StringSink sink;
  Threads threads(2);
  ASSERT_TRUE(save->Write(&sink, &threads).ok());
  EXPECT_GE(pieces, 16U);
  EXPECT_TRUE(Restored({sink.bytes()}, 16) == before);
  const uint64_t all = keys.size() * BeforeImages::BytesACopy(table->layout());
  EXPECT_LT(save->report().held_peak, all);
  EXPECT_GE(save->report().held_peak, all * 9 / 10);
  EXPECT_GT(save->report().longest_hold, 0);
}

TEST(TableSave, the_first_error_ends_a_save_on_all_threads) {
  const auto table = Make(64);
  Put(table.get(), Numbers(0, 100000), 1);
  for (const size_t helpers : {0, 1, 4}) {
    for (const size_t room : {0U, 5000000U, 20000000U}) {
      std::unique_ptr<TableSave> save;
      ASSERT_TRUE(TableSave::Begin(table.get(), {}, &save).ok());
      FullSink sink(room);
      Threads threads(helpers);
      EXPECT_EQ(save->Write(&sink, helpers == 0 ? nullptr : &threads).code,
                Code::kResourceExhausted);
    }
  }
}

TEST(TableSave, a_cleared_table_outdates_a_consistent_save) {
  const auto table = Make();
  Put(table.get(), {1, 2, 3}, 1);
  SaveOptions options;
  options.held_bytes = uint64_t{1} << 20;
  std::unique_ptr<TableSave> save;
  ASSERT_TRUE(TableSave::Begin(table.get(), options, &save).ok());
  ASSERT_TRUE(table->Clear().ok());
  StringSink sink;
  EXPECT_EQ(save->Write(&sink, nullptr).code, Code::kFailedPrecondition);
  EXPECT_TRUE(save->outdated());
}

TEST(TableSave, what_would_outdate_an_undisturbed_save_waits_for_it) {
  const auto table = Make();
  const std::vector<std::function<Status()>> changes = {
      [&] { return table->EnsureSlots("sgd", {{"m", DType::kFloat32, 2, 0}}); },
      [&] { return table->DropSlots("sgd"); },
      [&] { return table->Clear(); },
  };
  // The other thread may be late. In 20 rounds a change that does not wait is seen.
  for (size_t round = 0; round < 20; ++round) {
    for (const auto& change : changes) {
      const uint64_t held_bytes = round % 2 == 0 ? 0 : uint64_t{1} << 20;
      Put(table.get(), {1, 2, 3}, 1);
      SaveOptions options;
      options.held_bytes = held_bytes;
      options.undisturbed = true;
      std::unique_ptr<TableSave> save;
      ASSERT_TRUE(TableSave::Begin(table.get(), options, &save).ok());
      std::atomic<bool> begun{false};
      std::atomic<bool> changed{false};
      std::thread other([&] {
        begun = true;
        EXPECT_TRUE(change().ok());
        changed = true;
      });
      while (!begun) std::this_thread::yield();
      for (int i = 0; i < 100; ++i) std::this_thread::yield();
      EXPECT_FALSE(changed);
      StringSink sink;
      const Status written = save->Write(&sink, nullptr);
      EXPECT_TRUE(written.ok()) << written.message;
      other.join();  // the save has read all rows, so this must not wait for Done
      EXPECT_EQ(save->report().rows, 3U);
      EXPECT_TRUE(save->Done().ok());
    }
  }
  SaveOptions options;
  options.undisturbed = true;
  std::unique_ptr<TableSave> dropped;
  ASSERT_TRUE(TableSave::Begin(table.get(), options, &dropped).ok());
  dropped.reset();
  EXPECT_TRUE(table->Clear().ok());
}

TEST(TableSave, rows_larger_than_a_section_still_make_a_file) {
  const auto table = Make(4096);
  Put(table.get(), Numbers(0, 600), 3);
  EXPECT_TRUE(Restored({Save(table.get(), {}, 1)}, 4096) == Contents(*table));
}

TEST(TableSave, a_delta_is_written_while_more_of_it_is_collected) {
  const auto table = Make(64);
  Put(table.get(), Numbers(0, 160000), 1);
  ASSERT_NE(Save(table.get(), ChainOf("chain", false), 1), "");
  Put(table.get(), Numbers(0, 40000), 2);  // 10 MB in 16 shards
  const std::string delta = Save(table.get(), ChainOf("chain", true), 2);
  const Readers readers({delta});
  uint64_t largest = 0;
  for (const SectionRecord& section : readers.all[0]->sections()) {
    largest = std::max<uint64_t>(largest, section.count);
  }
  EXPECT_EQ(readers.all[0]->rows(), 40000U);
  EXPECT_LE(largest, 512U);  // 128 KiB, of 640 KB a shard
}

TEST(TableSave, string_keys_of_one_word_keep_their_own_changes) {
  const auto table = MakeStrings(1);
  std::vector<std::string> texts;
  for (int i = 0; i < 3000; ++i) texts.push_back("key " + std::to_string(i));
  const std::vector<std::string_view> keys(texts.begin(), texts.end());
  const auto put = [&](size_t count, std::string_view value) {
    const std::vector<std::string_view> values(count, value);
    ASSERT_TRUE(
        table->InsertOrAssign({nullptr, keys.data(), count}, {nullptr, values.data()}, nullptr)
            .ok());
  };
  put(3000, "first");
  std::vector<std::string> files = {Save(table.get(), ChainOf("c", false), 1)};
  put(100, "second");
  ASSERT_TRUE(table->Erase({nullptr, keys.data() + 50, 100}, nullptr).ok());
  files.push_back(Save(table.get(), ChainOf("c", true), 2));
  const Readers readers(files);
  EXPECT_EQ(readers.all[1]->rows(), 50U);
  EXPECT_EQ(readers.all[1]->tombstones(), 100U);
  const auto other = MakeStrings(1);
  RestoreReport report;
  ASSERT_TRUE(RestoreTable(other.get(), readers.all, {}, nullptr, &report).ok());
  EXPECT_EQ(other->size(), 2900U);
}

TEST(DirtyRows, keys_in_rows_that_were_freed_during_a_failed_save_are_in_the_next_delta) {
  const auto table = Make();
  const std::vector<int64_t> keys = Numbers(0, 2000);
  Put(table.get(), keys, 1);
  std::vector<std::string> files = {Save(table.get(), ChainOf("c", false), 1)};
  Put(table.get(), keys, 2);
  {
    std::unique_ptr<TableSave> fails;
    ASSERT_TRUE(TableSave::Begin(table.get(), ChainOf("c", true), &fails).ok());
    ASSERT_TRUE(table->Erase(KeysOf(keys), nullptr).ok());
  }
  Put(table.get(), Numbers(2000, 2000), 3);
  files.push_back(Save(table.get(), ChainOf("c", true), 2));
  EXPECT_EQ(Restored(files), Contents(*table));
}

TEST(DirtyRows, turnover_beyond_the_rows_makes_the_next_delta_begin_from_nothing) {
  const auto table = Make();
  Put(table.get(), {-1}, 1);
  std::vector<std::string> files = {Save(table.get(), ChainOf("c", false), 1)};
  for (int64_t begin = 0; begin < 3000000; begin += 100000) {
    const std::vector<int64_t> keys = Numbers(begin, 100000);
    Put(table.get(), keys, 1);
    ASSERT_TRUE(table->Erase(KeysOf(keys), nullptr).ok());
  }
  EXPECT_LT(table->chains().bytes(), 32U << 20);
  files.push_back(Save(table.get(), ChainOf("c", true), 2));
  const Readers readers(files);
  EXPECT_TRUE(readers.all[1]->header().replaces);
  EXPECT_EQ(Restored(files), Contents(*table));
}

}  // namespace
}  // namespace de::engine::testing
