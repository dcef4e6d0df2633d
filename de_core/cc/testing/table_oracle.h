// The expected contents of a table, in a std::unordered_map. Each element of a row is kept as a
// string of its bytes.
#ifndef DE_CORE_TESTING_TABLE_ORACLE_H_
#define DE_CORE_TESTING_TABLE_ORACLE_H_

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/initial/initializer.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine::testing {

template <typename T>
std::string BytesOf(T value) {
  std::string bytes(sizeof(T), '\0');
  std::memcpy(bytes.data(), &value, sizeof(T));
  return bytes;
}

template <typename T>
T ValueOf(const std::string& bytes) {
  T value;
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

class TableOracle {
 public:
  struct Row {
    std::vector<std::string> values;    // (dim)
    std::vector<std::string> momentum;  // (dim) once the table has that slot
  };
  using Rows = std::unordered_map<std::string, Row>;

  explicit TableOracle(const TableOptions& options) : options_(options) {
    if (!Initializer::Create(options.initializer, options.value_dtype, options.dim, &initializer_)
             .ok()) {
      std::abort();
    }
  }

  Rows& rows() { return rows_; }
  bool has_momentum() const { return has_momentum_; }

  /// Returns key i of a batch as bytes.
  static std::string KeyOf(const Keys& keys, size_t i) {
    return keys.strings == nullptr ? BytesOf(keys.ints[i]) : std::string(keys.strings[i]);
  }

  std::vector<std::string> InitialValues(const Keys& keys, size_t i) const {
    const size_t width = SizeOf(options_.value_dtype);
    if (options_.value_dtype == DType::kString) return std::vector<std::string>(options_.dim);
    std::vector<uint64_t> row(options_.dim * width / 8 + 1);
    initializer_->Fill(WordOf(keys, i), row.data());
    std::vector<std::string> values;
    for (size_t c = 0; c < options_.dim; ++c) {
      values.emplace_back(reinterpret_cast<const char*>(row.data()) + c * width, width);
    }
    return values;
  }

  /// Returns the expected result of a lookup of key i.
  std::vector<std::string> Read(const Keys& keys, size_t i) const {
    const auto at = rows_.find(KeyOf(keys, i));
    return at == rows_.end() ? InitialValues(keys, i) : at->second.values;
  }

  void Assign(const Keys& keys, size_t i, std::vector<std::string> values) {
    RowOf(keys, i).values = std::move(values);
  }

  /// `old_values` may be nullptr.
  void Accumulate(const Keys& keys, size_t i, const std::vector<std::string>& values,
                  const std::vector<std::string>* old_values) {
    if (rows_.count(KeyOf(keys, i)) == 0) return Assign(keys, i, values);
    std::vector<std::string>& row = RowOf(keys, i).values;
    for (size_t c = 0; c < row.size(); ++c) {
      const std::string* old = old_values == nullptr ? nullptr : &(*old_values)[c];
      switch (options_.value_dtype) {
        case DType::kFloat32:
          Add<float>(&row[c], values[c], old);
          break;
        case DType::kFloat64:
          Add<double>(&row[c], values[c], old);
          break;
        case DType::kInt8:
          Add<uint8_t>(&row[c], values[c], old);
          break;
        case DType::kInt32:
          Add<uint32_t>(&row[c], values[c], old);
          break;
        default:
          Add<uint64_t>(&row[c], values[c], old);
          break;
      }
    }
  }

  void FindOrInsert(const Keys& keys, size_t i) {
    if (rows_.count(KeyOf(keys, i)) == 0) Assign(keys, i, InitialValues(keys, i));
  }

  /// Applies the rule "momentum" to the float32 row of key i. `gradient` is the sum over all equal
  /// keys of the batch.
  void Momentum(const Keys& keys, size_t i, const std::vector<float>& gradient, float lr,
                float momentum) {
    FindOrInsert(keys, i);
    Row& row = RowOf(keys, i);
    for (size_t c = 0; c < options_.dim; ++c) {
      const float m = ValueOf<float>(row.momentum[c]) * momentum - gradient[c] * lr;
      row.momentum[c] = BytesOf(m);
      row.values[c] = BytesOf(ValueOf<float>(row.values[c]) + m);
    }
  }

  void AddMomentumSlot() {
    has_momentum_ = true;
    for (auto& [key, row] : rows_) {
      if (row.momentum.empty()) row.momentum.assign(options_.dim, BytesOf(0.0F));
    }
  }

 private:
  template <typename T>
  static void Add(std::string* sum, const std::string& value, const std::string* old) {
    auto delta = ValueOf<T>(value);
    if (old != nullptr) delta = static_cast<T>(delta - ValueOf<T>(*old));
    *sum = BytesOf(static_cast<T>(ValueOf<T>(*sum) + delta));
  }

  Row& RowOf(const Keys& keys, size_t i) {
    const auto [at, fresh] = rows_.try_emplace(KeyOf(keys, i));
    if (fresh && has_momentum_) at->second.momentum.assign(options_.dim, BytesOf(0.0F));
    return at->second;
  }

  TableOptions options_;
  std::unique_ptr<const Initializer> initializer_;
  Rows rows_;
  bool has_momentum_ = false;
};

}  // namespace de::engine::testing

#endif  // DE_CORE_TESTING_TABLE_ORACLE_H_
