#include "de_core/cc/engine/initial/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/simd_targets.h"
#include "de_core/cc/engine/initial/random_draws.h"
#include "de_core/cc/engine/initial/simd_draws.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {
namespace {

using Kind = InitializerOptions::Kind;

// Number of elements computed at a time: few enough that their random words and values stay in the
// L1 cache, and a multiple of kLanes.
constexpr size_t kBlock = kNormalBlock;
/// Elements of a vector of AVX2.
template <typename Real>
constexpr size_t kLanes = 32 / sizeof(Real);

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

std::string Name(DType dtype) { return std::string(NameOf(dtype)); }

/// Rounds `value` to an element of `dtype`, a floating-point type.
double RoundTo(DType dtype, double value) noexcept {
  return VisitFloating(dtype, value, [value](auto tag) {
    using Type = Scalar<typename decltype(tag)::type>;
    const auto real = static_cast<typename Type::Real>(value);
    return static_cast<double>(Type::Load(Type::Store(real)));
  });
}

/// Returns the greatest number of `dtype` that is less than `value`, a number of `dtype` too. For
/// value 0, the result is no denormal float or double: a thread may flush denormals to 0.
double Below(DType dtype, double value) noexcept {
  if (value == 0) {
    if (dtype == DType::kHalf) return -0x1p-24;
    return dtype == DType::kFloat64 ? -std::numeric_limits<double>::min()
                                    : -double{std::numeric_limits<float>::min()};
  }
  // `half_step` is the spacing of numbers just below a power of two, and half the spacing
  // elsewhere. There, value - half_step may round to `value`. Then subtract the whole spacing.
  const int digits = dtype == DType::kFloat64   ? 53
                     : dtype == DType::kFloat32 ? 24
                     : dtype == DType::kHalf    ? 11
                                                : 8;
  int exponent = 0;
  (void)std::frexp(value, &exponent);
  const int least = dtype == DType::kHalf ? -24 : dtype == DType::kFloat64 ? -1074 : -149;
  const double half_step = std::ldexp(1.0, std::max(exponent - digits - 1, least));
  const double near = RoundTo(dtype, value - half_step);
  return near < value ? near : RoundTo(dtype, value - 2 * half_step);
}

template <typename Int>
bool StoreInteger(double value, char* element) noexcept {
  const double whole = std::trunc(value);
  // The greatest int64 is not a double. Compare with the power of two above it.
  const double limit = -static_cast<double>(std::numeric_limits<Int>::min());
  if (!(whole >= -limit && whole < limit)) return false;
  const Int integer = static_cast<Int>(whole);
  std::memcpy(element, &integer, sizeof(integer));
  return true;
}

/// Writes `value` as an element. Returns false if the dtype cannot hold it.
bool StoreElement(DType dtype, double value, char* element) noexcept {
  if (dtype == DType::kString) return false;
  if (dtype == DType::kBool) {
    *element = value != 0 ? 1 : 0;
    return !std::isnan(value);
  }
  if (!IsFloating(dtype)) {
    return VisitInteger(dtype, false, [value, element](auto tag) {
      return StoreInteger<typename decltype(tag)::type>(value, element);
    });
  }
  if (std::isfinite(value) && !std::isfinite(RoundTo(dtype, value))) return false;
  StoreReal(dtype, value, element);
  return true;
}

}  // namespace

struct InitializerFillers {
  static void Row(const Initializer& self, const uint64_t*, void* const* rows,
                  size_t count) noexcept {
    for (size_t i = 0; i < count; ++i) std::memcpy(rows[i], self.row_.data(), self.row_.size());
  }

  template <typename T, typename Draw>
  static void Draws(const Initializer& self, const uint64_t* key_words, void* const* rows,
                    size_t count) noexcept {
    using Real = typename Scalar<T>::Real;
    const Draw draw{static_cast<Real>(self.shift_), static_cast<Real>(self.scale_),
                    static_cast<Real>(self.low_), static_cast<Real>(self.high_)};
    WordOf<Real> words[kBlock];
    Real values[kBlock];
    for (size_t row = 0; row < count; ++row) {
      const KeyRandom random(self.seed_, key_words[row]);
      for (size_t begin = 0; begin < self.dim_; begin += kBlock) {
        const size_t block = std::min(kBlock, self.dim_ - begin);
        // Draw whole vectors: the extra elements cost less than a scalar tail.
        const size_t padded = (block + kLanes<Real> - 1) / kLanes<Real> * kLanes<Real>;
        random.Fill(begin, padded, words);
        draw(words, padded, values);
        T* elements = static_cast<T*>(rows[row]) + begin;
        for (size_t i = 0; i < block; ++i) elements[i] = Scalar<T>::Store(values[i]);
      }
    }
  }

  template <typename T, typename Draw>
  DE_AVX2_FUNCTION static void Avx2Draws(const Initializer& self, const uint64_t* key_words,
                                         void* const* rows, size_t count) noexcept {
    Draws<T, Draw>(self, key_words, rows, count);
  }

  template <typename T>
  static void Quantiles(const Initializer& self, const uint64_t* key_words, void* const* rows,
                        size_t count) noexcept {
    using Real = typename Scalar<T>::Real;
    const size_t q = self.columns_.size() / self.dim_;
    WordOf<Real> words[kBlock];
    Real values[kBlock];
    for (size_t row = 0; row < count; ++row) {
      const KeyRandom random(self.seed_, key_words[row]);
      for (size_t begin = 0; begin < self.dim_; begin += kBlock) {
        const size_t block = std::min(kBlock, self.dim_ - begin);
        random.Fill(begin, block, words);
        const float* column = self.columns_.data() + begin * q;
        for (size_t i = 0; i < block; ++i, column += q) {
          values[i] = static_cast<Real>(DrawQuantile(column, q, words[i]));
        }
        T* elements = static_cast<T*>(rows[row]) + begin;
        for (size_t i = 0; i < block; ++i) elements[i] = Scalar<T>::Store(values[i]);
      }
    }
  }

  using Filler = Initializer::Filler;

  template <template <typename> class Draw, template <typename> class Avx2Draw>
  static Filler DrawsOf(DType dtype) noexcept {
    return VisitFloating(dtype, Filler{}, [](auto tag) -> Filler {
      using T = typename decltype(tag)::type;
      using Real = typename Scalar<T>::Real;
      return HasAvx2() ? &Avx2Draws<T, Avx2Draw<Real>> : &Draws<T, Draw<Real>>;
    });
  }

  static Filler QuantilesOf(DType dtype) noexcept {
    return VisitFloating(dtype, Filler{}, [](auto tag) -> Filler {
      return &Quantiles<typename decltype(tag)::type>;
    });
  }
};

Initializer::Initializer(InitializerOptions options, DType dtype, size_t dim)
    : options_(std::move(options)), dtype_(dtype), dim_(dim), seed_(options_.seed) {}

Status Initializer::Create(InitializerOptions options, DType dtype, size_t dim,
                           std::unique_ptr<const Initializer>* initializer) {
  if (dim == 0) {
    return Status::InvalidArgument("the dim of a table must be at least 1. Received: dim=0");
  }
  return Guarded([&]() -> Status {
    std::unique_ptr<Initializer> made(new Initializer(std::move(options), dtype, dim));
    DE_RETURN_IF_ERROR(made->Prepare());
    *initializer = std::move(made);
    return Status::Ok();
  });
}

Status Initializer::Prepare() {
  switch (options_.kind) {
    case Kind::kZeros:
      row_.assign(dim_ * SizeOf(dtype_), '\0');
      fill_ = &InitializerFillers::Row;
      return Status::Ok();
    case Kind::kConstant:
    case Kind::kRow:
      return PrepareRow();
    case Kind::kUniform:
      return PrepareUniform();
    case Kind::kNormal:
    case Kind::kTruncatedNormal:
      return PrepareNormal();
    case Kind::kQuantile:
      return PrepareQuantile();
  }
  return Status::InvalidArgument(
      "the initializer must have a kind that this version knows. Received: kind=" +
      std::to_string(static_cast<int>(options_.kind)));
}

namespace {

Status CheckFloating(DType dtype) {
  if (IsFloating(dtype)) return Status::Ok();
  return Status::InvalidArgument(
      "a random initializer needs a floating-point table; use zeros, a constant or a row. "
      "Received: value_dtype=" +
      Name(dtype));
}

}  // namespace

Status Initializer::PrepareRow() {
  const bool is_constant = options_.kind == Kind::kConstant;
  if (!is_constant && options_.table.size() != dim_) {
    return Status::InvalidArgument("the initial row must have dim=" + std::to_string(dim_) +
                                   " elements. Received: " + std::to_string(options_.table.size()));
  }
  if (dtype_ == DType::kString) {
    return Status::InvalidArgument(
        "the initializer of a string table must be zeros (empty strings). Received: a number");
  }
  row_.resize(dim_ * SizeOf(dtype_));
  for (size_t j = 0; j < dim_; ++j) {
    const double value = is_constant ? options_.a : double{options_.table[j]};
    if (!StoreElement(dtype_, value, row_.data() + j * SizeOf(dtype_))) {
      return Status::InvalidArgument("an initial value must lie in the range of " + Name(dtype_) +
                                     ". Received: " + Number(value) + " (element " +
                                     std::to_string(j) + ")");
    }
  }
  fill_ = &InitializerFillers::Row;
  return Status::Ok();
}

Status Initializer::PrepareUniform() {
  DE_RETURN_IF_ERROR(CheckFloating(dtype_));
  low_ = RoundTo(dtype_, options_.a);
  const double end = RoundTo(dtype_, options_.b);
  if (!std::isfinite(low_) || !std::isfinite(end) || !(options_.a <= options_.b)) {
    return Status::InvalidArgument("a uniform initializer needs finite " + Name(dtype_) +
                                   " bounds, the lower one first. Received: low=" +
                                   Number(options_.a) + ", high=" + Number(options_.b));
  }
  high_ = end > low_ ? std::max(low_, Below(dtype_, end)) : low_;
  shift_ = low_ / 2 + end / 2;
  scale_ = end / 2 - low_ / 2;
  fill_ = InitializerFillers::DrawsOf<Uniform, Uniform>(dtype_);
  return Status::Ok();
}

Status Initializer::PrepareNormal() {
  DE_RETURN_IF_ERROR(CheckFloating(dtype_));
  shift_ = options_.a;
  scale_ = options_.b;
  constexpr double kFarthest = 10;  // all draws are within this many stddev
  const double reach = std::fabs(shift_) + kFarthest * scale_;
  if (!(scale_ >= 0) || !std::isfinite(RoundTo(dtype_, reach))) {
    return Status::InvalidArgument(
        "a normal initializer needs a finite mean and a standard deviation of at least 0, small "
        "enough that mean + 10 stddev is a " +
        Name(dtype_) + ". Received: mean=" + Number(shift_) + ", stddev=" + Number(scale_));
  }
  fill_ = options_.kind == Kind::kNormal
              ? InitializerFillers::DrawsOf<Normal, Avx2Normal>(dtype_)
              : InitializerFillers::DrawsOf<Truncated, Avx2Truncated>(dtype_);
  return Status::Ok();
}

Status Initializer::PrepareQuantile() {
  DE_RETURN_IF_ERROR(CheckFloating(dtype_));
  const std::vector<float>& table = options_.table;
  if (table.empty() || table.size() % dim_ != 0) {
    return Status::InvalidArgument(
        "a quantile table must have one or more rows of dim=" + std::to_string(dim_) +
        " elements. Received: " + std::to_string(table.size()));
  }
  const size_t rows = table.size() / dim_;
  const size_t q = std::max(rows, size_t{2});  // one row is a constant: store it twice
  columns_.resize(dim_ * q);
  for (size_t j = 0; j < dim_; ++j) {
    for (size_t i = 0; i < q; ++i) {
      const float value = table[std::min(i, rows - 1) * dim_ + j];
      if (!std::isfinite(RoundTo(dtype_, value))) {
        return Status::InvalidArgument("a quantile must be a finite " + Name(dtype_) +
                                       ". Received: " + Number(value) + " (column " +
                                       std::to_string(j) + ")");
      }
      columns_[j * q + i] = value;
      if (i > 0 && value < columns_[j * q + i - 1]) {
        return Status::InvalidArgument(
            "each column of a quantile table must ascend: sort it. Received: " + Number(value) +
            " after " + Number(columns_[j * q + i - 1]) + " (column " + std::to_string(j) + ")");
      }
    }
  }
  fill_ = InitializerFillers::QuantilesOf(dtype_);
  return Status::Ok();
}

}  // namespace de::engine
