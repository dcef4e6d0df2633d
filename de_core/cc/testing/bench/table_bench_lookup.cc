// Measures lookups (workloads W2 to W5) and upserts of present keys, also with two threads.
#include <cmath>
#include <cstdio>
#include <random>

#include "de_core/cc/testing/bench/table_bench.h"
#include "de_core/cc/testing/bench/table_bench_peers.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::bench {
namespace {

using engine::Mix64;

constexpr size_t kFillBatch = 16384;

/// Draws row numbers 0 … n - 1 from a Zipf distribution with exponent s > 1 by rejection-inversion
/// (W. Hörmann, G. Derflinger, "Rejection-inversion to generate variates from monotone discrete
/// distributions", 1996).
class Zipf {
 public:
  Zipf(uint64_t n, double s) : s_(s), low_(H(1.5) - 1), high_(H(static_cast<double>(n) + 0.5)) {}

  uint64_t Draw(std::mt19937_64* random) const {
    std::uniform_real_distribution<double> uniform(low_, high_);
    while (true) {
      const double u = uniform(*random);
      const double x = HInverse(u);
      const double k = std::floor(x + 0.5);
      if (u >= H(k + 0.5) - std::pow(k, -s_)) return static_cast<uint64_t>(k) - 1;
    }
  }

 private:
  double H(double x) const { return std::pow(x, 1 - s_) / (1 - s_); }
  double HInverse(double u) const { return std::pow((1 - s_) * u, 1 / (1 - s_)); }

  double s_, low_, high_;
};

/// One table of `rows` rows of kDim floats, and the same rows in the maps that it is compared with.
template <size_t kDim>
class LookupBench {
 public:
  static constexpr size_t kRowBytes = kDim * sizeof(float);

  LookupBench(const Options& options, std::vector<int64_t> keys, bool with_peers)
      : options_(options),
        keys_(std::move(keys)),
        out_(Largest(options.batches) * kRowBytes),
        ours_(kDim, keys_.size()),
        memory_(keys_.size()) {
    std::memset(out_.data(), 1, out_.bytes());
    ours_.Upsert(keys_, kFillBatch, out_.data());
    if (!with_peers) return;
    if (Cuckoo<kDim>::kThere) {
      cuckoo_ = std::make_unique<Cuckoo<kDim>>(keys_.size());
      cuckoo_->Upsert(keys_, out_.data());
    }
    if (Flat<AbslMap>::kThere) absl_ = std::make_unique<Flat<AbslMap>>(keys_);
    if (Flat<BoostMap>::kThere) boost_ = std::make_unique<Flat<BoostMap>>(keys_);
  }

  /// Draws the queries of a round. `draw(random)` returns a row number; numbers >= `rows` mean an
  /// absent key.
  template <typename Draw>
  Queries Ask(const Draw& draw) const {
    Queries queries;
    std::mt19937_64 random(3);
    for (uint64_t i = 0; i < options_.queries; ++i) {
      const uint64_t row = draw(&random);
      const bool hit = row < keys_.size();
      queries.keys.push_back(hit ? keys_[row] : static_cast<int64_t>(Mix64(row + (1ULL << 40))));
      queries.rows.push_back(static_cast<uint32_t>(hit ? row : row % keys_.size()));
    }
    return queries;
  }

  Queries Uniform() const {
    return Ask([&](std::mt19937_64* random) { return (*random)() % keys_.size(); });
  }

  Queries Zipfian(double s) const {
    const Zipf zipf(keys_.size(), s);
    // Without this multiplication, the most frequent rows would be neighbors in memory.
    return Ask([&, zipf](std::mt19937_64* random) {
      return zipf.Draw(random) * 2654435761U % keys_.size();
    });
  }

  /// Runs all measurements with these queries and prints a row.
  void Run(const Queries& queries, size_t batch, bool writes, const std::string& label) {
    if (!tuned_) memory_.Tune(queries, 4096, out_.data());
    tuned_ = true;
    char* const out = out_.data();
    const auto n = static_cast<double>(queries.keys.size());
    Rounds rounds;
    rounds.Add("lookup", n, [&] { ours_.Find(queries.keys, batch, out); });
    if (cuckoo_ != nullptr) {
      rounds.Add("libcuckoo", n, [&] { cuckoo_->Find(queries.keys, batch, out); });
    }
    const auto add_flat = [&](const std::string& name, const auto* flat) {
      if (flat == nullptr) return;
      rounds.Add(name, n, [&, flat] {
        flat->template Find<kRowBytes>(queries.keys, batch, memory_.rows(), out);
      });
    };
    add_flat("absl", absl_.get());
    add_flat("boost", boost_.get());
    rounds.Add("gather", n, [&] { memory_.Gather(queries, batch, out); });
    rounds.Add("probe", n, [&] { memory_.Probe(queries, batch, out); });
    engine::PoolThreads two(2);
    if (writes) {
      rounds.Add("upsert", n, [&] { ours_.Upsert(queries.keys, batch, out); });
      rounds.Add("two lookup", n, [&] { ours_.Find(queries.keys, batch, out, &two); });
      rounds.Add("two upsert", n, [&] { ours_.Upsert(queries.keys, batch, out, &two); });
    }
    rounds.Run(options_.rounds);
    PrintRow({label,
              std::to_string(kDim),
              std::to_string(keys_.size()),
              std::to_string(batch),
              Number(rounds.Rate("lookup")),
              Number(rounds.Rate("upsert")),
              Number(rounds.Rate("libcuckoo")),
              Number(rounds.Rate("absl")),
              Number(rounds.Rate("boost")),
              Number(rounds.Rate("gather")),
              Number(rounds.Rate("probe")),
              Number(rounds.Ratio("lookup", "libcuckoo")),
              Number(rounds.Ratio("lookup", "absl")),
              Number(rounds.Ratio("lookup", "boost")),
              Number(rounds.Ratio("lookup", "probe")),
              Number(rounds.Ratio("upsert", "lookup")),
              Number(rounds.Rate("two lookup", /*wall=*/true)),
              Number(rounds.Rate("two upsert", /*wall=*/true)),
              Number(rounds.Ratio("two lookup", "lookup", /*wall=*/true)),
              Number(rounds.Ratio("two upsert", "upsert", /*wall=*/true))});
  }

  Ours& ours() { return ours_; }
  const std::vector<int64_t>& keys() const { return keys_; }
  char* out() { return out_.data(); }

 private:
  static size_t Largest(const std::vector<size_t>& batches) {
    size_t largest = 131072;
    for (const size_t batch : batches) largest = batch > largest ? batch : largest;
    return largest;
  }

  const Options& options_;
  std::vector<int64_t> keys_;
  engine::PageMemory out_;
  Ours ours_;
  Memory<kDim> memory_;
  std::unique_ptr<Cuckoo<kDim>> cuckoo_;
  std::unique_ptr<Flat<AbslMap>> absl_;
  std::unique_ptr<Flat<BoostMap>> boost_;
  bool tuned_ = false;
};

const std::vector<std::string> kColumns = {"queries",
                                           "dim",
                                           "rows",
                                           "batch",
                                           "lookup",
                                           "upsert",
                                           "libcuckoo",
                                           "absl",
                                           "boost",
                                           "gather",
                                           "probe",
                                           "lookup / libcuckoo",
                                           "lookup / absl",
                                           "lookup / boost",
                                           "lookup / probe",
                                           "upsert / lookup",
                                           "lookup by two (wall)",
                                           "upsert by two (wall)",
                                           "lookup: two / one thread",
                                           "upsert: two / one thread"};

bool Fits(uint64_t bytes, const std::string& what) {
  // The other maps need about twice the bytes of the rows, and all of them exist at the same time.
  if (bytes * 5 < AvailableBytes()) return true;
  std::printf("\n%s left out: too little free memory.\n", what.c_str());
  return false;
}

void W2(const Options& options) {
  PrintSection("W2: 80 % of queries to 20 % of keys (million/s)", kColumns);
  const uint64_t rows = options.RowsOf(options.skewed_rows, 32);
  if (!Fits(rows * 128, "W2")) return;
  LookupBench<32> bench(options, KeysFrom(0, rows), true);
  const Queries queries = bench.Ask([&](std::mt19937_64* random) {
    const bool hot = (*random)() % 5 != 0;
    return (*random)() % (hot ? rows / 5 : rows);
  });
  bench.Run(queries, 131072, true, "80/20");
}

/// Workloads W4 (Zipf-distributed keys) and W5 (absent keys), on the table of W3 at dim 32.
void OtherQueries(const Options& options, LookupBench<32>* bench) {
  PrintSection("W4, W5: Zipf, and misses (million/s)", kColumns);
  for (const double s : {1.05, 1.2}) {
    bench->Run(bench->Zipfian(s), 131072, false, "Zipf " + Number(s));
  }
  const uint64_t rows = bench->keys().size();
  const auto with_hits = [&](uint64_t percent) {
    return bench->Ask([&](std::mt19937_64* random) {
      const bool hit = (*random)() % 100 < percent;
      return (*random)() % rows + (hit ? 0 : rows);
    });
  };
  for (const uint64_t percent : {100, 90, 50, 0}) {
    bench->Run(with_hits(percent), 131072, false, std::to_string(percent) + " % hits");
  }

  engine::InitializerOptions initializer;
  const Queries all = with_hits(100), half = with_hits(50);
  PrintSection("W5: half misses with a random initializer (million/s)",
               {"initializer", "all hits", "half misses", "half misses / all hits"});
  for (const auto& [name, kind] :
       {std::pair("uniform", engine::InitializerOptions::Kind::kUniform),
        std::pair("normal", engine::InitializerOptions::Kind::kNormal)}) {
    initializer.kind = kind;
    initializer.a = kind == engine::InitializerOptions::Kind::kUniform ? -0.05 : 0;
    initializer.b = 0.05;
    Ours random(32, rows, initializer);
    random.Upsert(bench->keys(), kFillBatch, bench->out());
    Rounds rounds;
    const auto n = static_cast<double>(all.keys.size());
    rounds.Add("all", n, [&] { random.Find(all.keys, 131072, bench->out()); });
    rounds.Add("half", n, [&] { random.Find(half.keys, 131072, bench->out()); });
    rounds.Run(options.rounds);
    PrintRow({name, Number(rounds.Rate("all")), Number(rounds.Rate("half")),
              Number(rounds.Ratio("half", "all"))});
  }
}

template <size_t kDim>
void W3(const Options& options, uint64_t wanted, bool large) {
  const uint64_t rows = options.RowsOf(wanted, kDim);
  if (!Fits(rows * kDim * 4, "W3 at dim " + std::to_string(kDim))) return;
  LookupBench<kDim> bench(options, KeysFrom(0, rows), true);
  const Queries queries = bench.Uniform();
  for (const size_t batch : options.batches) {
    bench.Run(queries, batch, true, "uniform");
  }
  if constexpr (kDim == 32) {
    if (large && options.Wants("w4")) OtherQueries(options, &bench);
  }
}

void W3Of(size_t dim, const Options& options, uint64_t rows, bool large) {
  switch (dim) {
    case 8:
      return W3<8>(options, rows, large);
    case 16:
      return W3<16>(options, rows, large);
    case 32:
      return W3<32>(options, rows, large);
    case 64:
      return W3<64>(options, rows, large);
    case 128:
      return W3<128>(options, rows, large);
    default:
      std::printf("\nNo such dim: %zu.\n", dim);
  }
}

}  // namespace

void SmallBatchSection(const Options& options) {
  constexpr size_t kDim = 16, kMost = 4096;
  Ours table(kDim, options.small_rows);
  const std::vector<int64_t> keys = KeysFrom(0, options.small_rows);
  const std::vector<int64_t> hot(keys.begin(), keys.begin() + kMost);
  std::vector<char> rows(kMost * kDim * sizeof(float), 1);
  table.Upsert(keys, kMost, rows.data());
  const std::vector<size_t> sizes = {1, 4, 16, 64, 256, kMost};
  Rounds rounds;
  for (const size_t size : sizes) {
    const auto calls = static_cast<double>(hot.size() / size);
    rounds.Add("lookup " + std::to_string(size), calls,
               [&, size] { table.Find(hot, size, rows.data()); });
    rounds.Add("upsert " + std::to_string(size), calls,
               [&, size] { table.Upsert(hot, size, rows.data()); });
  }
  rounds.Run(20 * options.rounds);
  PrintSection("Cached keys, dim " + std::to_string(kDim) + ": microseconds per batch",
               {"keys", "lookup", "upsert"});
  for (const size_t size : sizes) {
    const auto time = [&](const std::string& verb) {
      return Number(1 / rounds.Rate(verb + std::to_string(size)), 3);
    };
    PrintRow({std::to_string(size), time("lookup "), time("upsert ")});
  }
}

void LookupSections(const Options& options) {
  if (options.Wants("w2")) W2(options);
  if (!options.Wants("w3") && !options.Wants("w4")) return;
  for (const size_t dim : options.dims) {
    PrintSection("W3: uniform hits, dim " + std::to_string(dim) + " (million/s)", kColumns);
    if (options.Wants("w3") || dim == 32) W3Of(dim, options, options.rows, true);
  }
  if (!options.Wants("w3")) return;
  PrintSection("W3: uniform hits of a small table (million/s)", kColumns);
  for (const size_t dim : options.dims) W3Of(dim, options, options.small_rows, false);
}

}  // namespace de::bench
