// Measures filling a table, memory use, and adversarial keys.
#include <algorithm>
#include <random>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/testing/bench/table_bench.h"
#include "de_core/cc/testing/bench/table_bench_peers.h"

namespace de::bench {
namespace {

using engine::Mix64;
using engine::UnMix64;

constexpr size_t kBatch = 16384;

/// Fills a table by `upsert`, and after each step divides the resident memory by the bytes of the
/// keys and values. Returns the mean and the largest of these ratios.
template <typename Upsert>
std::array<double, 2> MeanAndWorstMemory(uint64_t rows, size_t dim, const Upsert& upsert) {
  std::vector<int64_t> keys(kBatch);
  std::vector<char> values(kBatch * dim * sizeof(float), 1);
  const uint64_t before = ResidentBytes();
  double sum = 0, worst = 0;
  size_t samples = 0;
  for (uint64_t have = 0; have < rows; have += kBatch) {
    for (size_t i = 0; i < kBatch; ++i) keys[i] = static_cast<int64_t>(Mix64(have + i + 1));
    upsert(keys, values.data());
    // Skip the first steps: there, the sizes of a page and of the smallest block decide the ratio.
    if (have + kBatch < 16 * kBatch) continue;
    const auto payload = static_cast<double>((have + kBatch) * (8 + dim * sizeof(float)));
    const double factor = static_cast<double>(ResidentBytes() - before) / payload;
    sum += factor;
    worst = factor > worst ? factor : worst;
    ++samples;
  }
  return {samples == 0 ? 0 : sum / static_cast<double>(samples), worst};
}

template <size_t kDim>
void MemoryOf(const Options& options) {
  const uint64_t rows = options.RowsOf(options.rows, kDim);
  std::array<double, 2> ours{}, cuckoo{};
  {
    Ours table(kDim, 0);
    ours =
        MeanAndWorstMemory(rows, kDim, [&](const std::vector<int64_t>& keys, const char* values) {
          table.Upsert(keys, kBatch, values);
        });
  }
  if (Cuckoo<kDim>::kThere) {
    Cuckoo<kDim> map(0);
    cuckoo = MeanAndWorstMemory(
        rows / 4, kDim,
        [&](const std::vector<int64_t>& keys, const char* values) { map.Upsert(keys, values); });
  }
  PrintRow({std::to_string(kDim), std::to_string(rows), Number(ours[0]), Number(ours[1]),
            Number(cuckoo[0]), Number(cuckoo[1])});
}

}  // namespace

void FillSection(const Options& options) {
  constexpr size_t kDim = 32;
  const uint64_t rows = options.RowsOf(options.fill_rows, kDim);
  const std::vector<int64_t> keys = KeysFrom(0, rows);
  const std::vector<char> values(kBatch * kDim * sizeof(float), 1);
  const auto n = static_cast<double>(rows);
  // Before each fill, an unmeasured fill uses as much memory. Memory that the operating system
  // hands out for the first time may cost twice as much on one day as on another.
  Rounds rounds;
  const auto add = [&](const std::string& name, const std::function<void()>& fill) {
    rounds.Add(name, n, fill, [fill] {
      LetTheHostFinish();
      fill();
    });
  };
  for (const uint64_t init_size : {uint64_t{0}, rows}) {
    const std::string how = init_size == 0 ? "growing" : "with init_size";
    add(how, [&, init_size] {
      Ours table(kDim, init_size);
      table.Upsert(keys, kBatch, values.data());
    });
    if (!Cuckoo<kDim>::kThere) continue;
    add("libcuckoo " + how, [&, init_size] {
      Cuckoo<kDim> map(init_size);
      map.Upsert(keys, values.data());
    });
  }
  rounds.Run(options.fill_rounds);
  PrintSection("Fill from empty, dim 32, " + std::to_string(rows) + " rows (million/s of CPU)",
               {"growing", "with init_size", "libcuckoo growing", "libcuckoo with init_size",
                "growing / libcuckoo growing", "growing / with init_size"});
  PrintRow({Number(rounds.Rate("growing")), Number(rounds.Rate("with init_size")),
            Number(rounds.Rate("libcuckoo growing")),
            Number(rounds.Rate("libcuckoo with init_size")),
            Number(rounds.Ratio("growing", "libcuckoo growing")),
            Number(rounds.Ratio("growing", "with init_size"))});
}

void MemorySection(const Options& options) {
  PrintSection("Resident memory over keys + values, while growing from empty",
               {"dim", "rows", "average", "worst", "libcuckoo average", "libcuckoo worst"});
  MemoryOf<8>(options);
  MemoryOf<16>(options);
  MemoryOf<32>(options);
  MemoryOf<64>(options);
}

void HostileSection(const Options& options) {
  constexpr size_t kDim = 8;
  const uint64_t n = options.hostile_rows;
  struct Pattern {
    const char* name;
    std::function<uint64_t(uint64_t)> key;
  };
  const std::vector<Pattern> patterns = {
      {"random", [](uint64_t i) { return Mix64(i ^ 0x5555); }},
      {"sequential", [](uint64_t i) { return i; }},
      {"multiples of 2^12", [](uint64_t i) { return i << 12; }},
      {"multiples of 2^32", [](uint64_t i) { return i << 32; }},
      {"multiples of 2^42", [](uint64_t i) { return i << 42; }},
      {"equal low 32 bits", [](uint64_t i) { return Mix64(i) << 32 | 0x1234; }},
      {"all in one shard", [](uint64_t i) { return UnMix64(Mix64(i) >> 4 | 0xbULL << 60); }},
      {"hashes of equal upper 24 bits",
       [](uint64_t i) { return UnMix64(Mix64(i) >> 24 | 0xabcdefULL << 40); }},
      // Anybody can invert the hash. Without a secret seed, these keys would belong to one line.
      {"hashes of equal low 32 bits", [](uint64_t i) { return UnMix64(Mix64(i) << 32); }},
  };
  Rounds rounds;
  std::vector<std::unique_ptr<Ours>> tables;
  std::vector<std::vector<int64_t>> hits, misses;
  const std::vector<char> values(kBatch * kDim * sizeof(float), 1);
  std::vector<char> out(values.size());
  for (const Pattern& pattern : patterns) {
    std::vector<int64_t> keys(n), absent(n);
    for (uint64_t i = 0; i < n; ++i) keys[i] = static_cast<int64_t>(pattern.key(i));
    for (uint64_t i = 0; i < n; ++i) absent[i] = static_cast<int64_t>(pattern.key(n + i));
    std::shuffle(keys.begin(), keys.end(), std::mt19937_64(6));
    hits.push_back(std::move(keys));
    misses.push_back(std::move(absent));
  }
  for (size_t i = 0; i < patterns.size(); ++i) {
    const std::string name = patterns[i].name;
    tables.push_back(std::make_unique<Ours>(kDim, 0));
    tables[i]->Upsert(hits[i], kBatch, values.data());
    std::shuffle(hits[i].begin(), hits[i].end(), std::mt19937_64(7));
    rounds.Add("hit " + name, static_cast<double>(n),
               [&, i] { tables[i]->Find(hits[i], kBatch, out.data()); });
    rounds.Add("miss " + name, static_cast<double>(n),
               [&, i] { tables[i]->Find(misses[i], kBatch, out.data()); });
    rounds.Add("fill " + name, static_cast<double>(n), [&, i] {
      Ours fresh(kDim, 0);
      fresh.Upsert(hits[i], kBatch, values.data());
    });
  }
  WarmMemory(n * 200);
  rounds.Run(options.rounds);
  PrintSection(
      "Keys chosen to hurt, dim 8, " + std::to_string(n) + " rows (million/s, and over random)",
      {"keys", "lookup", "lookup of absent keys", "fill", "lookup ratio", "absent ratio",
       "fill ratio"});
  for (const Pattern& pattern : patterns) {
    const std::string name = pattern.name;
    std::vector<std::string> cells = {name}, ratios;
    for (const std::string what : {"hit ", "miss ", "fill "}) {
      const double ratio = rounds.Ratio(what + name, what + "random");
      cells.push_back(Number(rounds.Rate(what + name)));
      ratios.push_back(Number(ratio));
    }
    cells.insert(cells.end(), ratios.begin(), ratios.end());
    PrintRow(cells);
  }
}

}  // namespace de::bench
