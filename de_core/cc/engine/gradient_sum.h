// Gradients of equal keys summed, so that each key is updated once a step.
#ifndef DE_CORE_ENGINE_GRADIENT_SUM_H_
#define DE_CORE_ENGINE_GRADIENT_SUM_H_

#include <cstdint>
#include <cstring>
#include <vector>

#include "de_core/cc/engine/partition.h"
#include "de_core/cc/engine/types.h"

namespace de::engine {

class GradientSum {
 public:
  /// Finds the distinct keys of `group` and sums their gradients in the order of the batch.
  /// `grads` (keys.size, dim) are of type T; the result points into them where a key occurs once.
  template <typename T>
  void Build(const Keys& keys, const ShardKeys& group, const T* grads, size_t dim) {
    FindUnique(keys, group);
    std::vector<T>& sums = SumsOf<T>();
    sums.resize(repeated_ * dim);
    gradients_.assign(words_.size(), nullptr);
    for (size_t j = 0; j < group.count; ++j) {
      const uint32_t unique = unique_of_[j];
      const T* gradient = grads + static_cast<size_t>(group.positions[j]) * dim;
      const uint32_t repeat = repeat_of_[unique];
      if (repeat == kOnce) {
        gradients_[unique] = gradient;
        continue;
      }
      T* sum = sums.data() + static_cast<size_t>(repeat) * dim;
      if (gradients_[unique] == nullptr) {
        std::memcpy(sum, gradient, dim * sizeof(T));
        gradients_[unique] = sum;
      } else {
        for (size_t i = 0; i < dim; ++i) sum[i] += gradient[i];
      }
    }
  }

  /// The distinct keys, in order of first occurrence.
  ShardKeys unique() const noexcept { return {words_.data(), positions_.data(), words_.size()}; }
  /// Summed gradient (dim) of distinct key `j`.
  const void* gradient(size_t j) const noexcept { return gradients_[j]; }

 private:
  static constexpr uint32_t kOnce = 0xffffffffU;

  template <typename T>
  std::vector<T>& SumsOf() noexcept {
    if constexpr (sizeof(T) == sizeof(double)) {
      return double_sums_;
    } else {
      return float_sums_;
    }
  }

  void FindUnique(const Keys& keys, const ShardKeys& group) {
    size_t places = 16;
    while (places < 2 * group.count) places *= 2;
    places_.assign(places, 0);
    unique_of_.resize(group.count);
    words_.clear();
    positions_.clear();
    repeat_of_.clear();
    repeated_ = 0;
    for (size_t j = 0; j < group.count; ++j) {
      const uint64_t word = group.words[j];
      size_t at = static_cast<size_t>(Mix64(word)) & (places - 1);
      uint32_t unique = 0;
      for (; places_[at] != 0; at = (at + 1) & (places - 1)) {
        unique = places_[at] - 1;
        if (words_[unique] == word && SameBytes(keys, group.positions[j], positions_[unique])) {
          break;
        }
      }
      if (places_[at] == 0) {
        unique = static_cast<uint32_t>(words_.size());
        places_[at] = unique + 1;
        words_.push_back(word);
        positions_.push_back(group.positions[j]);
        repeat_of_.push_back(kOnce);
      } else if (repeat_of_[unique] == kOnce) {
        repeat_of_[unique] = repeated_++;
      }
      unique_of_[j] = unique;
    }
  }

  static bool SameBytes(const Keys& keys, uint32_t a, uint32_t b) noexcept {
    return keys.strings == nullptr || keys.strings[a] == keys.strings[b];
  }

  std::vector<uint32_t> places_;        ///< open addressing; unique index + 1, 0 is free
  std::vector<uint32_t> unique_of_;     // (group)
  std::vector<uint64_t> words_;         // (unique)
  std::vector<uint32_t> positions_;     // (unique)
  std::vector<uint32_t> repeat_of_;     // (unique) which sum, or kOnce
  std::vector<const void*> gradients_;  // (unique)
  std::vector<float> float_sums_;
  std::vector<double> double_sums_;
  uint32_t repeated_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_GRADIENT_SUM_H_
