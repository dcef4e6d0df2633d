// The value and key types of a table, and the key batches that verbs take.
#ifndef DE_CORE_ENGINE_TYPES_H_
#define DE_CORE_ENGINE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Every element type of a row: its constant, its number in snapshot files (never renumber), its
/// bytes in a row, its name. A string element is an 8-byte reference (StringArena::Ref).
#define DE_ELEMENT_TYPES(TYPE)      \
  TYPE(kFloat32, 1, 4, "float32")   \
  TYPE(kFloat64, 2, 8, "float64")   \
  TYPE(kHalf, 3, 2, "float16")      \
  TYPE(kBFloat16, 4, 2, "bfloat16") \
  TYPE(kInt8, 5, 1, "int8")         \
  TYPE(kInt32, 6, 4, "int32")       \
  TYPE(kInt64, 7, 8, "int64")       \
  TYPE(kBool, 8, 1, "bool")         \
  TYPE(kString, 9, 8, "string")

enum class DType : uint8_t {
#define DE_ENUMERATOR(constant, number, bytes, name) constant = number,
  DE_ELEMENT_TYPES(DE_ENUMERATOR)
#undef DE_ENUMERATOR
};

/// Key types. int32 keys are widened to int64 before they reach the engine.
enum class KeyType : uint8_t { kInt64 = 1, kString = 2 };

/// Bytes of one element in a row.
constexpr size_t SizeOf(DType dtype) noexcept {
  switch (dtype) {
#define DE_CASE(constant, number, bytes, name) \
  case DType::constant:                        \
    return bytes;
    DE_ELEMENT_TYPES(DE_CASE)
#undef DE_CASE
  }
  return 0;
}

constexpr std::string_view NameOf(DType dtype) noexcept {
  switch (dtype) {
#define DE_CASE(constant, number, bytes, name) \
  case DType::constant:                        \
    return name;
    DE_ELEMENT_TYPES(DE_CASE)
#undef DE_CASE
  }
  return "unknown";
}

constexpr std::string_view NameOf(KeyType type) noexcept {
  return type == KeyType::kInt64 ? "int64" : "string";
}

constexpr bool IsFloating(DType dtype) noexcept {
  return dtype == DType::kFloat32 || dtype == DType::kFloat64 || dtype == DType::kHalf ||
         dtype == DType::kBFloat16;
}

/// A batch of keys. The table's KeyType decides which of the two pointers is set.
struct Keys {
  const int64_t* ints = nullptr;              // (size)
  const std::string_view* strings = nullptr;  // (size)
  size_t size = 0;

  /// Returns the integer keys `words`, or if `texts` is not nullptr the string keys `texts`.
  static Keys Of(const uint64_t* words, const std::string_view* texts, size_t size) noexcept {
    return {texts == nullptr ? reinterpret_cast<const int64_t*>(words) : nullptr, texts, size};
  }

  /// Returns keys [begin, begin + count) of this batch.
  Keys Slice(size_t begin, size_t count) const noexcept {
    return {ints == nullptr ? nullptr : ints + begin,
            strings == nullptr ? nullptr : strings + begin, count};
  }
};

/// Some keys of a batch, copied. String keys remain views of their bytes.
class KeyList {
 public:
  void Add(const Keys& keys, size_t i) {
    if (keys.strings != nullptr) {
      strings_.push_back(keys.strings[i]);
    } else {
      ints_.push_back(keys.ints[i]);
    }
  }
  Keys keys() const noexcept {
    const bool strings = !strings_.empty();
    return {strings ? nullptr : ints_.data(), strings ? strings_.data() : nullptr,
            strings ? strings_.size() : ints_.size()};
  }

 private:
  std::vector<int64_t> ints_;
  std::vector<std::string_view> strings_;
};

/// Greatest number of elements in a row's value.
inline constexpr size_t kMaxDim = 4096;

/// Greatest number of keys in a batch. Vector instructions read a position in the batch as a signed
/// 32-bit number.
inline constexpr size_t kMaxBatch = 0x7fffffff;

/// Returns InvalidArgument if a batch has too many keys. Does not read the keys.
inline Status CheckBatch(size_t keys) {
  if (keys <= kMaxBatch) return Status::Ok();
  return Status::InvalidArgument("a batch must hold at most 2^31 - 1 keys: divide it. Received: " +
                                 std::to_string(keys) + " keys");
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TYPES_H_
