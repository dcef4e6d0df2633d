// Nanoseconds per element for each kind of initial row. Run: ./initializer_bench [dim]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "de_core/cc/engine/initial/initializer.h"

namespace {

using de::engine::DType;
using de::engine::Initializer;
using de::engine::InitializerOptions;
using Kind = InitializerOptions::Kind;

constexpr size_t kTogether = 8;  // rows per call, as in lookups

double NanosecondsPerElement(const Initializer& initializer) {
  const size_t rows = (size_t{1} << 17) / initializer.dim() / kTogether * kTogether;
  std::vector<double> row(initializer.dim());
  uint64_t keys[kTogether];
  void* to[kTogether];
  std::fill(to, to + kTogether, row.data());
  double best = 1e9;
  for (int round = 0; round < 60; ++round) {
    const auto start = std::chrono::steady_clock::now();
    for (size_t key = 0; key < rows; key += kTogether) {
      for (size_t i = 0; i < kTogether; ++i) keys[i] = key + i;
      initializer.FillRows(keys, to, kTogether);
    }
    const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
    const double each = spent.count() / static_cast<double>(rows * initializer.dim());
    best = each < best ? each : best;
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<size_t> dims = {1, 8, 16, 32, 64, 100};
  if (argc > 1) dims = {static_cast<size_t>(std::strtoul(argv[1], nullptr, 10))};
  const DType dtypes[] = {DType::kFloat32, DType::kFloat64, DType::kHalf, DType::kBFloat16};
  for (const size_t dim : dims) {
    for (const DType dtype : dtypes) {
      std::printf("dim %4zu %-9s", dim, NameOf(dtype).data());
      for (const auto& [name, kind] : {std::pair("constant", Kind::kConstant),
                                       {"uniform", Kind::kUniform},
                                       {"normal", Kind::kNormal},
                                       {"truncated", Kind::kTruncatedNormal},
                                       {"quantile", Kind::kQuantile}}) {
        InitializerOptions options;
        options.kind = kind;
        options.a = -0.5;
        options.b = 0.5;
        if (kind == Kind::kQuantile) {
          for (size_t i = 0; i < 4096 * dim; ++i) {
            options.table.push_back(static_cast<float>(i / dim));
          }
        }
        std::unique_ptr<const Initializer> initializer;
        const auto status = Initializer::Create(options, dtype, dim, &initializer);
        if (!status.ok()) {
          std::printf("%s\n", status.message.c_str());
          return 1;
        }
        std::printf("  %s %6.2f ns", name, NanosecondsPerElement(*initializer));
      }
      std::printf("\n");
    }
  }
}
