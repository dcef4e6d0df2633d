#include "de_core/cc/engine/backend/saved_rows.h"

#include <algorithm>

namespace de::engine {

void SavedRows::Reserve(size_t rows, size_t stride) {
  const auto reserve = [](auto* vector, size_t more) {
    const size_t size = vector->size() + more;
    if (size > vector->capacity()) vector->reserve(std::max(2 * vector->capacity(), size));
  };
  const size_t size = batch_.rows.size(), old_capacity = batch_.rows.capacity();
  reserve(&batch_.rows, rows * stride);
  if (batch_.rows.capacity() > old_capacity) {  // map the new memory now
    batch_.rows.resize(batch_.rows.capacity());
    batch_.rows.resize(size);
  }
  reserve(&batch_.words, rows);
  reserve(&entries_, rows);
  reserve(&others_, rows);
}

SnapshotSection SavedRows::section(const RowLayout& layout, uint64_t begin, uint64_t last) {
  batch_.Finish(layout);
  gone_keys_.assign(gone_texts_.begin(), gone_texts_.end());
  SnapshotSection section = SectionOf(batch_, begin, last);
  section.tombstones = gone_.size();
  section.tombstone_words = gone_.data();
  if (layout.key_type() == KeyType::kString) section.tombstone_keys = gone_keys_.data();
  return section;
}

}  // namespace de::engine
