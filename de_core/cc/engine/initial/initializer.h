// Computes the initial row of a key: its values before they are first written. Each element is a
// function of (seed, key word, index of the element).
//
// So the same key has the same initial row in every batch, shard, process, restart and build.
// Distinct keys have distinct random rows. Two rows of two or more elements are as unlikely to be
// equal as 55 random bits. Rows of a single float never coincide among the 2^23 keys that share
// their upper 41 bits, unless the mean is so far from 0 that rounding makes them equal. This
// function must never change.
#ifndef DE_CORE_ENGINE_INITIALIZER_H_
#define DE_CORE_ENGINE_INITIALIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/initial/key_random.h"

namespace de::engine {

struct InitializerOptions {
  /// The numbers are part of the snapshot format: never renumber.
  enum class Kind : uint8_t {
    kZeros = 0,            ///< every dtype; empty strings for a string table
    kConstant = 1,         ///< every element is a; every dtype but string
    kUniform = 2,          ///< [a, b), both rounded to the dtype
    kNormal = 3,           ///< mean a, standard deviation b
    kTruncatedNormal = 4,  ///< kNormal within two standard deviations from a
    kRow = 5,              ///< every row is `table` (dim); every dtype but string
    kQuantile = 6,         ///< column j of `table` (q, dim) has the quantiles of element j
  };

  Kind kind = Kind::kZeros;
  double a = 0;
  double b = 0;
  uint64_t seed = 0;         ///< seed of kUniform, kNormal, kTruncatedNormal and kQuantile
  std::vector<float> table;  ///< row-major; for kQuantile each column ascends, q >= 1
};

/// Computes the initial rows of one table. Immutable and thread-safe.
class Initializer {
 public:
  /// Creates an initializer of rows of `dim` elements.
  ///
  /// Returns InvalidArgument if dim is 0, if the kind is random and the dtype is not
  /// floating-point, or if `a`, `b` or the table do not fit the dtype or the kind. Integers are
  /// truncated as by a cast, but must be in the dtype's range. A boolean is true if the number is
  /// not 0. Returns ResourceExhausted if there is no memory for the table.
  static Status Create(InitializerOptions options, DType dtype, size_t dim,
                       std::unique_ptr<const Initializer>* initializer);

  /// Writes the initial row of the key. Allocates nothing, takes no lock, uses no libm.
  void Fill(uint64_t key_word, void* row /* (dim) of dtype, aligned to it */) const noexcept {
    fill_(*this, &key_word, &row, 1);
  }

  /// Writes several initial rows: rows[i] becomes the initial row of key_words[i].
  void FillRows(const uint64_t* key_words, void* const* rows, size_t count) const noexcept {
    fill_(*this, key_words, rows, count);
  }

  /// True if rows differ between keys. Otherwise one Fill serves all keys.
  bool is_random() const noexcept { return row_.empty(); }

  const InitializerOptions& options() const noexcept { return options_; }
  DType dtype() const noexcept { return dtype_; }
  size_t dim() const noexcept { return dim_; }

 private:
  friend struct InitializerFillers;
  using Filler = void (*)(const Initializer&, const uint64_t* key_words, void* const* rows,
                          size_t count) noexcept;

  Initializer(InitializerOptions options, DType dtype, size_t dim);
  Status Prepare();
  Status PrepareUniform();
  Status PrepareNormal();
  Status PrepareQuantile();
  Status PrepareRow();

  InitializerOptions options_;
  DType dtype_;
  size_t dim_;
  RandomSeed seed_;
  Filler fill_ = nullptr;
  std::vector<char> row_;       // (dim) of dtype: the row of the kinds that are not random
  std::vector<float> columns_;  // (dim, q): the quantile table, column by column
  double shift_ = 0;            // random element = shift + scale * draw
  double scale_ = 0;
  double low_ = 0;  // uniform elements are clamped to [low, high]
  double high_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_INITIALIZER_H_
