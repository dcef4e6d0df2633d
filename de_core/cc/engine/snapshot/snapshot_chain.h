// A chain of files: a base and the deltas written since. Each file follows the one before.
#ifndef DE_CORE_ENGINE_SNAPSHOT_CHAIN_H_
#define DE_CORE_ENGINE_SNAPSHOT_CHAIN_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/snapshot/snapshot_reader.h"

namespace de::engine {

/// files[first, end): a base and its deltas. Files before `from` have no effect, because the delta
/// at `from` replaces everything.
struct ChainSpan {
  size_t first = 0;
  size_t from = 0;
  size_t end = 0;
};

/// Splits files into chains and checks them: every delta follows its parent; all files have the
/// same key type, dim and dtype to read as; no file is there twice. Otherwise returns
/// FailedPrecondition or InvalidArgument, which names the file by its position in the list.
Status CheckChains(const std::vector<const SnapshotReader*>& files, std::vector<ChainSpan>* chains);

/// A set of keys to look up among the rows of files.
class KeySet {
 public:
  void Add(uint64_t word) { words_.push_back(word); }
  void Add(std::string_view text) { texts_.emplace_back(text); }
  /// Call it after the last Add.
  void Seal();
  /// `text` is the string key, or nullptr.
  bool Contains(uint64_t word, const std::string_view* text) const noexcept;
  bool empty() const noexcept { return words_.empty() && texts_.empty(); }

 private:
  std::vector<uint64_t> words_;
  std::vector<std::string> texts_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_CHAIN_H_
