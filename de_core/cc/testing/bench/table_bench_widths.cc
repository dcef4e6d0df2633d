// Measures lookups, upserts and optimizer steps at row widths that have no special code.
#include <map>
#include <memory>

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/testing/bench/table_bench.h"
#include "de_core/cc/testing/bench/table_bench_peers.h"

namespace de::bench {
namespace {

constexpr size_t kBatch = 131072;
constexpr size_t kLeast = 32, kGreatest = 1024;  ///< the range of row bytes to compare with

/// Returns the power of two next to `dim`, at most `dim` if possible, for elements of `size` bytes.
size_t NeighborOf(size_t dim, size_t size) {
  size_t power = kLeast / size;
  while (power * 2 <= dim && power * 2 <= kGreatest / size) power *= 2;
  return power;
}

}  // namespace

void WidthsSection(const Options& options, Report* report) {
  const engine::OptimizerRule& adagrad = *engine::FindRule("adagrad");
  const engine::DType dtype = options.bfloat16 ? engine::DType::kBFloat16 : engine::DType::kFloat32;
  const size_t size = options.bfloat16 ? 2 : 4;
  std::set<size_t> dims(options.dims.begin(), options.dims.end());
  for (const size_t dim : options.dims) dims.insert(NeighborOf(dim, size));
  const uint64_t rows =
      options.RowsOf(options.rows / static_cast<uint64_t>(dims.size()), *dims.rbegin());
  const std::vector<int64_t> keys = KeysFrom(0, rows);
  std::vector<int64_t> queries;
  for (uint64_t i = 0; i < options.queries; ++i) {
    queries.push_back(keys[engine::Mix64(i) % rows]);
  }
  engine::PageMemory values(kBatch * *dims.rbegin() * sizeof(float));
  std::memset(values.data(), 0, values.bytes());
  const auto n = static_cast<double>(queries.size());
  std::map<size_t, std::unique_ptr<Ours>> tables;
  Rounds rounds;
  for (const size_t dim : dims) {
    auto& table = tables[dim] =
        std::make_unique<Ours>(dim, rows, engine::InitializerOptions{}, dtype);
    const std::vector<double> hyper(adagrad.min_hyper, 0.1);
    const auto step = [&rounds, &adagrad, hyper, ours = table.get(),
                       gradients = values.data()](const std::vector<int64_t>& of) {
      ForBatches(of.size(), kBatch, [&](size_t at, size_t count) {
        OkOrExit(ours->table().Apply(adagrad, "bench", hyper, {of.data() + at, nullptr, count},
                                     gradients, nullptr));
      });
    };
    table->Upsert(keys, kBatch, values.data());
    step({keys[0]});  // adds the slots
    const std::string name = std::to_string(dim);
    rounds.Add("lookup " + name, n,
               [&, ours = table.get()] { ours->Find(queries, kBatch, values.data()); });
    rounds.Add("upsert " + name, n,
               [&, ours = table.get()] { ours->Upsert(queries, kBatch, values.data()); });
    rounds.Add("step " + name, n, [&, step] { step(queries); });
  }
  rounds.Run(options.rounds);
  report->Section("Widths: " + std::to_string(rows) + " rows of " + std::string(NameOf(dtype)) +
                      " with Adagrad's slot, uniform hits, batch " + std::to_string(kBatch) +
                      " (million/s; bytes per second beside the power of two)",
                  {"dim", "lookup", "upsert", "step", "power of two", "lookup bytes",
                   "upsert bytes", "step bytes"});
  for (const size_t dim : dims) {
    const std::string name = std::to_string(dim);
    const size_t power = NeighborOf(dim, size);
    std::vector<std::string> cells = {name};
    for (const std::string verb : {"lookup ", "upsert ", "step "}) {
      cells.push_back(Number(rounds.Rate(verb + name)));
    }
    cells.push_back(std::to_string(power));
    for (const std::string verb : {"lookup ", "upsert ", "step "}) {
      const double bytes = rounds.Ratio(verb + name, verb + std::to_string(power)) *
                           static_cast<double>(dim) / static_cast<double>(power);
      cells.push_back(Number(bytes));
      if (dim > power) report->Bar("dim " + name + ": " + verb + "bytes", bytes, 0.85, 1);
    }
    report->Row(cells);
  }
}

}  // namespace de::bench
