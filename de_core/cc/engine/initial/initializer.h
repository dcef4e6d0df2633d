// What a row reads as before it is first written: a function of (seed, key word, element) alone.
//
// The same key therefore reads the same in every batch, shard, process, restart and build, and
// distinct keys read distinct random rows. How distinct: of two or more elements, as distinct as 55
// random bits and more; of a single float, the 2^23 keys that share their upper 41 bits never read
// the same, unless a mean far from 0 takes the digits. That function is a persistent promise.
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
    kZeros = 0,            ///< every dtype; of a string table: empty strings
    kConstant = 1,         ///< a; every dtype but string
    kUniform = 2,          ///< [a, b), both rounded to the dtype
    kNormal = 3,           ///< mean a, standard deviation b
    kTruncatedNormal = 4,  ///< the same, conditioned on at most two standard deviations from a
    kRow = 5,              ///< every row is `table` (dim); every dtype but string
    kQuantile = 6,         ///< element j follows the distribution of column j of `table` (q, dim)
  };

  Kind kind = Kind::kZeros;
  double a = 0;
  double b = 0;
  uint64_t seed = 0;  ///< of the random kinds: kUniform, kNormal, kTruncatedNormal, kQuantile
  std::vector<float> table;  ///< row-major; for kQuantile each column ascends, q >= 1
};

/// The initial rows of one table. Immutable, so any number of threads may call it at once.
class Initializer {
 public:
  /// Makes an initializer of rows of `dim` elements.
  ///
  /// InvalidArgument if dim is 0, if a random kind is asked of a dtype that is not floating-point,
  /// if `a`, `b` or the table do not fit the dtype or the kind (integers are truncated as by a
  /// cast, but must lie in the dtype's range; a boolean is whether the number is not 0);
  /// ResourceExhausted if there is no memory for the table.
  static Status Create(InitializerOptions options, DType dtype, size_t dim,
                       std::unique_ptr<const Initializer>* initializer);

  /// Writes the initial row of the key. No allocation, no libm, no lock.
  void Fill(uint64_t key_word, void* row /* (dim) of dtype, aligned to it */) const noexcept {
    fill_(*this, &key_word, &row, 1);
  }

  /// The same for several keys: rows[i] becomes the initial row of key_words[i].
  void FillRows(const uint64_t* key_words, void* const* rows, size_t count) const noexcept {
    fill_(*this, key_words, rows, count);
  }

  /// Whether rows differ between keys. If not, one Fill serves all keys.
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
  double shift_ = 0;            // random element = shift + scale * draw, kept in [low, high]
  double scale_ = 0;
  double low_ = 0;
  double high_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_INITIALIZER_H_
