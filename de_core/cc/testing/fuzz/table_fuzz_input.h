// Decodes a fuzzer's bytes: the kind of table, how its verbs are called, and the rows.
#ifndef DE_CORE_TESTING_TABLE_FUZZ_INPUT_H_
#define DE_CORE_TESTING_TABLE_FUZZ_INPUT_H_

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/table_oracle.h"
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

/// The rows of a batch, in the formats of the oracle and of the table.
struct DrawnRows {
  std::vector<std::vector<std::string>> rows;  // (keys)
  std::string packed;                          // (keys, dim)
  std::vector<std::string_view> views;         // (keys, dim)
  bool strings;
  Values values() const {
    return {strings ? nullptr : packed.data(), strings ? views.data() : nullptr};
  }
};

/// Returns a row of small numbers that every dtype but bool represents exactly.
inline std::vector<std::string> DrawRow(const TableOptions& options, std::mt19937* random) {
  std::vector<std::string> row;
  for (size_t c = 0; c < options.dim; ++c) {
    const auto number = static_cast<int>((*random)() % 255) - 127;
    switch (options.value_dtype) {
      case DType::kFloat32:
        row.push_back(BytesOf(static_cast<float>(number)));
        break;
      case DType::kFloat64:
        row.push_back(BytesOf(static_cast<double>(number)));
        break;
      case DType::kHalf:
      case DType::kBFloat16:
        row.push_back(BytesOf(static_cast<int16_t>(number)));
        break;
      case DType::kInt8:
        row.push_back(BytesOf(static_cast<int8_t>(number)));
        break;
      case DType::kInt32:
        row.push_back(BytesOf(static_cast<int32_t>(number)));
        break;
      case DType::kInt64:
        row.push_back(BytesOf(static_cast<int64_t>(number)));
        break;
      case DType::kBool:
        row.push_back(BytesOf(number > 0));
        break;
      case DType::kString:
        row.emplace_back(static_cast<size_t>(number & 31) * (number == 3 ? 900 : 1),
                         static_cast<char>(number));
        break;
    }
  }
  return row;
}

inline DrawnRows DrawRows(const TableOptions& options, size_t count, std::mt19937 random) {
  DrawnRows in;
  in.strings = options.value_dtype == DType::kString;
  for (size_t i = 0; i < count; ++i) in.rows.push_back(DrawRow(options, &random));
  for (const auto& row : in.rows) {
    for (const std::string& element : row) {
      in.packed += element;
      in.views.emplace_back(element);
    }
  }
  // An empty batch must still have a pointer of the right kind.
  if (in.packed.empty()) in.packed.assign(8, '\0');
  return in;
}

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_TABLE_FUZZ_INPUT_H_
