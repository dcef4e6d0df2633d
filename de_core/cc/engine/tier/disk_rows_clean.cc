// Frees the space of rows on disk that were replaced or erased.
#include <cstring>

#include "de_core/cc/engine/tier/disk_places.h"
#include "de_core/cc/engine/tier/missing_keys.h"

namespace de::engine {
namespace {

constexpr uint64_t kCleanedBytes = uint64_t{1} << 20;  // bytes that are cleaned at once

}  // namespace

/// Chooses the segment to clean, if gaps take too much of the files.
bool DiskRows::ChooseCleaned() noexcept {
  const uint64_t live = live_bytes();
  if (disk_bytes() <= live + live / 2 + 2 * options_.segment_bytes) return false;
  double best = 1;
  for (uint32_t number = 0; number < segments_.size(); ++number) {
    const SegmentFile* const segment = segments_[number].get();
    if (segment == nullptr || number == active_ || segment->is_damaged) continue;
    const double part =
        static_cast<double>(segment->live_bytes) / static_cast<double>(segment->end());
    if (part >= best) continue;
    best = part;
    cleaned_ = number;
    is_cleaning_ = true;
  }
  clean_next_ = 0;
  return is_cleaning_;
}

Status DiskRows::Clean(uint64_t budget) {
  while (is_cleaning_ || ChooseCleaned()) {
    if (segments_[cleaned_]->live_bytes == 0 || clean_next_ >= segments_[cleaned_]->end()) {
      segments_[cleaned_].reset();
      is_cleaning_ = false;
      continue;
    }
    if (budget == 0) return Status::Ok();
    const uint64_t begin = clean_next_;
    DE_RETURN_IF_ERROR(CleanPart(kCleanedBytes));
    // A record may be greater than the part.
    if (is_cleaning_ && clean_next_ == begin) {
      DE_RETURN_IF_ERROR(CleanPart(kMaxRecordBytes + kBlockBytes));
    }
    budget -= std::min(budget, clean_next_ - begin);
  }
  return Status::Ok();
}

/// Writes the live rows of the next part of the cleaned segment again.
Status DiskRows::CleanPart(uint64_t most) {
  SegmentFile& segment = *segments_[cleaned_];
  const std::shared_ptr<const RowLayout> from = segment.layout;
  const uint64_t begin = RoundDown(clean_next_, kBlockBytes);
  const uint64_t bytes = std::min(segment.end() - begin, most);
  BufferLease buffer(*this);
  (*buffer).Reserve(bytes);
  BlockRead read{segment.descriptor(), begin, bytes, (*buffer).data(), 0};
  reader_.Read(&read, 1, nullptr);
  reads_.fetch_add(1, std::memory_order_relaxed);
  const auto damaged = [&] {
    segment.is_damaged = true;
    is_cleaning_ = false;
    return Status::Ok();
  };
  if (read.error != 0) return damaged();
  const bool has_texts = from->key_type() == KeyType::kString;
  RowBatch all;
  RowBatchBuilder builder(*layout_, &all);
  Converters converters(*layout_);
  std::vector<int64_t> places;
  uint64_t at = clean_next_ - begin;
  while (at + sizeof(RowRecord) <= bytes) {
    RowRecord record;
    std::memcpy(&record, read.to + at, sizeof(record));
    if (record.bytes == 0) {  // the rest of the block is empty
      at = RoundDown(at, kBlockBytes) + kBlockBytes;
      continue;
    }
    if (record.bytes > bytes - at) {
      if (begin + bytes == segment.end() || record.bytes > kMaxRecordBytes) return damaged();
      break;
    }
    DecodedRow row;
    if (!DecodeRow(read.to + at, bytes - at, *from, &row)) return damaged();
    DE_RETURN_IF_ERROR(converters.Convert(*from, row.row, builder.Add(row.word)));
    if (has_texts) builder.AddText(row.key);
    places.push_back(Place{cleaned_, begin + at, row.bytes}.Packed());
    at += row.bytes;
    if (at % kBlockBytes + sizeof(RowRecord) > kBlockBytes) at = RoundUpTo(at, kBlockBytes);
  }
  builder.Finish();
  Places newest;
  DE_RETURN_IF_ERROR(FindPlaces(KeysOf(all), nullptr, &newest));
  RowBatch live;
  RowBatchBuilder kept(*layout_, &live);
  const size_t stride = layout_->stride();
  for (size_t i = 0; i < all.size(); ++i) {
    if (!newest.found[i] || newest.packed[i] != places[i]) continue;
    std::memcpy(kept.Add(all.words[i]), all.rows.data() + i * stride, stride);
    if (has_texts) kept.AddText(all.keys[i]);
  }
  kept.Finish();
  if (live.size() > 0) DE_RETURN_IF_ERROR(Write(live));
  clean_next_ = begin + at;
  return Status::Ok();
}

}  // namespace de::engine
