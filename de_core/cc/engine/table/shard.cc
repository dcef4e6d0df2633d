#include "de_core/cc/engine/table/shard.h"

#include <algorithm>

#include "de_core/cc/engine/rows/slot_copy.h"

namespace de::engine {
namespace {

constexpr uint32_t kFirstLines = 2;

// Number of keys at which a segment grows: 80 % of its entries, that is, four of the five entries
// of each line.
constexpr uint32_t Limit(uint32_t lines) noexcept { return lines * 4; }

// Number of keys for which a segment is created when the number of rows is known: half of its
// entries. Then 2 % of the keys are not in their home line. At 80 % it would be 13 %, and each of
// these keys costs a lookup another cache line.
constexpr uint32_t Roomy(uint32_t lines) noexcept { return lines * kEntriesPerLine / 2; }

// Segments whose keys CountProbes counts: all of a table of about 100,000 rows.
constexpr size_t kSampledSegments = 4;

// Limits the directory's entries per segment. An attacker can choose keys whose hashes agree in all
// bits that the directory uses: splitting never separates them, but doubles the directory each
// time. Beyond this limit, segments grow instead.
constexpr size_t kPlacesPerSegment = 64;

}  // namespace

Shard::Shard(const RowLayout& layout, Arena* arena, uint64_t seed, uint32_t segment_lines)
    : Shard(arena, seed, segment_lines, layout.stride(), layout.key_type(), layout.value_dtype(),
            layout.dim(), layout.key_offset()) {
  MakeIndex(kFirstLines, 0);
}

IndexLine* Shard::AllocateLines(uint32_t lines) {
  return reinterpret_cast<IndexLine*>(memory_->Allocate(lines * sizeof(IndexLine), true));
}

void Shard::FreeLines(IndexLine* lines, uint32_t count) noexcept {
  memory_->Free(reinterpret_cast<char*>(lines), count * sizeof(IndexLine));
}

void Shard::FreeIndex() noexcept {
  for (const Segment& segment : segments_) FreeLines(segment.lines, segment.size);
  segments_.clear();
  directory_.clear();
}

void Shard::MakeIndex(uint32_t lines, uint32_t depth) {
  shift_ = 63 - depth;
  const uint32_t count = 1U << depth;
  segments_.reserve(count);
  directory_.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    IndexLine* cell = AllocateLines(lines);
    segments_.push_back({cell, lines, 0, depth});
    directory_.push_back({cell, lines, i});
  }
}

void Shard::SwapIndex(Shard* other) noexcept {
  directory_.swap(other->directory_);
  segments_.swap(other->segments_);
  std::swap(shift_, other->shift_);
}

void Shard::SwapRows(Shard* other) noexcept {
  slab_.Swap(&other->slab_);
  std::swap(arena_, other->arena_);
  ++renumbered_;
}

/// Returns the directory entry of the segment into which an absent key is inserted. If the segment
/// is full, grows or splits it first.
const Shard::Place& Shard::PlaceWithRoom(uint64_t hash) {
  const Place& place = PlaceOf(hash);
  if (segments_[place.segment].count < Limit(place.size)) return place;
  MakeRoom(hash);
  return PlaceOf(hash);
}

uint32_t Shard::Insert(const IndexKey& key) {
  const Place& place = PlaceWithRoom(key.hash);
  const uint32_t row = slab_.Allocate();
  if (key.bytes != nullptr) StringArena::StoreRef(Row(row) + key_offset_, arena_.Put(*key.bytes));
  if (value_dtype_ == DType::kString) std::memset(Row(row), 0, dim_ * sizeof(StringArena::Ref));
  LineIndex(place.lines, place.size).Insert(key.word, SeededHash(key.hash, seed_), row);
  ++segments_[place.segment].count;
  SetSize(size() + 1);
  return row;
}

bool Shard::Erase(const IndexKey& key, bool moved) noexcept {
  const Place& place = PlaceOf(key.hash);
  LineIndex index(place.lines, place.size);
  const uint64_t seeded = SeededHash(key.hash, seed_);
  const auto at = index.Find(key.word, seeded, [&](uint32_t row) { return IsRowOf(row, key); });
  if (!at.found()) return false;
  const uint32_t row = place.lines[at.line].rows[at.entry];
  if (watch != nullptr) watch->BeforeErase(key.word, key.hash, row, Row(row), key.bytes, moved);
  slab_.Free(row);
  ++renumbered_;
  index.Erase(at, seeded);
  --segments_[place.segment].count;
  SetSize(size() - 1);
  FreeStrings(Row(row));
  return true;
}

void Shard::FreeStrings(char* row) noexcept {
  if (key_type_ == KeyType::kString) arena_.Free(StringArena::LoadRef(row + key_offset_));
  if (value_dtype_ == DType::kString) {
    for (size_t i = 0; i < dim_; ++i)
      arena_.Free(StringArena::LoadRef(row + i * sizeof(StringArena::Ref)));
  }
}

void Shard::ReplaceStrings(char* row, const std::string_view* values) {
  fresh_strings_.reserve(dim_);
  try {
    for (size_t i = 0; i < dim_; ++i) fresh_strings_.push_back(arena_.Put(values[i]));
  } catch (const std::bad_alloc&) {
    for (const StringArena::Ref ref : fresh_strings_) arena_.Free(ref);
    fresh_strings_.clear();
    throw;
  }
  for (size_t i = 0; i < dim_; ++i) {
    char* const at = row + i * sizeof(StringArena::Ref);
    arena_.Free(StringArena::LoadRef(at));
    StringArena::StoreRef(at, fresh_strings_[i]);
  }
  fresh_strings_.clear();
}

std::unique_ptr<Shard> Shard::Emptied() const {
  std::unique_ptr<Shard> empty(new Shard(*this, Empty()));
  empty->MakeIndex(kFirstLines, 0);
  return empty;
}

void Shard::Clear(std::unique_ptr<Shard> empty) noexcept {
  if (watch != nullptr) watch->Cleared();
  SwapIndex(empty.get());
  SwapRows(empty.get());
  SetSize(0);
}

void Shard::MakeRoom(uint64_t hash) {
  const uint32_t segment = PlaceOf(hash).segment;
  const Segment& full = segments_[segment];
  if (full.size < segment_lines_) {
    Resize(segment, std::min(full.size * 2, segment_lines_));
  } else if (full.depth == 63 - shift_ &&
             directory_.size() >= kPlacesPerSegment * (segments_.size() + 1)) {
    Resize(segment, full.size * 2);
  } else {
    Split(segment, hash);
  }
}

void Shard::Resize(uint32_t segment, uint32_t lines) {
  const Segment old = segments_[segment];
  IndexLine* cell = AllocateLines(lines);
  LineIndex index(cell, lines);
  uint64_t any_hash = 0;
  ForEachEntry(old.lines, old.size, [&](uint64_t word, uint32_t row) {
    any_hash = Mix64(word);
    index.Insert(word, SeededHash(any_hash, seed_), row);
  });
  segments_[segment].lines = cell;
  segments_[segment].size = lines;
  PointAt(segment, any_hash);
  FreeLines(old.lines, old.size);
}

void Shard::Split(uint32_t segment, uint64_t hash) {
  const Segment old = segments_[segment];
  if (old.depth == 63 - shift_) {
    std::vector<Place> doubled;
    doubled.reserve(directory_.size() * 2);
    for (const Place& place : directory_) doubled.insert(doubled.end(), 2, place);
    directory_ = std::move(doubled);
    --shift_;
  }
  const uint64_t bit = uint64_t{1} << (63 - kShardBits - old.depth);
  if (segments_.size() == segments_.capacity()) segments_.reserve(2 * segments_.size());
  Segment halves[2];
  for (Segment& half : halves) half = {AllocateLines(old.size), old.size, 0, old.depth + 1};
  ForEachEntry(old.lines, old.size, [&](uint64_t word, uint32_t row) {
    const uint64_t entry_hash = Mix64(word);
    Segment& half = halves[(entry_hash & bit) != 0];
    LineIndex(half.lines, half.size).Insert(word, SeededHash(entry_hash, seed_), row);
    ++half.count;
  });
  segments_.push_back(halves[1]);
  segments_[segment] = halves[0];
  PointAt(segment, hash & ~bit);
  PointAt(static_cast<uint32_t>(segments_.size() - 1), hash | bit);
  FreeLines(old.lines, old.size);
}

// Makes all directory entries of a segment refer to it. `hash` is one of the hashes that belong to
// the segment.
void Shard::PointAt(uint32_t segment, uint64_t hash) {
  const Segment& target = segments_[segment];
  const uint32_t depth = 63 - shift_;
  const size_t span = size_t{1} << (depth - target.depth);
  const size_t at = static_cast<size_t>(((hash << kShardBits) >> 1) >> shift_) / span * span;
  for (size_t i = at; i < at + span; ++i) directory_[i] = {target.lines, target.size, segment};
}

void Shard::Rebuild(uint64_t rows, bool compact) {
  if (!compact && rows > 0 && rows <= index_lines() * Limit(1)) {
    slab_.Reserve(rows);
    return;
  }
  std::vector<std::pair<uint64_t, uint32_t>> entries;
  entries.reserve(size());
  for (const Segment& segment : segments_) {
    ForEachEntry(segment.lines, segment.size,
                 [&](uint64_t word, uint32_t row) { entries.emplace_back(word, row); });
  }
  Shard fresh(*this, Empty());
  std::vector<std::pair<uint32_t, uint32_t>> moves;
  if (compact) fresh.CopyPacked(*this, &entries, watch == nullptr ? nullptr : &moves);
  rows = std::max<uint64_t>(rows, entries.size());
  (compact ? fresh.slab_ : slab_).Reserve(rows);
  uint32_t depth = 0;
  while ((uint64_t{Roomy(segment_lines_)} << depth) < rows && depth < 30) ++depth;
  const uint64_t lines = (rows >> depth) * 2 / kEntriesPerLine + kFirstLines;
  fresh.MakeIndex(static_cast<uint32_t>(std::min<uint64_t>(lines, segment_lines_)), depth);
  for (const auto& [word, row] : entries) {
    const uint64_t hash = Mix64(word);
    const Place& place = fresh.PlaceWithRoom(hash);
    LineIndex(place.lines, place.size).Insert(word, SeededHash(hash, seed_), row);
    ++fresh.segments_[place.segment].count;
  }
  SwapIndex(&fresh);
  if (!compact) return;
  SwapRows(&fresh);
  if (watch != nullptr) watch->Renumber(moves);
}

/// Copies the rows and strings of all `entries` (word, row number) in the order of their old
/// numbers, and writes the new numbers into `entries`. `moves` receives (old number, new number)
/// unless it is nullptr.
void Shard::CopyPacked(const Shard& from, std::vector<std::pair<uint64_t, uint32_t>>* entries,
                       std::vector<std::pair<uint32_t, uint32_t>>* moves) {
  std::sort(entries->begin(), entries->end(),
            [](const auto& a, const auto& b) { return a.second < b.second; });
  for (auto& [word, row] : *entries) {
    const uint32_t fresh = slab_.Allocate();
    char* to = Row(fresh);
    std::memcpy(to, from.Row(row), slab_.stride());
    const auto copy = [&](char* at) {
      StringArena::StoreRef(at, arena_.Put(StringArena::Get(StringArena::LoadRef(at))));
    };
    if (key_type_ == KeyType::kString) copy(to + key_offset_);
    if (value_dtype_ == DType::kString) {
      for (size_t i = 0; i < dim_; ++i) copy(to + i * sizeof(StringArena::Ref));
    }
    if (moves != nullptr) moves->emplace_back(row, fresh);
    row = fresh;
  }
}

Slab Shard::Relaid(const RowLayout& from, const RowLayout& to) const {
  Slab moved(to.stride(), memory_);
  moved.ResizeLike(slab_);
  bool appended = to.slots().size() >= from.slots().size();
  for (size_t i = 0; appended && i < from.slots().size(); ++i) {
    appended = to.slots()[i].spec.dtype == from.slots()[i].spec.dtype;
  }
  const size_t kept = from.key_type() == KeyType::kString ? from.key_offset() : from.stride();
  std::vector<SlotCopy> shared;
  if (!appended) shared = SharedSlots(from, to);
  for (uint32_t row = 0; row < slab_.used(); ++row) {
    char* target = moved.Row(row);
    const char* source = slab_.Row(row);
    std::memcpy(target, source, appended ? kept : from.value_bytes());
    to.FillSlots(target, appended ? from.slots().size() : 0);
    for (const SlotCopy& slot : shared) slot.Run(source, target);
    if (to.key_type() == KeyType::kString) {
      std::memcpy(target + to.key_offset(), slab_.Row(row) + from.key_offset(),
                  sizeof(StringArena::Ref));
    }
  }
  return moved;
}

size_t Shard::index_lines() const noexcept {
  size_t lines = 0;
  for (const Segment& segment : segments_) lines += segment.size;
  return lines;
}

void Shard::CountProbes(std::vector<uint64_t>* probes) const {
  std::vector<uint64_t> counts(probes->size());
  uint64_t counted = 0;
  const size_t step = (segments_.size() + kSampledSegments - 1) / kSampledSegments;
  for (size_t i = 0; i < segments_.size(); i += step) {
    const Segment& segment = segments_[i];
    for (uint32_t at = 0; at < std::min(segment.size, segment_lines_); ++at) {
      for (uint32_t mask = segment.lines[at].used; mask != 0; mask &= mask - 1) {
        const uint64_t hash = Mix64(segment.lines[at].words[LowestBit(mask)]);
        const uint32_t home = ReduceLow32(SeededHash(hash, seed_), segment.size);
        const uint32_t passed = at >= home ? at - home : at + segment.size - home;
        ++counts[std::min<size_t>(passed, counts.size() - 1)];
        ++counted;
      }
    }
  }
  if (counted == 0) return;
  // The rounding is in the first number, so that all numbers together count the rows.
  (*probes)[0] += size();
  for (size_t i = 1; i < counts.size(); ++i) {
    const auto share = static_cast<double>(counts[i]) / static_cast<double>(counted);
    const auto keys = static_cast<uint64_t>(share * static_cast<double>(size()));
    (*probes)[i] += keys;
    (*probes)[0] -= keys;
  }
}

}  // namespace de::engine
