#include "de_core/cc/engine/runs/run_block.h"

#include <algorithm>
#include <cstring>

#include "de_core/cc/engine/base/crc32c.h"
#include "de_core/cc/engine/base/hash.h"

namespace de::engine {

Status BlockView::Open(const char* bytes, uint64_t size, uint64_t number, uint64_t hash_begin,
                       const RowLayout& layout) {
  const auto corrupt = [&](const char* why) {
    return Status::DataLoss("block " + std::to_string(number) + " is corrupt: " + why);
  };
  if (size < sizeof(BlockRecord) + 64) return corrupt("it is too small");
  uint32_t stored;
  std::memcpy(&stored, bytes + size - sizeof(stored), sizeof(stored));
  if (Crc32c(bytes, size - sizeof(stored)) != stored) return corrupt("its checksum is wrong");
  BlockRecord block;
  std::memcpy(&block, bytes, sizeof(block));
  record_ = {};
  record_.hash_begin = block.hash_begin;
  record_.hash_last = block.hash_last;
  record_.count = block.count;
  record_.lines = block.lines;
  record_.string_bytes = block.string_bytes;
  record_.tombstones = block.tombstones;
  stride_ = layout.stride();
  key_offset_ = layout.key_offset();
  strings_ = layout.key_type() == KeyType::kString;
  if (!IsBlockOf(bytes, number, record_, stride_) || block.hash_begin != hash_begin) {
    return corrupt("it is another block");
  }
  // Each part is at most the block, so the sum of the parts cannot overflow.
  if (block.count > size || block.tombstones > size || block.lines > size || block.lines == 0 ||
      block.string_bytes > size) {
    return corrupt("its sizes are wrong");
  }
  const BlockShape shape = ShapeOf(record_, stride_, layout.key_type());
  if (shape.bytes != size) return corrupt("its sizes are wrong");
  lines_ = reinterpret_cast<const IndexLine*>(bytes + shape.lines);
  rows_ = bytes + shape.rows;
  gone_ = bytes + shape.tombstones;
  texts_ = bytes + shape.strings;
  return Status::Ok();
}

BlockEntry BlockView::Find(uint64_t word, uint64_t hash,
                           const std::string_view* text) const noexcept {
  const uint32_t entries = record_.count + record_.tombstones;
  bool corrupt = false;
  const uint32_t entry = FindRow(lines_, record_.lines, word, hash, [&](uint32_t number) {
    std::string_view found;
    corrupt = corrupt || number >= entries || (text != nullptr && !Text(number, &found));
    return corrupt || text == nullptr || found == *text;
  });
  if (corrupt) return {BlockEntry::Kind::kCorrupt, nullptr};
  if (entry == kNoRow) return {};
  if (entry >= record_.count) return {BlockEntry::Kind::kTombstone, nullptr};
  return {BlockEntry::Kind::kRow, row(entry)};
}

Status BlockView::List(std::vector<std::pair<uint64_t, uint32_t>>* order,
                       std::vector<uint64_t>* words) const {
  const uint32_t entries = record_.count + record_.tombstones;
  order->clear();
  words->assign(entries, 0);
  bool corrupt = false;
  for (uint32_t at = 0; at < record_.lines; ++at) {
    for (uint32_t mask = lines_[at].used & kFullLine; mask != 0; mask &= mask - 1) {
      const uint32_t entry = lines_[at].rows[LowestBit(mask)];
      const uint64_t word = lines_[at].words[LowestBit(mask)];
      std::string_view text;
      corrupt = corrupt || entry >= entries || (strings_ && !Text(entry, &text));
      if (corrupt) break;
      (*words)[entry] = word;
      const uint64_t hash = Mix64(word);
      corrupt = corrupt || hash < record_.hash_begin || hash > record_.hash_last;
      order->emplace_back(hash, entry);
    }
  }
  if (corrupt || order->size() != entries) {
    return Status::DataLoss("its index is malformed");
  }
  std::sort(order->begin(), order->end());
  return Status::Ok();
}

bool BlockView::Text(uint32_t entry, std::string_view* text) const noexcept {
  SnapshotStringRef ref;
  const char* const at = entry < record_.count
                             ? row(entry) + key_offset_
                             : gone_ + uint64_t{entry - record_.count} * sizeof(ref);
  std::memcpy(&ref, at, sizeof(ref));
  if (ref.offset > record_.string_bytes || ref.size > record_.string_bytes - ref.offset) {
    return false;
  }
  *text = std::string_view(texts_ + ref.offset, ref.size);
  return true;
}

}  // namespace de::engine
