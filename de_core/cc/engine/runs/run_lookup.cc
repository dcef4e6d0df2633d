#include "de_core/cc/engine/runs/run_lookup.h"

#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {

RunLookup::RunLookup(const RunVersion& version, const Keys& keys, size_t begin, size_t count,
                     const RowLayout& layout, char* rows, bool* found)
    : version_(version),
      keys_(keys.Slice(begin, count)),
      layout_(layout),
      rows_(rows == nullptr ? nullptr : rows + begin * layout.stride()),
      found_(found + begin),
      states_(count) {}

Status RunLookup::Start() {
  std::memset(found_, 0, keys_.size);
  again_.reserve(256);
  converters_.resize(version_.runs());
  if (rows_ == nullptr) return Status::Ok();
  size_t at = 0;
  for (const std::vector<RunRef>* runs : {&version_.upper, &version_.last}) {
    for (const RunRef& run : *runs) {
      DE_RETURN_IF_ERROR(
          RowConverter::Create(run.layout, layout_, /*slots=*/true, &converters_[at++]));
    }
  }
  return Status::Ok();
}

/// Hashes a key and prefetches its filters.
void RunLookup::Hash(size_t number) {
  State& state = states_[number];
  state.word = keys_.strings != nullptr ? HashBytes(keys_.strings[number])
                                        : static_cast<uint64_t>(keys_.ints[number]);
  const uint64_t hash = Mix64(state.word);
  state.filter_hash = FilterHash(hash);
  state.run = 0;
  for (const RunRef& run : version_.upper) run.file->filter().Prefetch(state.filter_hash);
  const RunRef* const last = version_.LastOf(hash);
  if (last != nullptr) last->file->filter().Prefetch(state.filter_hash);
}

bool RunLookup::Next(RunRead* read) {
  while (!again_.empty()) {
    const uint32_t number = again_.back();
    again_.pop_back();
    if (NextRun(number, read)) return true;
  }
  for (; next_ < states_.size();) {
    for (; hashed_ < std::min(next_ + kAhead, states_.size()); ++hashed_) Hash(hashed_);
    if (NextRun(static_cast<uint32_t>(next_++), read)) return true;
  }
  return false;
}

/// Finds the next run that may have a key.
bool RunLookup::NextRun(uint32_t number, RunRead* read) {
  State& state = states_[number];
  const uint64_t hash = Mix64(state.word);
  const auto runs = static_cast<uint32_t>(version_.upper.size());
  while (state.run <= runs) {
    const RunRef* const run =
        state.run == runs ? version_.LastOf(hash) : &version_.upper[state.run];
    ++state.run;
    if (run == nullptr || hash < run->file->hash_begin() || hash > run->file->hash_last()) continue;
    if (!run->file->filter().MayContain(state.filter_hash)) continue;
    *read = {run->file.get(), run->file->BlockOf(hash), number};
    return true;
  }
  return false;
}

Status RunLookup::Done(const RunRead& read, const char* bytes) {
  ++reads_;
  read_bytes_ += read.run->block_bytes(read.block);
  DE_RETURN_IF_ERROR(read.run->View(read.block, bytes, &view_));
  const State& state = states_[read.tag];
  const uint64_t hash = Mix64(state.word);
  const std::string_view* const text =
      keys_.strings == nullptr ? nullptr : keys_.strings + read.tag;
  const BlockEntry entry = view_.Find(state.word, hash, text);
  switch (entry.kind) {
    case BlockEntry::Kind::kCorrupt:
      return read.run->Corrupt("block " + std::to_string(read.block) + " has a malformed index");
    case BlockEntry::Kind::kTombstone:
      return Status::Ok();
    case BlockEntry::Kind::kAbsent:
      ++false_positives_;
      again_.push_back(read.tag);
      return Status::Ok();
    case BlockEntry::Kind::kRow:
      break;
  }
  found_[read.tag] = true;
  if (rows_ == nullptr) return Status::Ok();
  const uint32_t runs = static_cast<uint32_t>(version_.upper.size());
  const size_t which =
      state.run <= runs ? state.run - 1
                        : runs + static_cast<size_t>(version_.LastOf(hash) - version_.last.data());
  char* const to = rows_ + read.tag * layout_.stride();
  if (converters_[which].identity()) {
    CopyBytes(to, entry.row, layout_.stride());
  } else {
    converters_[which].Convert(entry.row, to);
  }
  return Status::Ok();
}

}  // namespace de::engine
