// Files that follow one another: a base and the deltas written since, each on the one before.
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

/// files[first, end): a base and its deltas. What lies before `from` says nothing any more, because
/// that delta begins from nothing.
struct ChainSpan {
  size_t first = 0;
  size_t from = 0;
  size_t end = 0;
};

/// Splits files into chains and checks that they are: every delta lies behind its parent, all are
/// of one key type, dim and dtype to read as, no file is there twice. FailedPrecondition or
/// InvalidArgument, naming the file by its place in the list.
Status CheckChains(const std::vector<const SnapshotReader*>& files, std::vector<ChainSpan>* chains);

/// Keys to look for among the rows of files.
class KeySet {
 public:
  void Add(uint64_t word) { words_.push_back(word); }
  void Add(std::string_view text) { texts_.emplace_back(text); }
  /// After the last Add.
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
