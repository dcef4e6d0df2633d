// Sums the gradients of equal keys, so that each key is updated once per step.
#ifndef DE_CORE_ENGINE_GRADIENT_SUM_H_
#define DE_CORE_ENGINE_GRADIENT_SUM_H_

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/batch/unique_keys.h"

namespace de::engine {

class GradientSum {
 public:
  /// Sums the gradients of equal keys of `group`, the batch's keys of one shard, in the batch's
  /// order. `known` has the distinct keys of `group` and must outlive the result; if it is nullptr,
  /// finds them. `grads` (keys.size, dim) have type T. The result points into `grads` for keys that
  /// occur once.
  template <typename T>
  void Build(const Keys& keys, const ShardKeys& group, const UniqueKeys* known, const T* grads,
             size_t dim) {
    if (known == nullptr) own_keys_.Find(keys, group);
    keys_ = known == nullptr ? &own_keys_ : known;
    const ShardKeys unique = keys_->keys();
    gradients_.resize(unique.count);
    for (size_t j = 0; j < unique.count; ++j) {
      gradients_[j] = grads + static_cast<size_t>(unique.positions[j]) * dim;
    }
    Sum(group, grads, dim);
  }

  /// The distinct keys, in order of first occurrence.
  ShardKeys unique() const noexcept { return keys_->keys(); }
  /// Summed gradient (dim) of distinct key `j`.
  const void* gradient(size_t j) const noexcept { return gradients_[j]; }

 private:
  static constexpr size_t kAhead = 8;  ///< prefetch gradients this many keys ahead

  /// Adds the gradients of repeated keys.
  template <typename T>
  void Sum(const ShardKeys& group, const T* grads, size_t dim) {
    const UniqueKeys::Repeats repeats = keys_->repeats();
    const size_t count = repeats.count;
    const uint32_t* const first_positions = keys_->keys().positions;
    const uint32_t* const positions = group.positions;
    const void** const gradients = gradients_.data();
    std::vector<T>& sums = SumsOf<T>();
    const size_t most = std::min(count, keys_->size()) * dim;
    if (sums.size() < most) sums.resize(most);
    T* next = sums.data();
    const auto gradient_at = [&](size_t position) { return grads + position * dim; };
    const auto ask_for = [&](const void* gradient) {
      PrefetchRow(static_cast<const char*>(gradient), dim * sizeof(T));
    };
    for (size_t i = 0; i < count; ++i) {
      if (i + kAhead < count) {
        // Keys of one shard are scattered in the batch, so the hardware cannot predict the next
        // gradient's address.
        const uint32_t j = repeats.keys[i + kAhead];
        ask_for(gradient_at(positions[j]));
        ask_for(gradients[repeats.unique_of[j]]);
      }
      const uint32_t j = repeats.keys[i];
      const uint32_t unique = repeats.unique_of[j];
      const T* const before = static_cast<const T*>(gradients[unique]);
      const T* const gradient = gradient_at(positions[j]);
      // Write a key's first sum to `next`, and add later gradients to that sum. Select the address
      // without a branch, which would be unpredictable.
      size_t is_first = before == gradient_at(first_positions[unique]) ? 1 : 0;
      HideFromCompiler(&is_first);
      const uintptr_t to =
          reinterpret_cast<uintptr_t>(before) ^
          ((reinterpret_cast<uintptr_t>(before) ^ reinterpret_cast<uintptr_t>(next)) &
           (uintptr_t{0} - is_first));
      T* const sum = reinterpret_cast<T*>(to);
      next += dim * is_first;
      gradients[unique] = sum;
      Add(sum, before, gradient, dim);
    }
  }

  /// sum = a + b, where `sum` may be `a`. Because they may overlap, compilers would not vectorize a
  /// plain loop.
  template <typename T>
  static void Add(T* sum, const T* a, const T* b, size_t dim) noexcept {
    using Lanes [[gnu::vector_size(16)]] = T;
    constexpr size_t kLanes = sizeof(Lanes) / sizeof(T);
    size_t c = 0;
    for (; c + kLanes <= dim; c += kLanes) {
      Lanes sums, terms;
      std::memcpy(&sums, a + c, sizeof(sums));
      std::memcpy(&terms, b + c, sizeof(terms));
      sums += terms;
      std::memcpy(sum + c, &sums, sizeof(sums));
    }
    for (; c < dim; ++c) sum[c] = a[c] + b[c];
  }

  template <typename T>
  std::vector<T>& SumsOf() noexcept {
    if constexpr (sizeof(T) == sizeof(double)) {
      return double_sums_;
    } else {
      return float_sums_;
    }
  }

  const UniqueKeys* keys_ = nullptr;
  UniqueKeys own_keys_;
  std::vector<const void*> gradients_;  // (unique)
  std::vector<float> float_sums_;
  std::vector<double> double_sums_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_GRADIENT_SUM_H_
