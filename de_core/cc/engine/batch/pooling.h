// Arithmetic of pooled lookups: weighted sums of rows, and the gradients of these sums, added up
// per key. A segment is a range of the batch whose rows form one sum.
#ifndef DE_CORE_ENGINE_POOLING_H_
#define DE_CORE_ENGINE_POOLING_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/batch/unique_keys.h"

namespace de::engine {

/// Keys whose rows are read at once, so that the rows are still in a CPU cache when they are used.
inline size_t KeysAtOnce(size_t row_bytes) noexcept {
  return std::clamp<size_t>((size_t{64} << 10) / row_bytes, 1, 1024);
}

/// The segments of a batch: segment i is [splits[i], splits[i + 1]).
struct Segments {
  const int64_t* splits = nullptr;  // (count + 1)
  size_t count = 0;

  /// Returns an error unless the segments divide `size` elements.
  Status Check(size_t size) const;
};

// Below, a "real number" is a float, or a double for float64 rows (RealOf).

/// sum (dim) += weights[i] * rows[i] for i in [0, count). If `weights` is nullptr, each weight is
/// 1.
using AddRows = void (*)(const char* rows,     // (count, dim) of the table's dtype
                         const void* weights,  // (count) real numbers, or nullptr
                         size_t count, size_t dim,
                         void* sum  // (dim) real numbers
                         ) noexcept;

/// dots[i] = dot product of rows[i] and `vector`, for i in [0, count).
using DotRows = void (*)(const char* rows,    // (count, dim) of the table's dtype
                         const void* vector,  // (dim) real numbers
                         size_t count, size_t dim,
                         void* dots  // (count) real numbers
                         ) noexcept;

/// Both return the function for rows of `dtype`, or nullptr if the type is not floating-point.
AddRows RowAddition(DType dtype) noexcept;
DotRows RowProduct(DType dtype) noexcept;

/// The gradient of weighted segment sums with respect to the rows, summed by key. Needs memory only
/// for the distinct keys.
class PooledGradient {
 public:
  /// Finds the distinct keys of a batch. `executor` may be nullptr, here and in Sum. Call it again
  /// for the next batch to reuse the memory.
  Status Build(const Keys& keys, Executor* executor);

  /// Number of distinct keys.
  size_t size() const noexcept { return first_.size(); }
  /// Position in the batch where distinct key `j` first occurs.
  size_t first(size_t j) const noexcept { return first_[j]; }

  /// Sets row j of `sums` to the sum of weight * gradient over all occurrences of distinct key j,
  /// in the batch's order.
  Status Sum(DType dtype,
             const void* weights,           // (keys) real numbers, or nullptr for 1
             const void* const* gradients,  // (keys), each the (dim) real numbers of a segment
             size_t dim,
             void* sums,  // (size(), dim) of dtype
             Executor* executor) const;

 private:
  template <typename Work>
  Status ForEachGroup(Executor* executor, const Work& work) const;

  /// The keys in groups: one per shard, or one with all keys of a small batch.
  Partition partition_;
  ShardKeys groups_[kShards] = {};
  size_t group_count_ = 0, key_count_ = 0;
  std::vector<uint64_t> words_;      // (keys) of the strings of one group
  std::vector<uint32_t> positions_;  // (keys) 0, 1, 2 … for one group
  UniqueKeys unique_[kShards];
  size_t begins_[kShards + 1] = {};  ///< number of each group's first distinct key
  std::vector<uint32_t> first_;      // (distinct)
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_POOLING_H_
