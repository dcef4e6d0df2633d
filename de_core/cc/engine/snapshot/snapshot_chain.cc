#include "de_core/cc/engine/snapshot/snapshot_chain.h"

#include <algorithm>
#include <functional>

namespace de::engine {
namespace {

std::string Describe(const SnapshotHeader& header) {
  return std::string(header.kind == SnapshotKind::kBase ? "base " : "delta ") + HexOf(header.id) +
         " (sequence " + std::to_string(header.sequence) +
         (header.kind == SnapshotKind::kBase ? ")" : ", on " + HexOf(header.parent) + ")");
}

}  // namespace

Status CheckChains(const std::vector<const SnapshotReader*>& files, std::vector<ChainSpan>* chains,
                   bool part) {
  chains->clear();
  if (files.empty()) {
    return Status::InvalidArgument("there must be at least one snapshot file. Received: none");
  }
  for (size_t i = 0; i < files.size(); ++i) {
    const SnapshotHeader& header = files[i]->header();
    const SnapshotHeader& first = files[0]->header();
    const std::string received = ". Received: file " + std::to_string(i) + ", " + Describe(header);
    if (header.layout.key_type() != first.layout.key_type() ||
        header.layout.dim() != first.layout.dim() || header.reads_as() != first.reads_as()) {
      return Status::InvalidArgument("all files must have the same key type, dim and value dtype" +
                                     received + " with dim=" + std::to_string(header.layout.dim()) +
                                     ", " + std::string(NameOf(header.reads_as())));
    }
    for (size_t j = 0; j < i; ++j) {
      if (files[j]->header().id != header.id) continue;
      return Status::FailedPrecondition("a file must not be given twice" + received);
    }
    if (header.kind == SnapshotKind::kBase || (i == 0 && part)) {
      chains->push_back({i, i, i + 1});
      continue;
    }
    if (i == 0) {
      return Status::FailedPrecondition("a delta must come after its base" + received);
    }
    const SnapshotHeader& before = files[i - 1]->header();
    if (header.parent != before.id || header.sequence <= before.sequence) {
      return Status::FailedPrecondition(
          "a delta must directly follow its parent: give the base and all its deltas in the "
          "order of their sequence" +
          received + ", after " + Describe(before));
    }
    chains->back().end = i + 1;
    if (header.replaces) chains->back().from = i;
  }
  return Status::Ok();
}

void KeySet::Seal() {
  std::sort(words_.begin(), words_.end());
  std::sort(texts_.begin(), texts_.end());
}

bool KeySet::Contains(uint64_t word, const std::string_view* text) const noexcept {
  if (text == nullptr) return std::binary_search(words_.begin(), words_.end(), word);
  return std::binary_search(texts_.begin(), texts_.end(), *text, std::less<>());
}

}  // namespace de::engine
