// The rows that a fuzzer writes into a table.
#ifndef DE_CORE_TESTING_TABLE_FUZZ_ROWS_H_
#define DE_CORE_TESTING_TABLE_FUZZ_ROWS_H_

#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/table/table.h"
#include "de_core/cc/testing/table_oracle.h"

namespace de::engine::testing {

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

#endif  // DE_CORE_TESTING_TABLE_FUZZ_ROWS_H_
