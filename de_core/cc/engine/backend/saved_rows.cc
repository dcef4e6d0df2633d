#include "de_core/cc/engine/backend/saved_rows.h"

#include <algorithm>

namespace de::engine {

void SavedRows::Clear() noexcept {
  words_.clear();
  gone_.clear();
  row_bytes_ = 0;
  bytes_.clear();
  lengths_.clear();
  gone_bytes_.clear();
  gone_lengths_.clear();
  keys_.clear();
  values_.clear();
}

char* SavedRows::AddRow(uint64_t word, size_t stride) {
  if (row_bytes_ + stride > rows_.size()) {
    rows_.resize(std::max(2 * rows_.size(), row_bytes_ + stride));
  }
  words_.push_back(word);
  row_bytes_ += stride;
  return rows_.data() + row_bytes_ - stride;
}

void SavedRows::AddText(std::string_view text) {
  lengths_.push_back(text.size());
  bytes_.append(text);
}

void SavedRows::AddGone(uint64_t word, const std::string_view* text) {
  gone_.push_back(word);
  if (text == nullptr) return;
  gone_bytes_.append(*text);
  gone_lengths_.push_back(text->size());
}

void SavedRows::Reserve(size_t rows, size_t stride) {
  const size_t wanted = row_bytes_ + rows * stride;
  if (wanted > rows_.size()) rows_.resize(std::max(2 * rows_.size(), wanted));
  const auto reserve = [rows](auto* vector) {
    const size_t size = vector->size() + rows;
    if (size > vector->capacity()) vector->reserve(std::max(2 * vector->capacity(), size));
  };
  reserve(&words_);
  reserve(&entries_);
  reserve(&others_);
}

SnapshotSection SavedRows::section(const RowLayout& layout, uint64_t begin, uint64_t last) {
  const bool string_keys = layout.key_type() == KeyType::kString;
  const size_t texts = layout.value_dtype() == DType::kString ? layout.dim() : 0;
  const char* next = bytes_.data();
  const size_t* length = lengths_.data();
  const auto take = [&](std::vector<std::string_view>* views) {
    views->emplace_back(next, *length);
    next += *length++;
  };
  keys_.clear();
  values_.clear();
  for (size_t row = 0; row < words_.size() && !lengths_.empty(); ++row) {
    if (string_keys) take(&keys_);
    for (size_t i = 0; i < texts; ++i) take(&values_);
  }
  next = gone_bytes_.data();
  length = gone_lengths_.data();
  for (size_t i = 0; i < gone_lengths_.size(); ++i) take(&keys_);
  SnapshotSection section = SectionOf(layout, begin, last, words_, rows_.data(), keys_, values_);
  section.tombstones = gone_.size();
  section.tombstone_words = gone_.data();
  if (string_keys) section.tombstone_keys = keys_.data() + words_.size();
  return section;
}

}  // namespace de::engine
