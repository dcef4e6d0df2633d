// Decodes a fuzzer's bytes: the kind of table, and how its verbs are called.
#ifndef DE_CORE_TESTING_TABLE_FUZZ_INPUT_H_
#define DE_CORE_TESTING_TABLE_FUZZ_INPUT_H_

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/test_executor.h"

namespace de::engine::testing {

/// Makes decisions from the fuzzer's bytes. Decides 0 when the bytes are used up.
class Input {
 public:
  Input(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return at_ >= size_; }
  uint32_t Below(uint32_t n) { return empty() ? 0 : data_[at_++] % n; }
  /// Returns a generator, seeded from the input, for data that would need too many bytes of input.
  std::mt19937 Random() { return std::mt19937(Below(256) * 256 + Below(256)); }

 private:
  const uint8_t* data_;
  size_t size_;
  size_t at_ = 0;
};

class Strings final : public ValueSink {
 public:
  explicit Strings(size_t count) : got(count) {}
  void Set(size_t element, std::string_view bytes) override { got[element] = bytes; }
  std::vector<std::string> got;
};

inline constexpr DType kDtypes[] = {DType::kFloat32,  DType::kInt32,   DType::kString,
                                    DType::kInt8,     DType::kFloat64, DType::kHalf,
                                    DType::kBFloat16, DType::kInt64,   DType::kBool};
inline constexpr size_t kDims[] = {1, 8, 3, 16, 2, 32, 64, 65};

inline TableOptions OptionsFrom(Input* input) {
  TableOptions options;
  options.key_type = input->Below(2) == 0 ? KeyType::kInt64 : KeyType::kString;
  options.value_dtype = kDtypes[input->Below(std::size(kDtypes))];
  options.dim = kDims[input->Below(std::size(kDims))];
  options.init_size = input->Below(4) == 0 ? 5000 : 0;
  if (options.value_dtype != DType::kString) {
    options.initializer.kind = static_cast<InitializerOptions::Kind>(input->Below(2));
    options.initializer.a = options.value_dtype == DType::kBool ? 1 : 3;
  }
  if (IsFloating(options.value_dtype) && input->Below(2) == 1) {
    options.initializer.kind = InitializerOptions::Kind::kUniform;
    options.initializer.a = -1;
    options.initializer.b = 1;
    options.initializer.seed = 7;
  }
  return options;
}

/// Returns key number `n`. `collisions` selects how the keys' hashes collide.
inline int64_t KeyNumber(uint32_t collisions, uint64_t n) {
  switch (collisions) {
    case 0:
      return static_cast<int64_t>(n) - 5;
    case 1:
      return static_cast<int64_t>(n << 48);
    case 2:
      return static_cast<int64_t>(Mix64(n));
    // Case 3: hashes that begin with the same bits. Case 4: hashes in one shard, in many index
    // segments, and with the same home line in each.
    case 3:
      return static_cast<int64_t>(UnMix64(0xabcdef0000000000ULL | n));
    case 4:
      return static_cast<int64_t>(UnMix64(0xb000000000000000ULL | (n << 45)));
    default:
      return static_cast<int64_t>(UnMix64((n % 700) << 40));
  }
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_TABLE_FUZZ_INPUT_H_
