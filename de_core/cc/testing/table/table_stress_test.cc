// Runs all operations of a table at the same time on several threads. Checks that no row mixes two
// writes. Run it also under ThreadSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <random>
#include <thread>

#include "de_core/cc/testing/saved_table.h"
#include "de_core/cc/testing/string_sink.h"

namespace de::engine {
namespace {

constexpr size_t kDim = 8;
constexpr size_t kBatch = 700;
constexpr size_t kLargeBatch = 10000;  // written by several threads
constexpr int64_t kKeySpace = 20000;

TEST(TableStress, NoVerbSeesATornRowWhileAllRunAtOnce) {
  const auto table = testing::Make(kDim);
  ASSERT_TRUE(table->EnsureSlots("opt", {{"m", DType::kFloat32, kDim, 0}}).ok());
  // Each thread goes on until all have done their rounds.
  constexpr int kRounds = 300;
  std::atomic<int> unfinished{0};
  std::atomic<int> torn{0}, failed{0};
  const auto check = [&](const float* row) {
    for (size_t c = 1; c < kDim; ++c) torn += row[c] != row[0];
  };
  const auto batch_of = [](std::mt19937_64* random, std::vector<int64_t>* keys) {
    keys->resize((*random)() % 8 == 0 ? kLargeBatch : kBatch);
    for (int64_t& key : *keys) key = static_cast<int64_t>((*random)() % kKeySpace);
    return Keys{keys->data(), nullptr, keys->size()};
  };
  std::vector<std::thread> threads;
  const auto start = [&](uint64_t seed, auto&& body) {
    ++unfinished;
    threads.emplace_back([&, seed, body] {
      std::mt19937_64 random(seed);
      std::vector<int64_t> numbers;
      std::vector<float> rows(kLargeBatch * kDim);
      PoolThreads pool(2);
      for (int round = 1; unfinished > 0; ++round) {
        const Keys keys = batch_of(&random, &numbers);
        failed += !body(keys, &rows, &random, &pool).ok();
        if (round == kRounds) --unfinished;
      }
    });
  };
  for (uint64_t seed = 1; seed <= 2; ++seed) {
    start(seed,
          [&](const Keys& keys, std::vector<float>* rows, std::mt19937_64* random, Executor* pool) {
            for (size_t i = 0; i < keys.size; ++i) {
              const auto value = static_cast<float>((*random)() % 1000);
              std::fill_n(rows->begin() + static_cast<std::ptrdiff_t>(i * kDim), kDim, value);
            }
            return table->InsertOrAssign(keys, RowsIn(*rows), pool);
          });
    start(seed + 10,
          [&](const Keys& keys, std::vector<float>* rows, std::mt19937_64*, Executor* pool) {
            const Status status = table->Find(keys, RowsTo(rows), nullptr, pool);
            for (size_t i = 0; i < keys.size; ++i) check(rows->data() + i * kDim);
            return status;
          });
  }
  start(20, [&](const Keys& keys, std::vector<float>* rows, std::mt19937_64*, Executor* pool) {
    std::fill(rows->begin(), rows->end(), 1.0F);
    return table->Apply(*FindRule("sgd"), "opt", {0.5}, keys, rows->data(), pool);
  });
  start(21, [&](const Keys& keys, std::vector<float>*, std::mt19937_64* random, Executor* pool) {
    if ((*random)() % 50 == 0) return table->Clear();
    if ((*random)() % 20 == 0) return table->ShrinkToFit();
    if ((*random)() % 20 == 0) return table->Reserve(kKeySpace);
    if ((*random)() % 20 == 0) {
      return table->EraseIf([](uint64_t word, const char*) { return word % 5 == 0; }, nullptr);
    }
    return table->Erase(keys, pool);
  });
  start(22, [&](const Keys&, std::vector<float>*, std::mt19937_64* random, Executor*) {
    RowBatch batch;
    for (ExportCursor cursor; !cursor.done;) {
      const Status status = table->ExportBatch(&cursor, &batch);
      if (!status.ok()) return status;
      if (batch.size() == 0) continue;
      const size_t stride = batch.rows.size() / batch.size();
      for (size_t i = 0; i < batch.size(); ++i) {
        float row[kDim];
        std::memcpy(row, batch.rows.data() + i * stride, sizeof(row));
        check(row);
      }
    }
    if ((*random)() % 8 == 0) {
      return table->EnsureSlots("late" + std::to_string((*random)() % 4),
                                {{"s", DType::kFloat32, 1, 0}});
    }
    (void)table->Stats();
    return Status::Ok();
  });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
  EXPECT_EQ(failed, 0);
}

TEST(TableStress, SavesAndExportsCopyRowsWhoseLookupsCount) {
  constexpr size_t kSaves = 12;
  TableOptions options;
  options.dim = kDim;
  const auto table = testing::Make("uses=1;step=1;ttl_micros=3600000000;count_reads=1", options);
  const std::vector<int64_t> keys = testing::Numbers(0, kLargeBatch);
  const Keys all = KeysOf(keys);
  const std::vector<float> rows(keys.size() * kDim, 1.0F);
  const Values values = RowsIn(rows);
  ASSERT_TRUE(table->InsertOrAssign(all, values, nullptr).ok());
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0};
  std::vector<std::thread> readers;
  for (int i = 0; i < 2; ++i) {
    readers.emplace_back([&] {
      std::vector<float> out(keys.size() * kDim);
      while (!stop) {
        failed += !table->Find(all, RowsTo(&out), nullptr, nullptr).ok();
      }
    });
  }
  PoolThreads pool(2);
  for (size_t i = 0; i < kSaves; ++i) {
    SaveOptions save_options;
    save_options.chain = "c";
    save_options.delta = i > 0;
    save_options.held_bytes = i % 2 == 0 ? 0 : uint64_t{1} << 26;
    save_options.keep = {{"de", "uses", 0}};
    std::unique_ptr<TableSave> save;
    ASSERT_TRUE(TableSave::Begin(table.get(), save_options, &save).ok());
    ASSERT_TRUE(table->InsertOrAssign(all.Slice(0, 100), values, nullptr).ok());
    StringSink sink;
    ASSERT_TRUE(save->Write(&sink, &pool).ok());
    ASSERT_TRUE(save->Done().ok());
    RowBatch batch;
    for (ExportCursor cursor; !cursor.done;) ASSERT_TRUE(table->ExportBatch(&cursor, &batch).ok());
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(failed, 0);
}

}  // namespace
}  // namespace de::engine
