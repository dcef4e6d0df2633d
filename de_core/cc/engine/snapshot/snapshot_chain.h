// A chain of files: a base and the deltas that were written after it. Each delta has the changes
// since the file before.
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

/// A chain in a list of files: files[first] is its base, files[first + 1, end) are its deltas. If a
/// delta replaces all rows, the files before it have no effect: `from` is the last such delta,
/// otherwise `from` equals `first`.
struct ChainSpan {
  size_t first = 0;
  size_t from = 0;
  size_t end = 0;
};

/// Divides files into chains and checks them: every delta follows its parent, all files have the
/// same key type, dim and dtype to read as, and no file is there twice. Otherwise returns
/// FailedPrecondition or InvalidArgument. The error names the file by its position in the list.
/// With `part`, the first file may be a delta: the files are a part of a chain.
Status CheckChains(const std::vector<const SnapshotReader*>& files, std::vector<ChainSpan>* chains,
                   bool part = false);

/// A set of integer keys, or of string keys.
class KeySet {
 public:
  void Add(uint64_t word) { words_.push_back(word); }
  void Add(std::string_view text) { texts_.emplace_back(text); }
  void Add(const Keys& keys) {
    for (size_t i = 0; i < keys.size; ++i) {
      if (keys.strings != nullptr) Add(keys.strings[i]);
      if (keys.strings == nullptr) Add(static_cast<uint64_t>(keys.ints[i]));
    }
  }
  /// Sorts the keys. Call it after the last Add and before Contains.
  void Seal();
  /// `text` is the string key, or nullptr for the integer key `word`.
  bool Contains(uint64_t word, const std::string_view* text) const noexcept;
  bool empty() const noexcept { return words_.empty() && texts_.empty(); }

 private:
  std::vector<uint64_t> words_;
  std::vector<std::string> texts_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_SNAPSHOT_CHAIN_H_
