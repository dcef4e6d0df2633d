// Measures lookup times while a table grows, and for how much of these times the thread had no
// core.
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
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

/// The operating system's statistics of the calling thread.
struct Scheduled {
  int64_t sleeps = 0;
  double queued_seconds = 0;  ///< the thread was runnable, but another thread ran

  static Scheduled Now() {
    rusage usage{};
    getrusage(RUSAGE_THREAD, &usage);
    std::ifstream file("/proc/thread-self/schedstat");
    uint64_t ran = 0, queued = 0;
    file >> ran >> queued;
    return {usage.ru_nvcsw, 1e-9 * static_cast<double>(queued)};
  }
};

/// Returns for how many seconds of a call its thread had no core: another thread ran on the core,
/// or the host of a virtual machine ran something else on it. If the thread also slept during the
/// call, for example while it waited for a lock, counts only the seconds in which another thread
/// ran.
double TakenSeconds(double wall, double cpu, const Scheduled& before, const Scheduled& after) {
  if (after.sleeps == before.sleeps) return std::max(0.0, wall - cpu);
  return std::min(wall, after.queued_seconds - before.queued_seconds);
}

/// The times when a call began and ended, and for how many of these seconds its thread had no core
/// (`TakenSeconds`).
struct Stop {
  double begin, end, taken;
};

/// The calls of one thread during which the thread had no core for more than 1 ms. Other threads
/// may read them after this thread has ended.
class WriterWatch {
 public:
  WriterWatch() { stops_.reserve(10'000); }

  template <typename Call>
  void Time(const Call& call) {
    const Scheduled before = Scheduled::Now();
    const double cpu = CpuSeconds(), begin = WallSeconds();
    call();
    const double end = WallSeconds();
    const double taken = TakenSeconds(end - begin, CpuSeconds() - cpu, before, Scheduled::Now());
    if (taken > 1e-3 && stops_.size() < stops_.capacity()) stops_.push_back({begin, end, taken});
  }
  const std::vector<Stop>& stops() const { return stops_; }

 private:
  std::vector<Stop> stops_;
};

/// Measures the duration of each call of one thread and, for long calls, how long the thread had no
/// core.
class StallWatch {
 public:
  StallWatch() {
    calls_.reserve(4'000'000);
    long_.reserve(100'000);
  }

  bool full() const { return calls_.size() == calls_.capacity(); }

  template <typename Call>
  void Time(const Call& call) {
    const double cpu = CpuSeconds(), begin = WallSeconds();
    call();
    const double end = WallSeconds();
    calls_.push_back(1e3 * (end - begin));
    const bool is_long = end - begin > 1e-3;
    if (!is_long && calls_.size() % 64 != 0) return;
    const Scheduled before = scheduled_;
    scheduled_ = Scheduled::Now();
    if (!is_long || long_.size() == long_.capacity()) return;
    long_.push_back(
        {begin, end, TakenSeconds(end - begin, CpuSeconds() - cpu, before, scheduled_)});
  }

  /// Returns the quantile `part` of the call times in milliseconds: this fraction of the calls took
  /// less time.
  double At(double part) {
    std::sort(calls_.begin(), calls_.end());
    return calls_[static_cast<size_t>(part * static_cast<double>(calls_.size() - 1))];
  }
  size_t calls() const { return calls_.size(); }

  /// Returns the longest call in milliseconds. Does not count the time in which the call's thread
  /// had no core, or in which the writer had none, because the call may have waited for the writer.
  double LongestOwn(const std::vector<Stop>& writer) const {
    double longest = std::min(1.0, calls_.back());
    for (const Stop& call : long_) {
      double own = call.end - call.begin - call.taken;
      for (const Stop& stop : writer) {
        const double both = std::min(call.end, stop.end) - std::max(call.begin, stop.begin);
        if (both > 0) own -= std::min(both, stop.taken);
      }
      longest = std::max(longest, 1e3 * own);
    }
    return longest;
  }

 private:
  std::vector<double> calls_;
  std::vector<Stop> long_;
  Scheduled scheduled_;
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

void StallSection(const Options& options, Report* report) {
  enum Grows { kThisTable, kAnotherTable, kNoTable };
  constexpr std::array<const char*, 3> kNames = {"lookups of the table that grows",
                                                 "lookups of another table",
                                                 "no table: 5 us of reading the clock"};
  const uint64_t rows = options.RowsOf(options.stall_rows, kDim), first = rows / 20;
  const std::vector<int64_t> there = KeysFrom(0, first);
  const std::vector<int64_t> to_come = KeysFrom(first, rows - first);
  const std::vector<char> values(kBatch * kRowBytes, 1);
  report->Section("Lookups of 256 keys while a table grows from " + std::to_string(first) + " to " +
                      std::to_string(rows) + " rows (million keys/s; ms of wall time)",
                  {"what is timed", "keys", "median", "99 %", "99.9 %", "longest",
                   "without what the machine took of the lookup", "nor of the writer"});
  std::array<std::vector<double>, 3> longest, longest_own;
  for (int round = 0; round < 3 * options.fill_rounds; ++round) {
    // The three cases run in turn. In the last two, the measured table does not grow: their times
    // show the delays that the machine causes.
    const Grows grows = static_cast<Grows>(round % 3);
    LetTheHostFinish();
    Ours read(kDim, 0), other(kDim, 0);
    read.Upsert(there, kBatch, values.data());
    other.Upsert(there, kBatch, values.data());
    std::atomic<bool> done{false};
    StallWatch watch;
    std::thread reader([&] {
      std::mt19937_64 random(5);
      std::vector<int64_t> batch(kLookup);
      std::vector<char> out(kLookup * kRowBytes, 1);
      while (!done && !watch.full()) {
        if (grows == kNoTable) {
          watch.Time([] {
            for (const double start = WallSeconds(); WallSeconds() < start + 5e-6;) {
            }
          });
          continue;
        }
        for (int64_t& key : batch) key = there[random() % there.size()];
        watch.Time([&] { read.Find(batch, kLookup, out.data()); });
      }
    });
    WriterWatch writer;
    const double start = WallSeconds();
    if (grows == kNoTable) {
      TakeMemory(rows * kRowBytes);
    } else {
      engine::Table& table = (grows == kThisTable ? read : other).table();
      ForBatches(to_come.size(), kBatch, [&](size_t at, size_t count) {
        writer.Time([&] {
          OkOrExit(table.InsertOrAssign({to_come.data() + at, nullptr, count},
                                        {values.data(), nullptr}, nullptr));
        });
      });
    }
    const double seconds = WallSeconds() - start;
    done = true;
    reader.join();
    const double most = watch.At(1);
    // Deduct the time in which the writer had no core only if the lookups may have waited for the
    // writer, that is, if it writes to the table that they read.
    const double own = watch.LongestOwn(grows == kThisTable ? writer.stops() : std::vector<Stop>());
    const double keys = grows == kNoTable ? 0 : static_cast<double>(watch.calls() * kLookup);
    report->Row({kNames[grows], Number(keys / seconds / 1e6), Number(watch.At(0.5), 3),
                 Number(watch.At(0.99), 3), Number(watch.At(0.999), 3), Number(most, 2),
                 Number(watch.LongestOwn({}), 2), Number(own, 2)});
    longest[grows].push_back(most);
    longest_own[grows].push_back(own);
  }
  report->Bar("longest stall while growing (median of runs)", Median(longest[kThisTable]), 20, 5,
              true, " ms");
  report->Bar("the same without what the machine took", Median(longest_own[kThisTable]), 20, 5,
              true, " ms");
}

void EvictSection(const Options& options, Report* report) {
  constexpr size_t kRowsPerWrite = 512, kSmallDim = 4;
  const std::vector<char> values(kBatch * kSmallDim * sizeof(float), 1);
  report->Section("Writes of 512 new keys to a full table (ms)",
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
    StallWatch watch;
    std::vector<double> cpu_ms;
    ForBatches(fresh.size(), kRowsPerWrite, [&](size_t at, size_t count) {
      const double cpu = CpuSeconds();
      watch.Time([&] {
        OkOrExit(table->InsertOrAssign({fresh.data() + at, nullptr, count},
                                       {values.data(), nullptr}, nullptr));
      });
      cpu_ms.push_back(1e3 * (CpuSeconds() - cpu));
    });
    std::sort(cpu_ms.begin(), cpu_ms.end());
    const double mean_cpu =
        std::accumulate(cpu_ms.begin(), cpu_ms.end(), 0.0) / static_cast<double>(cpu_ms.size());
    const double longest_cpu = cpu_ms.back();
    report->Row({std::to_string(rows), Number(watch.At(0.5), 3), Number(watch.At(1)),
                 Number(mean_cpu, 3), Number(cpu_ms[cpu_ms.size() * 99 / 100], 3),
                 Number(longest_cpu)});
    report->Bar("longest write to a full table of " + std::to_string(rows) + " rows, CPU time",
                longest_cpu, 5, 1, true, " ms");
  }
}

}  // namespace de::bench
