// Nanoseconds per row for each update rule. All rows fit into the CPU cache.
#include <chrono>
#include <cstdio>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "de_core/cc/engine/optimizer/optimizer_rules.h"
#include "de_core/cc/engine/rows/row_layout.h"

namespace {

using de::engine::DType;
using de::engine::OptimizerRule;
using de::engine::RowLayout;

/// Typical settings of any rule: small rates and long averages.
std::vector<double> HyperOf(const OptimizerRule& rule) {
  if (rule.name == "ftrl") return {0.1, -0.5, 0.01, 0.01, 0, 0, 0.1};
  if (rule.name == "rmsprop") return {0.1, 0.9, 0, 1e-7, 0, 0};
  std::vector<double> hyper = {0.001, 0.9, 0.999, 1e-7, 0.9, 0.999, 0, 0.5};
  hyper.resize(rule.min_hyper);
  return hyper;
}

double NanosecondsPerRow(const OptimizerRule& rule, DType dtype, DType slot, size_t dim) {
  constexpr size_t kRows = 64;
  const std::vector<double> hyper = HyperOf(rule);
  const auto specs = rule.slots(dim, slot, hyper.data(), hyper.size());
  RowLayout layout(de::engine::KeyType::kInt64, dtype, dim);
  layout.Append("bench", specs);
  std::vector<size_t> offsets;
  for (const auto& spec : specs) offsets.push_back(layout.FindSlot("bench", spec.name)->offset);
  std::vector<char> rows(layout.stride() * kRows);
  for (size_t i = 0; i < kRows; ++i) layout.FillSlots(rows.data() + i * layout.stride(), 0);
  const std::vector<float> gradient(2 * dim, 0.01F);  // wide enough for a float64 row
  const auto kernel = rule.kernel(dtype, slot);
  std::vector<char*> each;
  for (size_t i = 0; i < kRows; ++i) each.push_back(rows.data() + i * layout.stride());
  const std::vector<const void*> gradients(kRows, gradient.data());
  std::vector<uint64_t> words(kRows);
  std::iota(words.begin(), words.end(), 0);
  double best = 1e9;
  for (int round = 0; round < 300; ++round) {
    const auto start = std::chrono::steady_clock::now();
    kernel({hyper.data(), hyper.size(), dim, each.data(), offsets.data(), gradients.data(),
            words.data(), static_cast<uint64_t>(round), kRows});
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    best = spent.count() / kRows < best ? spent.count() / kRows : best;
  }
  return best;
}

}  // namespace

int main() {
  for (const std::string_view name : de::engine::RuleNames()) {
    const OptimizerRule& rule = *de::engine::FindRule(name);
    constexpr std::pair<DType, DType> kDTypes[] = {{DType::kFloat32, DType::kFloat32},
                                                   {DType::kFloat32, DType::kBFloat16},
                                                   {DType::kHalf, DType::kFloat32},
                                                   {DType::kBFloat16, DType::kFloat32}};
    for (const auto& [dtype, slot] : kDTypes) {
      std::printf("%-17s%-9s, slots %-9s", std::string(name).c_str(), NameOf(dtype).data(),
                  NameOf(slot).data());
      for (const size_t dim : {1, 8, 16, 32, 64}) {
        std::printf("  dim %zu %6.1f ns", dim, NanosecondsPerRow(rule, dtype, slot, dim));
      }
      std::printf("\n");
    }
  }
}
