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

/// Runs work(shard) for each shard of a batch of `keys`.
template <typename Work>
Status ForEachShard(size_t keys, Executor* executor, const Work& work) {
  return RunGuarded(ThreadsFor(keys >= kKeysWorthThreads, executor), kShards, [&](size_t shard) {
    work(static_cast<uint32_t>(shard));
    return Status::Ok();
  });
}

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

size_t Segments::Of(size_t position) const noexcept {
  const int64_t* after =
      std::upper_bound(splits, splits + count + 1, static_cast<int64_t>(position));
  return static_cast<size_t>(after - splits) - 1;
}

AddRows RowAddition(DType dtype) noexcept {
  return VisitFloating<AddRows>(
      dtype, nullptr, [](auto tag) -> AddRows { return &AddRowsOf<typename decltype(tag)::type>; });
}

DotRows RowProduct(DType dtype) noexcept {
  return VisitFloating<DotRows>(
      dtype, nullptr, [](auto tag) -> DotRows { return &DotRowsOf<typename decltype(tag)::type>; });
}

Status PooledGradient::Build(const Keys& keys, const Segments& segments, Executor* executor) {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  if (segments.count > 0xffffffffULL) {
    return Status::InvalidArgument("a batch must have at most 2^32 - 1 segments. Received: " +
                                   std::to_string(segments.count) + " segments");
  }
  DE_RETURN_IF_ERROR(segments.Check(keys.size));
  return Guarded([&] {
    partition_.Build(keys, executor);
    segment_of_.resize(keys.size);
    for (size_t segment = 0; segment < segments.count; ++segment) {
      std::fill(segment_of_.begin() + segments.splits[segment],
                segment_of_.begin() + segments.splits[segment + 1], static_cast<uint32_t>(segment));
    }
    DE_RETURN_IF_ERROR(ForEachShard(keys.size, executor, [&](uint32_t shard) {
      unique_[shard].Find(keys, partition_.Of(shard));
    }));
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      begins_[shard + 1] = begins_[shard] + unique_[shard].size();
    }
    first_.resize(begins_[kShards]);
    for (uint32_t shard = 0; shard < kShards; ++shard) {
      const ShardKeys unique = unique_[shard].keys();
      std::copy(unique.positions, unique.positions + unique.count, first_.data() + begins_[shard]);
    }
    return Status::Ok();
  });
}

Status PooledGradient::Sum(DType dtype, const void* weights, const void* gradients, size_t dim,
                           void* sums, Executor* executor) const {
  if (!IsFloating(dtype)) {
    return Status::InvalidArgument("pooling needs values of a floating-point type. Received: " +
                                   std::string(NameOf(dtype)));
  }
  Status status;
  VisitFloating<bool>(dtype, false, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = typename Scalar<T>::Real;
    const Real* factors = static_cast<const Real*>(weights);
    const Real* all = static_cast<const Real*>(gradients);
    status = ForEachShard(segment_of_.size(), executor, [&](uint32_t shard) {
      const UniqueKeys& unique = unique_[shard];
      const uint32_t* const unique_of = unique.repeats().unique_of;
      const ShardKeys group = partition_.Of(shard);
      T* const out = static_cast<T*>(sums) + begins_[shard] * dim;
      // Sum 16-bit rows in a separate buffer of the arithmetic's type.
      constexpr bool kAside = !std::is_same_v<T, Real>;
      std::vector<Real> aside(kAside ? unique.size() * dim : 0);
      Real* const into = kAside ? aside.data() : reinterpret_cast<Real*>(out);
      uint32_t seen = 0;
      for (size_t j = 0; j < group.count; ++j) {
        if (j + kSumsAhead < group.count) {
          PrefetchBytes(reinterpret_cast<const char*>(into + unique_of[j + kSumsAhead] * dim),
                        dim * sizeof(Real));
        }
        const uint32_t position = group.positions[j];
        const uint32_t key = unique_of[j];
        const Real factor = factors == nullptr ? Real{1} : factors[position];
        const Real* gradient = all + static_cast<size_t>(segment_of_[position]) * dim;
        Real* __restrict sum = into + key * dim;
        if (key == seen) {  // distinct keys are numbered by first occurrence: this is it
          ++seen;
          for (size_t c = 0; c < dim; ++c) sum[c] = factor * gradient[c];
        } else {
          for (size_t c = 0; c < dim; ++c) sum[c] += factor * gradient[c];
        }
      }
      for (size_t i = 0; i < aside.size(); ++i) out[i] = Scalar<T>::Store(aside[i]);
    });
    return true;
  });
  return status;
}

}  // namespace de::engine
