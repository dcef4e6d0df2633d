#include "de_core/cc/engine/batch/pooling.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <type_traits>

#include "de_core/cc/engine/base/guarded_tasks.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {
namespace {

// Number of columns summed at once. Their sums stay in registers while the rows are read.
constexpr size_t kColumns = 16;
// Prefetch a key's sum this many keys before adding to it.
constexpr size_t kSumsAhead = 8;

// On one thread, a batch with at most this many keys is not divided by shard: the hash map that
// finds its distinct keys fits into a cache.
constexpr size_t kKeysInOneGroup = 16384;

/// sum[0, columns) += weight(i) * row(i)[0, columns) for i in [0, count). `columns` is a constant
/// except for the last columns of a row.
template <typename T, typename Real, typename Row, typename Weight>
inline void AddColumns(size_t count, size_t columns, const Row& row, const Weight& weight,
                       Real* sum) {
  Real sums[kColumns] = {};
  for (size_t i = 0; i < count; ++i) {
    const T* values = row(i);
    const Real factor = weight(i);
    for (size_t c = 0; c < columns; ++c) sums[c] += factor * Scalar<T>::Load(values[c]);
  }
  for (size_t c = 0; c < columns; ++c) sum[c] += sums[c];
}

/// Like AddColumns, for whole rows of `dim` values.
template <typename T, typename Real, typename Row, typename Weight>
inline void AddWeighted(size_t count, size_t dim, const Row& row, const Weight& weight, Real* sum) {
  size_t at = 0;
  const auto part = [&](size_t i) { return row(i) + at; };
  for (; at + kColumns <= dim; at += kColumns) {
    AddColumns<T, Real>(count, kColumns, part, weight, sum + at);
  }
  if (at < dim) AddColumns<T, Real>(count, dim - at, part, weight, sum + at);
}

template <typename T>
void AddRowsOf(const char* rows, const void* weights, size_t count, size_t dim,
               void* sum) noexcept {
  using Real = typename Scalar<T>::Real;
  const auto row = [&](size_t i) { return reinterpret_cast<const T*>(rows) + i * dim; };
  const Real* factors = static_cast<const Real*>(weights);
  if (factors == nullptr) {
    AddWeighted<T, Real>(count, dim, row, [](size_t) { return Real{1}; }, static_cast<Real*>(sum));
  } else {
    AddWeighted<T, Real>(
        count, dim, row, [=](size_t i) { return factors[i]; }, static_cast<Real*>(sum));
  }
}

template <typename T>
void DotRowsOf(const char* rows, const void* vector, size_t count, size_t dim,
               void* dots) noexcept {
  using Real = typename Scalar<T>::Real;
  const T* values = reinterpret_cast<const T*>(rows);
  const Real* factors = static_cast<const Real*>(vector);
  for (size_t i = 0; i < count; ++i) {
    Real dot = 0;
    for (size_t c = 0; c < dim; ++c) dot += Scalar<T>::Load(values[i * dim + c]) * factors[c];
    static_cast<Real*>(dots)[i] = dot;
  }
}

}  // namespace

Status Segments::Check(size_t size) const {
  const auto whole = static_cast<int64_t>(size);
  if (splits[0] != 0 || splits[count] != whole || !std::is_sorted(splits, splits + count + 1)) {
    return Status::InvalidArgument("row_splits must ascend from 0 to the number of keys, " +
                                   std::to_string(size) + ". Received: row_splits from " +
                                   std::to_string(splits[0]) + " to " +
                                   std::to_string(splits[count]));
  }
  return Status::Ok();
}

AddRows RowAddition(DType dtype) noexcept {
  return VisitFloating<AddRows>(
      dtype, nullptr, [](auto tag) -> AddRows { return &AddRowsOf<typename decltype(tag)::type>; });
}

DotRows RowProduct(DType dtype) noexcept {
  return VisitFloating<DotRows>(
      dtype, nullptr, [](auto tag) -> DotRows { return &DotRowsOf<typename decltype(tag)::type>; });
}

/// Runs work(group) for each group of keys.
template <typename Work>
Status PooledGradient::ForEachGroup(Executor* executor, const Work& work) const {
  Executor* const threads = ThreadsFor(key_count_ >= kKeysWorthThreads, executor);
  return RunGuarded(threads, group_count_, [&](size_t group) {
    work(group);
    return Status::Ok();
  });
}

Status PooledGradient::Build(const Keys& keys, Executor* executor) {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  return Guarded([&] {
    key_count_ = keys.size;
    const bool is_whole = ThreadsFor(keys.size >= kKeysWorthThreads, executor) == nullptr &&
                          keys.size <= kKeysInOneGroup;
    group_count_ = is_whole ? 1 : kShards;
    if (is_whole) {
      for (size_t i = positions_.size(); i < keys.size; ++i) {
        positions_.push_back(static_cast<uint32_t>(i));
      }
      const auto* words = reinterpret_cast<const uint64_t*>(keys.ints);
      if (keys.ints == nullptr) {
        words_.resize(keys.size);
        for (size_t i = 0; i < keys.size; ++i) words_[i] = WordOf(keys, i);
        words = words_.data();
      }
      groups_[0] = {words, positions_.data(), keys.size};
    } else {
      partition_.Build(keys, executor);
      for (uint32_t shard = 0; shard < kShards; ++shard) groups_[shard] = partition_.Of(shard);
    }
    DE_RETURN_IF_ERROR(
        ForEachGroup(executor, [&](size_t group) { unique_[group].Find(keys, groups_[group]); }));
    for (size_t group = 0; group < group_count_; ++group) {
      begins_[group + 1] = begins_[group] + unique_[group].size();
    }
    first_.resize(begins_[group_count_]);
    for (size_t group = 0; group < group_count_; ++group) {
      const ShardKeys unique = unique_[group].keys();
      std::copy(unique.positions, unique.positions + unique.count, first_.data() + begins_[group]);
    }
    return Status::Ok();
  });
}

Status PooledGradient::Sum(DType dtype, const void* weights, const void* const* gradients,
                           size_t dim, void* sums, Executor* executor) const {
  if (!IsFloating(dtype)) {
    return Status::InvalidArgument("pooling needs values of a floating-point type. Received: " +
                                   std::string(NameOf(dtype)));
  }
  Status status;
  VisitFloating<bool>(dtype, false, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = typename Scalar<T>::Real;
    const Real* factors = static_cast<const Real*>(weights);
    status = ForEachGroup(executor, [&](size_t group) {
      const UniqueKeys& unique = unique_[group];
      const ShardKeys keys = groups_[group];
      T* const out = static_cast<T*>(sums) + begins_[group] * dim;
      // Sum 16-bit rows in a separate buffer of the arithmetic's type.
      constexpr bool kAside = !std::is_same_v<T, Real>;
      std::vector<Real> aside(kAside ? unique.size() * dim : 0);
      Real* const into = kAside ? aside.data() : reinterpret_cast<Real*>(out);
      const auto ask_for = [&](uint32_t position, const Real* sum) {
        PrefetchBytes(static_cast<const char*>(gradients[position]), dim * sizeof(Real));
        PrefetchBytes(reinterpret_cast<const char*>(sum), dim * sizeof(Real));
      };
      const auto factor_of = [&](uint32_t position) {
        return factors == nullptr ? Real{1} : factors[position];
      };
      // First the first occurrence of each key, then the repeated ones: whether a key is repeated
      // is unpredictable, and so no branch decides it.
      const ShardKeys first = unique.keys();
      for (size_t key = 0; key < first.count; ++key) {
        if (key + kSumsAhead < first.count) {
          ask_for(first.positions[key + kSumsAhead], into + (key + kSumsAhead) * dim);
        }
        const uint32_t position = first.positions[key];
        const Real factor = factor_of(position);
        const Real* gradient = static_cast<const Real*>(gradients[position]);
        Real* __restrict sum = into + key * dim;
        for (size_t c = 0; c < dim; ++c) sum[c] = factor * gradient[c];
      }
      const UniqueKeys::Repeats again = unique.repeats();
      for (size_t i = 0; i < again.count; ++i) {
        if (i + kSumsAhead < again.count) {
          const uint32_t next = again.keys[i + kSumsAhead];
          ask_for(keys.positions[next], into + again.unique_of[next] * dim);
        }
        const uint32_t j = again.keys[i], position = keys.positions[j];
        const Real factor = factor_of(position);
        const Real* gradient = static_cast<const Real*>(gradients[position]);
        Real* __restrict sum = into + again.unique_of[j] * dim;
        for (size_t c = 0; c < dim; ++c) sum[c] += factor * gradient[c];
      }
      for (size_t i = 0; i < aside.size(); ++i) out[i] = Scalar<T>::Store(aside[i]);
    });
    return true;
  });
  return status;
}

}  // namespace de::engine
