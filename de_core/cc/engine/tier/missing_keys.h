// The keys of a batch that have no row in memory, each once.
#ifndef DE_CORE_ENGINE_MISSING_KEYS_H_
#define DE_CORE_ENGINE_MISSING_KEYS_H_

#include <cstdint>
#include <vector>

#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/batch/unique_keys.h"
#include "de_core/cc/engine/rows/row_batch.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {

class MissingKeys {
 public:
  /// Selects the keys for which `found` (keys.size) is false.
  MissingKeys(const Keys& keys, const bool* found) {
    std::vector<uint64_t> words;
    for (size_t i = 0; i < keys.size; ++i) {
      if (found[i]) continue;
      words.push_back(WordOf(keys, i));
      positions_.push_back(static_cast<uint32_t>(i));
    }
    if (positions_.empty()) return;
    unique_.Find(keys, {words.data(), positions_.data(), positions_.size()});
    const ShardKeys distinct = unique_.keys();
    for (size_t i = 0; i < distinct.count; ++i) distinct_.Add(keys, distinct.positions[i]);
  }

  bool empty() const noexcept { return positions_.empty(); }
  /// The distinct keys.
  Keys keys() const noexcept { return distinct_.keys(); }

  /// Calls visit(position in the batch, number of the distinct key) for each missing key.
  template <typename Visit>
  void ForEach(const Visit& visit) const {
    const uint32_t* const unique_of = unique_.repeats().unique_of;
    for (size_t j = 0; j < positions_.size(); ++j) visit(positions_[j], unique_of[j]);
  }

 private:
  std::vector<uint32_t> positions_;  ///< of the missing keys, in the order of the batch
  UniqueKeys unique_;
  KeyList distinct_;
};

/// Returns the keys of the rows of a batch.
inline Keys KeysOf(const RowBatch& rows) noexcept {
  const bool strings = rows.layout.key_type() == KeyType::kString;
  return Keys::Of(rows.words.data(), strings ? rows.keys.data() : nullptr, rows.size());
}

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_MISSING_KEYS_H_
