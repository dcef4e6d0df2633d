// Measures lookups and upserts of present keys, also with two threads.
#include <cstdio>
#include <random>

#include "de_core/cc/testing/bench/table_bench.h"
#include "de_core/cc/testing/bench/table_bench_peers.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::bench {
namespace {

constexpr size_t kFillBatch = 16384;

/// One table of `rows` rows of kDim floats, and the same rows in the maps that it is compared with.
template <size_t kDim>
class LookupBench {
 public:
  static constexpr size_t kRowBytes = kDim * sizeof(float);

  LookupBench(const Options& options, std::vector<int64_t> keys)
      : options_(options),
        keys_(std::move(keys)),
        out_(Largest(options.batches) * kRowBytes),
        ours_(kDim, keys_.size()),
        memory_(keys_.size()) {
    std::memset(out_.data(), 1, out_.bytes());
    ours_.Upsert(keys_, kFillBatch, out_.data());
    if (Cuckoo<kDim>::kThere) {
      cuckoo_ = std::make_unique<Cuckoo<kDim>>(keys_.size());
      cuckoo_->Upsert(keys_, out_.data());
    }
    if (Flat<AbslMap>::kThere) absl_ = std::make_unique<Flat<AbslMap>>(keys_);
    if (Flat<BoostMap>::kThere) boost_ = std::make_unique<Flat<BoostMap>>(keys_);
  }

  /// Draws the queries of a round: present keys, all equally likely.
  Queries Uniform() const {
    Queries queries;
    std::mt19937_64 random(3);
    for (uint64_t i = 0; i < options_.queries; ++i) {
      queries.rows.push_back(static_cast<uint32_t>(random() % keys_.size()));
      queries.keys.push_back(keys_[queries.rows.back()]);
    }
    return queries;
  }

  /// Runs all measurements with these queries and prints a row.
  void Run(const Queries& queries, size_t batch) {
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
    rounds.Add("upsert", n, [&] { ours_.Upsert(queries.keys, batch, out); });
    rounds.Add("two lookup", n, [&] { ours_.Find(queries.keys, batch, out, &two); });
    rounds.Add("two upsert", n, [&] { ours_.Upsert(queries.keys, batch, out, &two); });
    rounds.Run(options_.rounds);
    PrintRow({"uniform",
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

template <size_t kDim>
void W3(const Options& options, uint64_t wanted) {
  const uint64_t rows = options.RowsOf(wanted, kDim);
  if (!Fits(rows * kDim * 4, "W3 at dim " + std::to_string(kDim))) return;
  LookupBench<kDim> bench(options, KeysFrom(0, rows));
  const Queries queries = bench.Uniform();
  for (const size_t batch : options.batches) {
    bench.Run(queries, batch);
  }
}

void W3Of(size_t dim, const Options& options, uint64_t rows) {
  switch (dim) {
    case 8:
      return W3<8>(options, rows);
    case 16:
      return W3<16>(options, rows);
    case 32:
      return W3<32>(options, rows);
    case 64:
      return W3<64>(options, rows);
    case 128:
      return W3<128>(options, rows);
    default:
      std::printf("\nNo such dim: %zu.\n", dim);
  }
}

}  // namespace

void LookupSection(const Options& options) {
  for (const size_t dim : options.dims) {
    PrintSection("W3: uniform hits, dim " + std::to_string(dim) + " (million/s)", kColumns);
    W3Of(dim, options, options.rows);
  }
  PrintSection("W3: uniform hits of a small table (million/s)", kColumns);
  for (const size_t dim : options.dims) W3Of(dim, options, options.small_rows);
}

}  // namespace de::bench
