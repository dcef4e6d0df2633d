#include "de_core/cc/engine/pooling.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "de_core/cc/engine/guard.h"
#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/scalar_types.h"

namespace de::engine {
namespace {

// Columns that are summed at once: their sums stay in registers while rows pass by.
constexpr size_t kColumns = 16;
// Distinct keys worth a thread.
constexpr size_t kKeysATask = 2048;

/// sum[0, columns) += weight(i) * row(i)[0, columns) for i in [0, count). `columns` is a constant
/// for all but the last columns of a row.
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

/// The same for whole rows of `dim` values.
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

Status PooledGradient::Build(const Keys& keys, const Segments& segments) {
  if (keys.size > 0xfffffffeULL || segments.count > 0xffffffffULL) {
    return Status::InvalidArgument("a batch must hold less than 2^32 - 1 keys. Received: " +
                                   std::to_string(keys.size));
  }
  DE_RETURN_IF_ERROR(segments.Check(keys.size));
  return Guarded([&] {
    size_t places = 16;
    while (places < 2 * keys.size) places *= 2;
    struct Place {
      uint64_t word;
      uint32_t key;  ///< distinct key + 1; 0 is free
    };
    std::vector<Place> table(places);
    std::vector<uint32_t> key_of(keys.size);
    std::vector<size_t> counts;
    first_.clear();
    constexpr size_t kAhead = 16;
    std::vector<uint64_t> words(keys.size);
    for (size_t i = 0; i < keys.size; ++i) {
      words[i] = keys.strings == nullptr ? static_cast<uint64_t>(keys.ints[i])
                                         : HashBytes(keys.strings[i]);
    }
    for (size_t i = 0; i < keys.size; ++i) {
      if (i + kAhead < keys.size) {
        __builtin_prefetch(&table[Mix64(words[i + kAhead]) & (places - 1)], 1);
      }
      size_t at = Mix64(words[i]) & (places - 1);
      for (; table[at].key != 0; at = (at + 1) & (places - 1)) {
        if (table[at].word == words[i] &&
            (keys.strings == nullptr ||
             keys.strings[i] == keys.strings[first_[table[at].key - 1]])) {
          break;
        }
      }
      if (table[at].key == 0) {
        first_.push_back(static_cast<uint32_t>(i));
        counts.push_back(0);
        table[at] = {words[i], static_cast<uint32_t>(first_.size())};
      }
      key_of[i] = table[at].key - 1;
      ++counts[key_of[i]];
    }
    begins_.assign(first_.size() + 1, 0);
    for (size_t j = 0; j < counts.size(); ++j) begins_[j + 1] = begins_[j] + counts[j];
    std::copy(begins_.begin(), begins_.end() - 1, counts.begin());  // where each goes on
    occurrences_.resize(keys.size);
    for (size_t segment = 0; segment < segments.count; ++segment) {
      const auto end = static_cast<size_t>(segments.splits[segment + 1]);
      for (auto i = static_cast<size_t>(segments.splits[segment]); i < end; ++i) {
        occurrences_[counts[key_of[i]]++] = {static_cast<uint32_t>(i),
                                             static_cast<uint32_t>(segment)};
      }
    }
    return Status::Ok();
  });
}

Status PooledGradient::Sum(DType dtype, const void* weights, const void* gradients, size_t dim,
                           void* sums, Executor* executor) const {
  const bool known = VisitFloating<bool>(dtype, false, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using Real = typename Scalar<T>::Real;
    const Real* factors = static_cast<const Real*>(weights);
    const Real* all = static_cast<const Real*>(gradients);
    const auto range = [&](size_t begin, size_t end) {
      for (size_t j = begin; j < end; ++j) {
        const Occurrence* occurrences = occurrences_.data() + begins_[j];
        const size_t count = begins_[j + 1] - begins_[j];
        T* out = static_cast<T*>(sums) + j * dim;
        for (size_t at = 0; at < dim; at += kColumns) {
          const size_t columns = std::min(kColumns, dim - at);
          Real sum[kColumns] = {};
          const auto row = [&](size_t i) { return all + occurrences[i].segment * dim + at; };
          const auto weight = [&](size_t i) {
            return factors == nullptr ? Real{1} : factors[occurrences[i].position];
          };
          if (columns == kColumns) {
            AddColumns<Real, Real>(count, kColumns, row, weight, sum);
          } else {
            AddColumns<Real, Real>(count, columns, row, weight, sum);
          }
          for (size_t c = 0; c < columns; ++c) out[at + c] = Scalar<T>::Store(sum[c]);
        }
      }
    };
    const size_t threads = executor == nullptr ? 1 : executor->threads();
    const size_t tasks = std::min(threads, size() / kKeysATask);
    if (tasks <= 1) {
      range(0, size());
    } else {
      executor->Run(
          tasks, [&](size_t task) { range(size() * task / tasks, size() * (task + 1) / tasks); });
    }
    return true;
  });
  if (known) return Status::Ok();
  return Status::InvalidArgument("pooling needs values of a floating-point type. Received: " +
                                 std::string(NameOf(dtype)));
}

}  // namespace de::engine
