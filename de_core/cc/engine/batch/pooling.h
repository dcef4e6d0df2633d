// Arithmetic of pooled lookups: weighted sums of rows, and their gradients by key. A segment is a
// run of the batch whose rows make one sum.
#ifndef DE_CORE_ENGINE_POOLING_H_
#define DE_CORE_ENGINE_POOLING_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/executor.h"
#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/batch/unique_keys.h"

namespace de::engine {

/// Where segments begin in a batch: segment i is [splits[i], splits[i + 1]).
struct Segments {
  const int64_t* splits = nullptr;  // (count + 1)
  size_t count = 0;

  /// Errors unless the segments are a division of `size` elements.
  Status Check(size_t size) const;
  /// The segment that element `position` lies in.
  size_t Of(size_t position) const noexcept;
};

/// Real numbers are float, or double for float64 rows (RealOf).

/// sum (dim) += weights[i] * rows[i] for i in [0, count); without weights they are 1.
using AddRows = void (*)(const char* rows,     // (count, dim) of the table's dtype
                         const void* weights,  // (count) real numbers, or nullptr
                         size_t count, size_t dim,
                         void* sum  // (dim) real numbers
                         ) noexcept;

/// dots[i] = rows[i] * vector.
using DotRows = void (*)(const char* rows,    // (count, dim) of the table's dtype
                         const void* vector,  // (dim) real numbers
                         size_t count, size_t dim,
                         void* dots  // (count) real numbers
                         ) noexcept;

/// For rows of `dtype`; nullptr for types without arithmetic of real numbers.
AddRows RowAddition(DType dtype) noexcept;
DotRows RowProduct(DType dtype) noexcept;

/// The gradient of weighted segment sums with respect to the rows, summed by key: no more memory
/// than for the distinct keys.
class PooledGradient {
 public:
  /// Finds the distinct keys of a batch, shard by shard. `executor` may be nullptr, as in Sum.
  Status Build(const Keys& keys, const Segments& segments, Executor* executor);

  /// Distinct keys.
  size_t size() const noexcept { return first_.size(); }
  /// Where distinct key `j` first occurs in the batch.
  size_t first(size_t j) const noexcept { return first_[j]; }

  /// Row j of `sums` becomes the sum of weight * gradient of its segment over all occurrences of
  /// distinct key j, in the order of the batch.
  Status Sum(DType dtype,
             const void* weights,    // (keys) real numbers, or nullptr for 1
             const void* gradients,  // (segments, dim) real numbers
             size_t dim,
             void* sums,  // (size(), dim) of dtype
             Executor* executor) const;

 private:
  Partition partition_;
  UniqueKeys unique_[kShards];
  size_t begins_[kShards + 1] = {};   ///< each shard's first distinct key
  std::vector<uint32_t> first_;       // (distinct)
  std::vector<uint32_t> segment_of_;  // (keys)
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_POOLING_H_
