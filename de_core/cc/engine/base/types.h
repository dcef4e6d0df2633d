// The value and key types of a table, and the spans its verbs take.
#ifndef DE_CORE_ENGINE_TYPES_H_
#define DE_CORE_ENGINE_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "de_core/cc/engine/base/status.h"

namespace de::engine {

/// Element types of a row. The numbers are part of the snapshot format: never renumber.
enum class DType : uint8_t {
  kFloat32 = 1,
  kFloat64 = 2,
  kHalf = 3,
  kBFloat16 = 4,
  kInt8 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kBool = 8,
  kString = 9,
};

/// Key types. int32 keys are widened to int64 before they reach the engine.
enum class KeyType : uint8_t { kInt64 = 1, kString = 2 };

/// Bytes of one element in a row; a string element is an 8-byte reference into the arena.
constexpr size_t SizeOf(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat64:
    case DType::kInt64:
    case DType::kString:
      return 8;
    case DType::kFloat32:
    case DType::kInt32:
      return 4;
    case DType::kHalf:
    case DType::kBFloat16:
      return 2;
    case DType::kInt8:
    case DType::kBool:
      return 1;
  }
  return 0;
}

constexpr std::string_view NameOf(DType dtype) noexcept {
  switch (dtype) {
    case DType::kFloat32:
      return "float32";
    case DType::kFloat64:
      return "float64";
    case DType::kHalf:
      return "float16";
    case DType::kBFloat16:
      return "bfloat16";
    case DType::kInt8:
      return "int8";
    case DType::kInt32:
      return "int32";
    case DType::kInt64:
      return "int64";
    case DType::kBool:
      return "bool";
    case DType::kString:
      return "string";
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

/// A batch of keys: exactly one of the two pointers is set, as the table's KeyType says.
struct Keys {
  const int64_t* ints = nullptr;              // (size)
  const std::string_view* strings = nullptr;  // (size)
  size_t size = 0;

  /// Keys [begin, begin + count) of this batch.
  Keys Slice(size_t begin, size_t count) const noexcept {
    return {ints == nullptr ? nullptr : ints + begin,
            strings == nullptr ? nullptr : strings + begin, count};
  }
};

/// Largest row value the table accepts, in elements.
inline constexpr size_t kMaxDim = 4096;

/// Most keys of a batch: vector instructions take positions in it as signed 32 bits.
inline constexpr size_t kMaxBatch = 0x7fffffff;

/// InvalidArgument for a batch of too many keys; reads none of them.
inline Status CheckBatch(size_t keys) {
  if (keys <= kMaxBatch) return Status::Ok();
  return Status::InvalidArgument("a batch must hold at most 2^31 - 1 keys: divide it. Received: " +
                                 std::to_string(keys) + " keys");
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TYPES_H_
