#include "de_core/cc/engine/serving/frozen_chain.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/snapshot/snapshot_chain.h"

namespace de::engine {
namespace {

// keys that are looked up in the base before they are looked up in the deltas
constexpr size_t kChunk = 1024;
// Bits of the filter per key. About one key in forty passes the filter without being in a delta.
constexpr uint64_t kBitsPerKey = 16;
// Factor for the hash in the filter, because a key's section and index line depend on the same hash
// bits
constexpr uint64_t kSpread = 0x9e3779b97f4a7c15ULL;

uint64_t FilterBits(uint64_t spread) noexcept {
  return uint64_t{1} << (spread & 63) | uint64_t{1} << (spread >> 6 & 63);
}

}  // namespace

Status FrozenChain::Open(std::vector<std::unique_ptr<SnapshotReader>> files,
                         std::unique_ptr<FrozenChain>* chain) noexcept {
  return Guarded([&]() -> Status {
    std::vector<const SnapshotReader*> all;
    for (const auto& file : files) all.push_back(file.get());
    std::vector<ChainSpan> spans;
    DE_RETURN_IF_ERROR(CheckChains(all, &spans));
    if (spans.size() != 1) {
      return Status::FailedPrecondition(
          "a table is served from one base and its deltas. Received: bases=" +
          std::to_string(spans.size()));
    }
    std::unique_ptr<FrozenChain> opened(new FrozenChain);
    for (size_t i = spans[0].from; i < files.size(); ++i) {
      std::unique_ptr<FrozenTable> table;
      DE_RETURN_IF_ERROR(FrozenTable::Open(std::move(files[i]), all.back()->header(), &table));
      if (opened->base_ == nullptr) {
        opened->base_ = std::move(table);
      } else {
        opened->deltas_.push_back(std::move(table));
      }
    }
    opened->BuildFilter();
    *chain = std::move(opened);
    return Status::Ok();
  });
}

void FrozenChain::BuildFilter() {
  uint64_t keys = 0;
  for (const auto& delta : deltas_) {
    keys += delta->reader().rows() + delta->reader().tombstones();
  }
  if (keys == 0) return;
  uint32_t bits = 1;
  while ((uint64_t{64} << bits) < keys * kBitsPerKey) ++bits;
  filter_shift_ = 64 - bits;
  filter_.assign(size_t{1} << bits, 0);
  for (const auto& delta : deltas_) {
    delta->ForEachHash([&](uint64_t hash) {
      const uint64_t spread = hash * kSpread;
      filter_[spread >> filter_shift_] |= FilterBits(spread);
    });
  }
}

bool FrozenChain::MayOverride(uint64_t hash) const noexcept {
  const uint64_t spread = hash * kSpread;
  const uint64_t bits = FilterBits(spread);
  return (filter_[spread >> filter_shift_] & bits) == bits;
}

Status FrozenChain::Find(const Keys& keys, FrozenOut out, bool* found) const noexcept {
  if (filter_.empty()) return base_->Find(keys, out, found);
  return Guarded([&]() -> Status {
    DE_RETURN_IF_ERROR(CheckBatch(keys.size));
    bool own_found[kChunk];
    uint32_t hits[kChunk];
    const bool wanted = out.data != nullptr || out.strings != nullptr;
    const bool strict = wanted && oov().kind == OovPolicy::Kind::kError;
    for (size_t begin = 0; begin < keys.size; begin += kChunk) {
      const Keys part = keys.Slice(begin, std::min(kChunk, keys.size - begin));
      bool* const part_found = found == nullptr ? own_found : found + begin;
      FrozenOut part_out;
      if (out.data != nullptr) {
        part_out.data = static_cast<char*>(out.data) + begin * value_bytes();
      }
      if (out.strings != nullptr) part_out.strings = out.strings + begin * dim();
      size_t count = 0;
      for (size_t i = 0; i < part.size; ++i) {
        hits[count] = static_cast<uint32_t>(i);
        count += MayOverride(Mix64(WordOf(part, i))) ? 1 : 0;
      }
      DE_RETURN_IF_ERROR(base_->Find(part, part_out, part_found, /*strict=*/false));
      for (size_t i = deltas_.size(); i > 0 && count > 0; --i) {  // the newest answer wins
        DE_RETURN_IF_ERROR(deltas_[i - 1]->Override(part, hits, &count, part_out, part_found));
      }
      for (size_t i = 0; strict && i < part.size; ++i) {
        if (!part_found[i]) return base_->Missing(part, i);
      }
    }
    return Status::Ok();
  });
}

Status FrozenChain::Size(uint64_t* rows) const noexcept {
  return Guarded([&] {
    const std::lock_guard<std::mutex> guard(mutex_);
    if (!rows_.has_value()) {
      uint64_t counted = 0;
      DE_RETURN_IF_ERROR(CountRows(&counted));
      rows_ = counted;
    }
    *rows = *rows_;
    return Status::Ok();
  });
}

/// Counts from the base on: each delta adds the rows of keys that earlier files do not have, and
/// its tombstones remove rows that earlier files have.
Status FrozenChain::CountRows(uint64_t* rows) const {
  *rows = base_->reader().rows();
  SectionBuffer buffer;
  std::vector<char> found;
  std::vector<uint32_t> positions;
  for (size_t layer = 0; layer < deltas_.size(); ++layer) {
    const SnapshotReader& reader = deltas_[layer]->reader();
    for (size_t i = 0; i < reader.sections().size(); ++i) {
      DE_RETURN_IF_ERROR(reader.ReadSection(i, &buffer));
      const Keys keys =
          Keys::Of(buffer.words.data(), buffer.keys.empty() ? nullptr : buffer.keys.data(),
                   buffer.words.size());
      found.assign(keys.size, 0);
      bool* const flags = reinterpret_cast<bool*>(found.data());
      DE_RETURN_IF_ERROR(base_->Find(keys, {}, flags, /*strict=*/false));
      positions.resize(keys.size);
      std::iota(positions.begin(), positions.end(), 0U);
      size_t left = keys.size;
      for (size_t below = layer; below > 0; --below) {
        DE_RETURN_IF_ERROR(deltas_[below - 1]->Override(keys, positions.data(), &left, {}, flags));
      }
      for (size_t key = 0; key < keys.size; ++key) {
        const bool there = key < buffer.section.count;
        if (there && !flags[key]) ++*rows;
        if (!there && flags[key]) --*rows;
      }
    }
  }
  return Status::Ok();
}

uint64_t FrozenChain::file_bytes() const noexcept {
  uint64_t bytes = 0;
  for (size_t file = 0; file <= deltas(); ++file) bytes += reader(file).file_bytes();
  return bytes;
}

}  // namespace de::engine
