// Gradients of equal keys summed, so that each key is updated once a step.
#ifndef DE_CORE_ENGINE_GRADIENT_SUM_H_
#define DE_CORE_ENGINE_GRADIENT_SUM_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "de_core/cc/engine/partition.h"
#include "de_core/cc/engine/prefetch.h"
#include "de_core/cc/engine/types.h"
#include "de_core/cc/engine/unique_keys.h"
#include "de_core/cc/engine/values.h"

namespace de::engine {

class GradientSum {
 public:
  /// Finds the distinct keys of `group` and sums their gradients in the order of the batch.
  /// `grads` (keys.size, dim) are of type T; the result points into them where a key occurs once.
  template <typename T>
  void Build(const Keys& keys, const ShardKeys& group, const T* grads, size_t dim) {
    keys_.Find(keys, group);
    std::vector<T>& sums = SumsOf<T>();
    sums.resize(keys_.repeated() * dim);
    gradients_.assign(keys_.size(), nullptr);
    const auto repeat_at = [this](size_t j) { return keys_.repeat(keys_.unique_of(j)); };
    const auto gradient_at = [&](size_t j) {
      return grads + static_cast<size_t>(group.positions[j]) * dim;
    };
    for (size_t j = 0; j < group.count; ++j) {
      // Keys of one shard lie apart in the batch, where no hardware foresees the next.
      if (j + kAhead < group.count && repeat_at(j + kAhead) != UniqueKeys::kOnce) {
        PrefetchBytes(reinterpret_cast<const char*>(gradient_at(j + kAhead)), dim * sizeof(T));
      }
      const uint32_t unique = keys_.unique_of(j);
      const T* gradient = gradient_at(j);
      const uint32_t repeat = keys_.repeat(unique);
      if (repeat == UniqueKeys::kOnce) {
        gradients_[unique] = gradient;
        continue;
      }
      T* __restrict sum = sums.data() + static_cast<size_t>(repeat) * dim;
      if (gradients_[unique] == nullptr) {
        std::memcpy(sum, gradient, dim * sizeof(T));
        gradients_[unique] = sum;
      } else {
        for (size_t i = 0; i < dim; ++i) sum[i] += gradient[i];
      }
    }
  }

  /// The distinct keys, in order of first occurrence.
  ShardKeys unique() const noexcept { return keys_.keys(); }
  /// Summed gradient (dim) of distinct key `j`.
  const void* gradient(size_t j) const noexcept { return gradients_[j]; }

 private:
  static constexpr size_t kAhead = 8;  ///< keys whose gradients are asked for

  template <typename T>
  std::vector<T>& SumsOf() noexcept {
    if constexpr (sizeof(T) == sizeof(double)) {
      return double_sums_;
    } else {
      return float_sums_;
    }
  }

  UniqueKeys keys_;
  std::vector<const void*> gradients_;  // (unique)
  std::vector<float> float_sums_;
  std::vector<double> double_sums_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_GRADIENT_SUM_H_
