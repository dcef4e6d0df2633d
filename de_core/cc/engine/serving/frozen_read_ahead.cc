// Requests the pages that a lookup in mapped files will read, before it reads them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/index/line_index.h"
#include "de_core/cc/engine/serving/frozen_chain.h"

namespace de::engine {
namespace {

uintptr_t PageBytes() noexcept {
  static const auto bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

}  // namespace

void PageBatch::Add(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t page = begin / PageBytes(); page * PageBytes() < begin + bytes; ++page) {
    if (pages_.empty() || pages_.back() != page) pages_.push_back(page);
  }
}

void PageBatch::Request() noexcept {
  std::sort(pages_.begin(), pages_.end());
  pages_.erase(std::unique(pages_.begin(), pages_.end()), pages_.end());
  for (size_t i = 0; i < pages_.size();) {
    size_t end = i + 1;
    while (end < pages_.size() && pages_[end] == pages_[end - 1] + 1) ++end;
    (void)::madvise(reinterpret_cast<void*>(pages_[i] * PageBytes()), (end - i) * PageBytes(),
                    MADV_WILLNEED);
    i = end;
  }
  pages_.clear();
}

void FrozenTable::AddPages(FrozenPart part, const Keys& keys,
                           const std::vector<uint32_t>& positions, PageBatch* pages) const {
  const size_t texts = value_dtype() == DType::kString ? dim() : 0;
  const bool string_keys = key_type() == KeyType::kString;
  std::string_view text;
  for (const uint32_t i : positions) {
    const uint64_t word = WordOf(keys, i);
    const uint64_t hash = Mix64(word);
    const Place& place = PlaceOf(hash);
    if (part == FrozenPart::kLines) {
      pages->Add(place.lines + ReduceLow32(hash, place.line_count), sizeof(IndexLine));
      continue;
    }
    // Of string keys with equal words, only the first row is requested.
    const uint32_t row =
        FindRow(place.lines, place.line_count, word, hash, [](uint32_t) { return true; });
    if (row == kNoRow) continue;
    const bool is_row = row < place.count;
    const char* const at = place.rows + uint64_t{row} * stride_;
    if (part == FrozenPart::kRows && is_row) {
      pages->Add(at, string_keys ? stride_ : prefetch_bytes_);
    } else if (part == FrozenPart::kRows && row - place.count < place.tombstone_count) {
      pages->Add(place.tombstones + uint64_t{row - place.count} * sizeof(SnapshotStringRef),
                 sizeof(SnapshotStringRef));
    }
    if (part != FrozenPart::kTexts) continue;
    if (string_keys && RowKeyAt(place, row, &text)) pages->Add(text.data(), text.size());
    for (size_t j = 0; is_row && j < texts; ++j) {
      if (!StringAt(place, at + j * sizeof(SnapshotStringRef), &text)) continue;
      pages->Add(text.data(), text.size());
    }
  }
}

Status FrozenChain::ReadAhead(const Keys& keys) const noexcept {
  return Guarded([&] {
    DE_RETURN_IF_ERROR(CheckBatch(keys.size));
    if ((base_->key_type() == KeyType::kString) != (keys.strings != nullptr)) return Status::Ok();
    std::vector<uint32_t> all(keys.size), changed;
    std::iota(all.begin(), all.end(), 0U);
    for (const uint32_t i : all) {
      if (!filter_.empty() && MayOverride(Mix64(WordOf(keys, i)))) changed.push_back(i);
    }
    const bool has_texts =
        base_->key_type() == KeyType::kString || base_->value_dtype() == DType::kString;
    PageBatch pages;
    // The lines say where the rows are, and the rows say where their strings are.
    for (const FrozenPart part : {FrozenPart::kLines, FrozenPart::kRows, FrozenPart::kTexts}) {
      if (part == FrozenPart::kTexts && !has_texts) break;
      base_->AddPages(part, keys, all, &pages);
      for (const auto& delta : deltas_) delta->AddPages(part, keys, changed, &pages);
      pages.Request();
    }
    return Status::Ok();
  });
}

}  // namespace de::engine
