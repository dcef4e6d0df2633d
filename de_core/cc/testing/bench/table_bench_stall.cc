// Measures the longest calls: lookups while a table grows, and writes to a full table.
#include <algorithm>
#include <array>
#include <atomic>
#include <numeric>
#include <random>
#include <thread>

#include "de_core/cc/engine/memory/page_memory.h"
#include "de_core/cc/testing/bench/table_bench.h"
#include "de_core/cc/testing/bench/table_bench_peers.h"

namespace de::bench {
namespace {

constexpr size_t kDim = 32;
constexpr size_t kRowBytes = kDim * sizeof(float);
constexpr size_t kLookup = 256;
constexpr size_t kBatch = 16384;

/// The durations of one thread's calls.
class CallTimes {
 public:
  CallTimes() { calls_.reserve(4'000'000); }

  bool full() const { return calls_.size() == calls_.capacity(); }

  template <typename Call>
  void Time(const Call& call) {
    const double begin = WallSeconds();
    call();
    calls_.push_back(1e3 * (WallSeconds() - begin));
  }

  /// Returns the quantile `part` of the call times in milliseconds: this fraction of the calls took
  /// less time.
  double At(double part) {
    std::sort(calls_.begin(), calls_.end());
    return calls_[static_cast<size_t>(part * static_cast<double>(calls_.size() - 1))];
  }
  size_t calls() const { return calls_.size(); }

 private:
  std::vector<double> calls_;
};

/// Allocates `bytes` of memory and writes to them, as a growing table does.
void TakeMemory(uint64_t bytes) {
  constexpr size_t kBlock = size_t{64} << 20;
  std::vector<engine::PageMemory> blocks;
  for (uint64_t taken = 0; taken < bytes; taken += kBlock) {
    blocks.emplace_back(kBlock);
    std::memset(blocks.back().data(), 1, kBlock);
  }
}

}  // namespace

void StallSection(const Options& options) {
  enum Grows { kThisTable, kAnotherTable, kNoTable };
  constexpr std::array<const char*, 3> kNames = {"lookups of the table that grows",
                                                 "lookups of another table",
                                                 "no table: 5 us of reading the clock"};
  const uint64_t rows = options.RowsOf(options.stall_rows, kDim), first = rows / 20;
  const std::vector<int64_t> there = KeysFrom(0, first);
  const std::vector<int64_t> to_come = KeysFrom(first, rows - first);
  const std::vector<char> values(kBatch * kRowBytes, 1);
  PrintSection("Lookups of 256 keys while a table grows from " + std::to_string(first) + " to " +
                   std::to_string(rows) + " rows (million keys/s; ms of wall time)",
               {"what is timed", "keys", "median", "99 %", "99.9 %", "longest"});
  for (int round = 0; round < 3 * options.fill_rounds; ++round) {
    // The three cases run in turn. In the last two, the measured table does not grow: their times
    // show the delays that the machine causes.
    const Grows grows = static_cast<Grows>(round % 3);
    LetTheHostFinish();
    Ours read(kDim, 0), other(kDim, 0);
    read.Upsert(there, kBatch, values.data());
    other.Upsert(there, kBatch, values.data());
    std::atomic<bool> done{false};
    CallTimes times;
    std::thread reader([&] {
      std::mt19937_64 random(5);
      std::vector<int64_t> batch(kLookup);
      std::vector<char> out(kLookup * kRowBytes, 1);
      while (!done && !times.full()) {
        if (grows == kNoTable) {
          times.Time([] {
            for (const double start = WallSeconds(); WallSeconds() < start + 5e-6;) {
            }
          });
          continue;
        }
        for (int64_t& key : batch) key = there[random() % there.size()];
        times.Time([&] { read.Find(batch, kLookup, out.data()); });
      }
    });
    const double start = WallSeconds();
    if (grows == kNoTable) {
      TakeMemory(rows * kRowBytes);
    } else {
      engine::Table& table = (grows == kThisTable ? read : other).table();
      ForBatches(to_come.size(), kBatch, [&](size_t at, size_t count) {
        OkOrExit(table.InsertOrAssign({to_come.data() + at, nullptr, count},
                                      {values.data(), nullptr}, nullptr));
      });
    }
    const double seconds = WallSeconds() - start;
    done = true;
    reader.join();
    const double keys = grows == kNoTable ? 0 : static_cast<double>(times.calls() * kLookup);
    PrintRow({kNames[grows], Number(keys / seconds / 1e6), Number(times.At(0.5), 3),
              Number(times.At(0.99), 3), Number(times.At(0.999), 3), Number(times.At(1))});
  }
}

void EvictSection(const Options& options) {
  constexpr size_t kRowsPerWrite = 512, kSmallDim = 4;
  const std::vector<char> values(kBatch * kSmallDim * sizeof(float), 1);
  PrintSection("Writes of 512 new keys to a full table (ms)",
               {"rows", "median", "longest", "CPU: mean", "CPU: 99 %", "CPU: longest"});
  for (const uint64_t rows : {options.rows / 16, options.rows}) {
    engine::TableOptions of;
    of.dim = kSmallDim;
    of.policy.evict_by = engine::RowColumn::kTime;
    of.policy.max_rows = rows;
    std::unique_ptr<engine::Table> table;
    OkOrExit(engine::Table::Create(of, &table));
    const std::vector<int64_t> keys = KeysFrom(0, rows);
    ForBatches(rows, kBatch, [&](size_t at, size_t count) {
      OkOrExit(table->InsertOrAssign({keys.data() + at, nullptr, count}, {values.data(), nullptr},
                                     nullptr));
    });
    const std::vector<int64_t> fresh = KeysFrom(rows, 2000 * kRowsPerWrite);
    CallTimes times;
    std::vector<double> cpu_ms;
    ForBatches(fresh.size(), kRowsPerWrite, [&](size_t at, size_t count) {
      const double cpu = CpuSeconds();
      times.Time([&] {
        OkOrExit(table->InsertOrAssign({fresh.data() + at, nullptr, count},
                                       {values.data(), nullptr}, nullptr));
      });
      cpu_ms.push_back(1e3 * (CpuSeconds() - cpu));
    });
    std::sort(cpu_ms.begin(), cpu_ms.end());
    const double mean_cpu =
        std::accumulate(cpu_ms.begin(), cpu_ms.end(), 0.0) / static_cast<double>(cpu_ms.size());
    PrintRow({std::to_string(rows), Number(times.At(0.5), 3), Number(times.At(1)),
              Number(mean_cpu, 3), Number(cpu_ms[cpu_ms.size() * 99 / 100], 3),
              Number(cpu_ms.back())});
  }
}

}  // namespace de::bench
