// Training steps of a table whose memory holds a part of its rows, beside the disk's own rates.
// Rows have 64 floats and Adam's slots. A step looks a batch of ids up and applies gradients.
//
//   tiered_table_bench DIRECTORY [NAME=NUMBER …]
//
// Names: rows, batch, steps, memory (the part of the rows that fits), zipf (the exponent of the
// ids' distribution; 0: uniform), ahead (1: a thread reads the rows of the next batch during a
// step, as de.prefetch_rows does), threads (of each verb, as in an op).
//
// The disk's rates are measured before and after the steps, by random reads of 4 KiB with the same
// queue depth and by writes of 1 MiB. The time that the disk needs for a step is the number of its
// reads and written bytes divided by these rates.
#include <sys/resource.h>

#include <cmath>
#include <ctime>
#include <map>
#include <thread>

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/tier/disk_rows.h"
#include "de_core/cc/engine/tier/tiered_table.h"
#include "de_core/cc/testing/bench/disk_bench.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine {
namespace {

using testing::Check;
using testing::Median;
using testing::PlainFile;
using testing::Quantile;
using testing::Seconds;

constexpr size_t kDim = 64;
constexpr uint32_t kDepth = 128;

struct Settings {
  std::map<std::string, double> numbers = {{"rows", 400'000}, {"batch", 16'384}, {"steps", 1000},
                                           {"memory", 0.1},   {"zipf", 1.05},    {"ahead", 0},
                                           {"threads", 2}};
  size_t Size(const char* name) const { return static_cast<size_t>(numbers.at(name)); }
};

/// Draws ids: rank r has the probability 1 / (r + 1) ^ exponent.
class Ids {
 public:
  Ids(size_t count, double exponent) : sums_(count) {
    double sum = 0;
    for (size_t i = 0; i < count; ++i) {
      sums_[i] = sum += std::pow(static_cast<double>(i + 1), -exponent);
    }
  }
  void Draw(std::mt19937_64* random, std::vector<int64_t>* ids) const {
    std::uniform_real_distribution<double> below(0, sums_.back());
    for (int64_t& id : *ids) {
      id = std::upper_bound(sums_.begin(), sums_.end() - 1, below(*random)) - sums_.begin();
    }
  }

 private:
  std::vector<double> sums_;
};

struct DiskRates {
  std::vector<double> reads;  ///< per second
  std::vector<double> bytes;  ///< written per second
  void Measure(const std::string& directory) {
    PlainFile plain(directory + "/plain", uint64_t{512} << 20);
    bytes.push_back(plain.write_rate());
    BlockReader reader(kDepth);
    std::mt19937_64 random(2);
    for (size_t round = 0; round < 20; ++round) {
      const double begin = Seconds();
      plain.Read(&reader, 4096, &random);
      reads.push_back(4096 / (Seconds() - begin));
    }
  }
};

void Fill(TableBackend* table, const Settings& settings) {
  constexpr size_t kFilled = 4096;
  std::vector<float> values(kFilled * kDim, 0.5F);
  for (size_t at = 0; at < settings.Size("rows"); at += kFilled) {
    std::vector<int64_t> keys;
    for (size_t i = at; i < std::min(settings.Size("rows"), at + kFilled); ++i) {
      keys.push_back(static_cast<int64_t>(i));
    }
    Check(table->InsertOrAssign({keys.data(), nullptr, keys.size()},
                                {reinterpret_cast<const char*>(values.data()), nullptr}, nullptr));
  }
}

/// CPU time of this process.
double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Steps {
  std::vector<double> seconds, lookups, cpu;
  uint64_t ids = 0;
};

void ReadAhead(const TableBackend& table, const std::vector<int64_t>& ids) {
  std::vector<float> rows(ids.size() * kDim);
  Check(table.Find({ids.data(), nullptr, ids.size()},
                   {reinterpret_cast<char*>(rows.data()), nullptr}, nullptr, nullptr));
}

Steps Train(TableBackend* table, const Ids& ids, const Settings& settings, size_t count) {
  const OptimizerRule* const adam = FindRule("adam");
  const std::vector<double> hyper = {1e-3, 0.9, 0.999, 1e-7, 0.9, 0.999, 0};
  std::mt19937_64 random(count);
  std::vector<int64_t> keys(settings.Size("batch")), next(keys.size());
  std::vector<float> rows(keys.size() * kDim), grads(keys.size() * kDim, 0.01F);
  const Keys batch{keys.data(), nullptr, keys.size()};
  Steps steps;
  PoolThreads pool(std::max<size_t>(1, settings.Size("threads")));
  ids.Draw(&random, &next);
  for (size_t step = 0; step < count; ++step) {
    keys = next;
    ids.Draw(&random, &next);
    std::thread ahead;
    if (settings.Size("ahead") > 0) ahead = std::thread([&] { ReadAhead(*table, next); });
    const double begin = Seconds(), used = CpuSeconds();
    Check(
        table->FindToTrain(batch, {reinterpret_cast<char*>(rows.data()), nullptr}, nullptr, &pool));
    steps.lookups.push_back(Seconds() - begin);
    Check(table->Apply(*adam, "adam", hyper, batch, grads.data(), &pool, nullptr));
    if (ahead.joinable()) ahead.join();
    steps.seconds.push_back(Seconds() - begin);
    steps.cpu.push_back(CpuSeconds() - used);
    steps.ids += keys.size();
  }
  return steps;
}

/// Greatest resident memory so far, in MB.
double PeakMemory() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return static_cast<double>(used.ru_maxrss) / 1e3;
}

void Run(const std::string& directory, const Settings& settings) {
  TableOptions options;
  options.dim = kDim;
  DiskRates rates;
  rates.Measure(directory);
  DiskOptions disk_options;
  disk_options.directory = directory + "/rows";
  disk_options.depth = kDepth;
  std::unique_ptr<DiskRows> cold;
  Check(DiskRows::Create(disk_options, KeyType::kInt64, &cold));
  const auto& disk = static_cast<const DiskRows&>(*cold);
  constexpr double kRowBytes = kDim * 4 * 3 + 16 + 24;
  const auto memory = static_cast<uint64_t>(settings.numbers.at("memory") * kRowBytes *
                                            static_cast<double>(settings.Size("rows")));
  std::unique_ptr<TableBackend> table;
  Check(TieredTable::Create(options, memory, std::move(cold), &table));
  const Ids ids(settings.Size("rows"), settings.numbers.at("zipf"));
  Fill(table.get(), settings);
  Train(table.get(), ids, settings, settings.Size("steps") / 10 + 1);
  const TierStats before = *table->Stats().tier;
  const uint64_t written = disk.written_bytes();
  const double peak = PeakMemory();
  const Steps steps = Train(table.get(), ids, settings, settings.Size("steps"));
  const TierStats after = *table->Stats().tier;
  std::printf(
      "memory, MB: bound %.0f, index of the disk %.0f; resident at most %.0f before the steps, "
      "%.0f after\n",
      static_cast<double>(memory) / 1e6, static_cast<double>(after.filter_bytes) / 1e6, peak,
      PeakMemory());
  rates.Measure(directory);
  double total = 0;
  for (const double seconds : steps.seconds) total += seconds;
  const auto count = static_cast<double>(steps.seconds.size());
  const double reads = static_cast<double>(after.reads - before.reads) / count;
  const double bytes = static_cast<double>(disk.written_bytes() - written) / count;
  const double needed = reads / Median(rates.reads) + bytes / Median(rates.bytes);
  std::printf("disk: %.0f reads/s, writes %.0f MB/s\n", Median(rates.reads),
              Median(rates.bytes) / 1e6);
  std::printf(
      "steps of %zu ids, ms: mean %.1f, median %.1f, p99 %.1f, longest %.1f; lookups "
      "median %.1f, longest %.1f; CPU median %.1f, longest %.1f\n",
      settings.Size("batch"), 1e3 * total / count, 1e3 * Median(steps.seconds),
      1e3 * Quantile(steps.seconds, 0.99), 1e3 * Quantile(steps.seconds, 1),
      1e3 * Median(steps.lookups), 1e3 * Quantile(steps.lookups, 1), 1e3 * Median(steps.cpu),
      1e3 * Quantile(steps.cpu, 1));
  std::printf(
      "per step: %.0f rows in (%.1f %% of ids), %.0f rows out, %.0f reads, %.2f MB written; "
      "the disk needs %.1f ms for them, %.2f of the step\n",
      static_cast<double>(after.rows_in - before.rows_in) / count,
      100 * static_cast<double>(after.rows_in - before.rows_in) / static_cast<double>(steps.ids),
      static_cast<double>(after.rows_out - before.rows_out) / count, reads, bytes / 1e6,
      1e3 * needed, needed / (total / count));
}

}  // namespace
}  // namespace de::engine

int main(int argc, char** argv) {
  de::engine::Settings settings;
  for (int i = 2; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    const auto found = settings.numbers.find(argument.substr(0, equals));
    if (equals == std::string::npos || found == settings.numbers.end())
      argc = 0;
    else
      found->second = std::strtod(argument.c_str() + equals + 1, nullptr);
  }
  if (argc < 2) {
    std::fprintf(stderr, "usage: tiered_table_bench DIRECTORY [NAME=NUMBER ...]\n");
    return 2;
  }
  de::engine::Run(argv[1], settings);
  return 0;
}
