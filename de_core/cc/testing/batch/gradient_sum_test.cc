// Sums of gradients of equal keys, compared with a loop over a map. unique_keys_test.cc tests which
// keys are found to be equal.
#include "de_core/cc/engine/batch/gradient_sum.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "de_core/cc/testing/batches.h"

namespace de::engine {
namespace {

/// A batch of integer keys as one group, as if one shard held all of them.
struct Batch {
  explicit Batch(std::vector<int64_t> keys) : numbers(std::move(keys)) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      words.push_back(static_cast<uint64_t>(numbers[i]));
      positions.push_back(static_cast<uint32_t>(i));
    }
  }
  Keys keys() const { return KeysOf(numbers); }
  ShardKeys group() const { return {words.data(), positions.data(), words.size()}; }

  std::vector<int64_t> numbers;
  std::vector<uint64_t> words;
  std::vector<uint32_t> positions;
};

template <typename T>
void ExpectSums(GradientSum* sum, const Batch& batch, size_t dim) {
  std::vector<T> grads(batch.numbers.size() * dim);
  for (size_t i = 0; i < grads.size(); ++i) grads[i] = static_cast<T>(0.1 * static_cast<double>(i));
  sum->Build(batch.keys(), batch.group(), nullptr, grads.data(), dim);
  std::map<int64_t, std::vector<T>> oracle;
  std::vector<int64_t> order;
  for (size_t i = 0; i < batch.numbers.size(); ++i) {
    auto [at, fresh] = oracle.try_emplace(batch.numbers[i], dim, T{0});
    if (fresh) order.push_back(batch.numbers[i]);
    for (size_t c = 0; c < dim; ++c) at->second[c] += grads[i * dim + c];
  }
  const ShardKeys unique = sum->unique();
  ASSERT_EQ(unique.count, oracle.size());
  for (size_t j = 0; j < unique.count; ++j) {
    const int64_t key = batch.numbers[unique.positions[j]];
    EXPECT_EQ(key, order[j]) << "distinct keys come in the order of their first occurrence";
    EXPECT_EQ(unique.words[j], static_cast<uint64_t>(key));
    const T* const gradient = static_cast<const T*>(sum->gradient(j));
    for (size_t c = 0; c < dim; ++c) ASSERT_EQ(gradient[c], oracle[key][c]);
  }
}

TEST(GradientSum, AddsUpEqualKeysInTheOrderOfTheBatch) {
  GradientSum sum;  // one object for all batches: a table reuses it too
  std::mt19937_64 random(5);
  for (const size_t size : {1000, 0, 1, 37, 5000}) {
    for (const uint64_t distinct : {1, 3, 800, 1000000}) {
      std::vector<int64_t> keys(size);
      for (int64_t& key : keys) key = static_cast<int64_t>(random() % distinct) - 2;
      ExpectSums<float>(&sum, Batch(keys), 1);
      ExpectSums<double>(&sum, Batch(keys), 3);
      for (const size_t dim : {7, 8, 16, 32, 64}) ExpectSums<float>(&sum, Batch(keys), dim);
      ExpectSums<double>(&sum, Batch(keys), 16);
    }
  }
}

TEST(GradientSum, AKeyThatOccursOnceIsNotCopied) {
  const Batch batch({4, 5, 4});
  const std::vector<float> grads{1, 2, 4};
  GradientSum sum;
  sum.Build(batch.keys(), batch.group(), nullptr, grads.data(), 1);
  EXPECT_EQ(sum.gradient(1), &grads[1]);
  EXPECT_EQ(*static_cast<const float*>(sum.gradient(0)), 5);
  EXPECT_EQ(grads[0], 1) << "the caller's gradients must not change";
}

}  // namespace
}  // namespace de::engine
