// Measures filling a table, and its memory.
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/testing/bench/table_bench.h"
#include "de_core/cc/testing/bench/table_bench_peers.h"

namespace de::bench {
namespace {

using engine::Mix64;

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

}  // namespace de::bench
