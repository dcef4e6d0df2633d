// Counts how often threads wait for each other's locks, and measures what a small batch costs
// beside its keys.
#include <atomic>
#include <thread>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/table/shard_lock.h"
#include "de_core/cc/testing/bench/table_bench.h"
#include "de_core/cc/testing/bench/table_bench_peers.h"

namespace de::bench {
namespace {

using engine::LockWaits;

constexpr size_t kDim = 16;
constexpr uint64_t kRows = 200'000;
constexpr size_t kMost = 4096;  ///< keys of the largest batch

struct Mix {
  const char* name;
  size_t writes;  ///< of eight batches
};

/// Runs `threads` threads with `batches` batches each. Returns the sum of their waits.
LockWaits WaitsOf(Ours* table, const std::vector<int64_t>& keys, size_t threads, size_t batch,
                  size_t batches, size_t writes) {
  std::atomic<uint64_t> waited{0}, spins{0}, divided{0};
  std::atomic<size_t> ready{0};
  const auto run = [&](size_t thread) {
    std::vector<int64_t> asked(batch);
    std::vector<char> rows(batch * kDim * sizeof(float), 1);
    ++ready;
    while (ready.load() < threads) std::this_thread::yield();
    const LockWaits before = engine::LockWaitsOfThisThread();
    for (size_t i = 0; i < batches; ++i) {
      const uint64_t first = engine::Mix64(thread * batches + i) % (keys.size() - batch);
      for (size_t j = 0; j < batch; ++j) asked[j] = keys[first + j];
      if (i % 8 < writes) {
        table->Upsert(asked, batch, rows.data());
      } else {
        table->Find(asked, batch, rows.data());
      }
    }
    const LockWaits& after = engine::LockWaitsOfThisThread();
    waited += after.waited - before.waited;
    spins += after.spins - before.spins;
    divided += after.divided - before.divided;
  };
  std::vector<std::thread> all;
  for (size_t thread = 0; thread < threads; ++thread) all.emplace_back(run, thread);
  for (std::thread& thread : all) thread.join();
  return {waited, spins, divided};
}

void Waits(const Options& options, Ours* table, const std::vector<int64_t>& keys, Report* report) {
  report->Section("Lock waits, all threads on one table of " + std::to_string(kRows) +
                      " rows of dim " + std::to_string(kDim) + ", per 1,000 batches",
                  {"batches", "keys", "threads", "waited", "spins", "divided by shard"});
  for (const Mix& mix : {Mix{"upserts", 8}, Mix{"half lookups", 4}, Mix{"lookups", 0}}) {
    for (const size_t batch : {size_t{16}, size_t{256}, kMost}) {
      for (const size_t threads : {2, 4, 8, 16}) {
        const size_t batches = (options.quick ? 100'000 : 20'000'000) / (batch + 240) / threads;
        const LockWaits waits = WaitsOf(table, keys, threads, batch, batches, mix.writes);
        const auto per = [&](uint64_t count) {
          return Number(1e3 * static_cast<double>(count) / static_cast<double>(batches * threads),
                        1);
        };
        report->Row({mix.name, std::to_string(batch), std::to_string(threads), per(waits.waited),
                     per(waits.spins), per(waits.divided)});
      }
    }
  }
}

void SmallBatches(const Options& options, Ours* table, const std::vector<int64_t>& keys,
                  Report* report) {
  const std::vector<int64_t> hot(keys.begin(), keys.begin() + kMost);
  std::vector<char> rows(kMost * kDim * sizeof(float), 1);
  const std::vector<size_t> sizes = {1, 4, 16, 64, 256, kMost};
  Rounds rounds;
  for (const size_t size : sizes) {
    const auto calls = static_cast<double>(hot.size() / size);
    rounds.Add("lookup " + std::to_string(size), calls,
               [&, size] { table->Find(hot, size, rows.data()); });
    rounds.Add("upsert " + std::to_string(size), calls,
               [&, size] { table->Upsert(hot, size, rows.data()); });
  }
  rounds.Run(20 * options.rounds);
  report->Section("Cached keys, dim " + std::to_string(kDim) + ": microseconds per batch",
                  {"keys", "lookup", "upsert"});
  for (const size_t size : sizes) {
    const auto time = [&](const std::string& verb) {
      return Number(1 / rounds.Rate(verb + std::to_string(size)), 3);
    };
    report->Row({std::to_string(size), time("lookup "), time("upsert ")});
  }
}

}  // namespace

void LocksSection(const Options& options, Report* report) {
  Ours table(kDim, kRows);
  const std::vector<int64_t> keys = KeysFrom(0, kRows);
  const std::vector<char> values(kMost * kDim * sizeof(float), 1);
  table.Upsert(keys, kMost, values.data());
  SmallBatches(options, &table, keys, report);
  Waits(options, &table, keys, report);
}

}  // namespace de::bench
