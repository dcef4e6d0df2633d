#include "de_core/cc/engine/frozen_table.h"

#include <algorithm>
#include <cstring>
#include <locale>
#include <sstream>

#include "de_core/cc/engine/guard.h"
#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/prefetch.h"
#include "de_core/cc/engine/snapshot_index.h"
#include "de_core/cc/engine/values.h"

namespace de::engine {
namespace {

constexpr size_t kWindow = 16;              // keys between two stages of the pipeline
constexpr size_t kRing = 4 * kWindow;       // keys in the pipeline
constexpr size_t kMaxPrefetchBytes = 1024;  // of a row; the hardware follows longer ones

constexpr IndexLine kEmptyLine{};

/// A decimal number, whatever the locale.
bool ParseNumber(const std::string& text, double* number) {
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  return static_cast<bool>(in >> *number) && in.peek() == std::istringstream::traits_type::eof();
}

}  // namespace

Status FrozenTable::Open(const char* data, size_t size, const FrozenOptions& options,
                         std::unique_ptr<FrozenTable>* table) noexcept {
  return Guarded([&] {
    std::unique_ptr<FrozenTable> opened(new FrozenTable);
    DE_RETURN_IF_ERROR(opened->Start(data, size, options));
    *table = std::move(opened);
    return Status::Ok();
  });
}

Status FrozenTable::Start(const char* data, size_t size, const FrozenOptions& options) {
  if (reinterpret_cast<uintptr_t>(data) % alignof(IndexLine) != 0) {
    return Status::InvalidArgument("a snapshot must lie at a multiple of 64 bytes in memory");
  }
  DE_RETURN_IF_ERROR(SnapshotReader::Open(data, size, options.verify, &reader_));
  const RowLayout& layout = header().layout;
  stride_ = layout.stride();
  value_bytes_ = layout.dim() * SizeOf(value_dtype());
  key_offset_ = layout.key_offset();
  const RowSlot* scale = layout.FindSlot(kScaleOwner, kScaleName);
  if (header().converted.has_value()) {
    read_ = ReaderOf(layout.value_dtype(), value_dtype());
    if (scale != nullptr && layout.value_dtype() == DType::kInt8) scale_offset_ = scale->offset;
  }
  const size_t touched = scale_offset_ == 0 ? layout.value_bytes() : scale_offset_ + sizeof(float);
  prefetch_bytes_ = std::min(touched, kMaxPrefetchBytes);
  BuildPlaces(data);
  BuildCells();
  const SnapshotHeader& unknown = options.unknown == nullptr ? header() : *options.unknown;
  DE_RETURN_IF_ERROR(OovPolicy::Load(unknown.metadata, &oov_));
  if (options.oov.has_value()) oov_ = *options.oov;
  return PrepareOov(unknown.initializer);
}

void FrozenTable::BuildPlaces(const char* data) {
  const KeyType keys = header().layout.key_type();
  places_.reserve(reader_->sections().size() + 1);
  for (const SectionRecord& section : reader_->sections()) {
    const BlockShape shape = ShapeOf(section, stride_, keys);
    const char* block = data + section.offset;
    places_.push_back({section.hash_last, reinterpret_cast<const IndexLine*>(block + shape.lines),
                       block + shape.rows, block + shape.strings, section.string_bytes,
                       section.lines, section.count, block + shape.tombstones, section.tombstones});
  }
  places_.push_back({~uint64_t{0}, &kEmptyLine, nullptr, nullptr, 0, 1, 0, nullptr, 0});
}

/// Cells are at least as many as sections, so that a table split evenly has one place a cell.
void FrozenTable::BuildCells() {
  const size_t sections = places_.size() - 1;
  uint32_t bits = 1;
  while ((size_t{1} << bits) < sections) ++bits;
  cell_shift_ = 64 - bits;
  cells_.reserve((size_t{1} << bits) + 1);
  uint32_t place = 0;
  for (uint64_t i = 0; i < uint64_t{1} << bits; ++i) {
    const uint64_t begin = i << cell_shift_;
    const uint64_t last = begin | (~uint64_t{0} >> bits);
    while (places_[place].hash_last < begin) ++place;
    const bool one = places_[place].hash_last >= last;
    cells_.push_back({one ? places_[place].lines : nullptr, places_[place].line_count, place});
  }
  cells_.push_back({nullptr, 0, static_cast<uint32_t>(sections)});
}

Status FrozenTable::PrepareOov(const InitializerOptions& initializer) {
  InitializerOptions options = initializer;
  switch (oov_.kind) {
    case OovPolicy::Kind::kInitial:
      break;
    case OovPolicy::Kind::kError:
    case OovPolicy::Kind::kRow:
    case OovPolicy::Kind::kZeros:
      options = {};
      break;
    case OovPolicy::Kind::kConstant:
      if (value_dtype() == DType::kString) return Status::Ok();  // oov_.value is the string
      options = {};
      options.kind = InitializerOptions::Kind::kConstant;
      if (!ParseNumber(oov_.value, &options.a)) {
        return Status::InvalidArgument(
            "the constant for unknown keys must be a number. Received: oov_value=" + oov_.value);
      }
  }
  if (value_dtype() == DType::kString && oov_.kind == OovPolicy::Kind::kRow) {
    return Status::InvalidArgument(
        "unknown keys of a table of strings read as a constant, not as a row");
  }
  DE_RETURN_IF_ERROR(Initializer::Create(options, value_dtype(), dim(), &initializer_));
  if (initializer_->is_random()) return Status::Ok();
  missing_.resize((value_bytes_ + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  initializer_->Fill(0, missing_.data());
  initializer_.reset();
  if (oov_.kind == OovPolicy::Kind::kRow) {
    if (oov_.value.size() != value_bytes_) {
      return Status::InvalidArgument(
          "the row for unknown keys must be of " + std::to_string(value_bytes_) +
          " bytes. Received: bytes=" + std::to_string(oov_.value.size()));
    }
    std::memcpy(missing_.data(), oov_.value.data(), value_bytes_);
  }
  return Status::Ok();
}

FrozenStats FrozenTable::stats() const noexcept {
  FrozenStats stats;
  stats.rows = size();
  stats.sections = reader_->sections().size();
  stats.file_bytes = reader_->file_bytes();
  stats.row_bytes = size() * stride_;
  stats.string_bytes = reader_->string_bytes();
  for (const Place& place : places_) stats.index_bytes += place.line_count * sizeof(IndexLine);
  stats.index_bytes -= sizeof(IndexLine);  // the line of the empty place is not in the file
  stats.heap_bytes = places_.capacity() * sizeof(Place) + cells_.capacity() * sizeof(Cell) +
                     stats.sections * sizeof(SectionRecord);
  return stats;
}

Status FrozenTable::CheckKeys(const Keys& keys, bool string_values) const {
  const bool fits = key_type() == KeyType::kInt64 ? keys.ints != nullptr : keys.strings != nullptr;
  if (!fits && keys.size > 0) {
    return Status::InvalidArgument(std::string("keys must be of the table's type, ") +
                                   std::string(NameOf(key_type())));
  }
  if ((value_dtype() == DType::kString) != string_values) {
    return Status::InvalidArgument("values must be of the table's dtype, " +
                                   std::string(NameOf(value_dtype())));
  }
  return Status::Ok();
}

Status FrozenTable::Missing(const Keys& keys, size_t i) const {
  const std::string key = keys.ints != nullptr
                              ? std::to_string(keys.ints[i])
                              : '"' + std::string(keys.strings[i].substr(0, 200)) + '"';
  const auto table = header().metadata.find("table");
  return Status::NotFound(
      "every key must be in the table, as its policy for unknown keys is \"error\". Received: "
      "key=" +
      key + (table == header().metadata.end() ? "" : ", table=" + table->second));
}

Status FrozenTable::Corrupt(const Probe& probe) const {
  return Status::DataLoss(SectionName(probe.place, reader_->sections()[probe.place].offset) +
                          " is corrupt: its index or a string of it points outside it");
}

void FrozenTable::Locate(Probe* probe) const noexcept {
  const Cell* cell = &cells_[probe->hash >> cell_shift_];
  probe->lines = cell->lines;
  probe->line_count = cell->line_count;
  probe->place = cell->place;
  if (cell->lines != nullptr) return;
  const Place* first = &places_[cell[0].place];
  const Place* last = &places_[cell[1].place];  // the first place of the next cell may begin here
  while (first < last) {
    const Place* middle = first + (last - first) / 2;
    if (middle->hash_last < probe->hash) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  probe->lines = first->lines;
  probe->line_count = first->line_count;
  probe->place = static_cast<uint32_t>(first - places_.data());
}

bool FrozenTable::StringAt(const Place& place, const char* at,
                           std::string_view* text) const noexcept {
  SnapshotStringRef ref;
  std::memcpy(&ref, at, sizeof(ref));
  if (ref.offset > place.string_bytes || ref.size > place.string_bytes - ref.offset) return false;
  *text = std::string_view(place.strings + ref.offset, ref.size);
  return true;
}

/// Moves on to the row whose key bytes are `key`, or to kNoRow. False where the file is corrupt.
bool FrozenTable::ResolveKey(std::string_view key, Probe* probe) const noexcept {
  const Place& place = places_[probe->place];
  bool intact = true;
  const auto is_key = [&](uint32_t row) {
    std::string_view text;
    if (row < place.count &&
        StringAt(place, place.rows + uint64_t{row} * stride_ + key_offset_, &text)) {
      return text == key;
    }
    intact = false;
    return false;
  };
  if (is_key(probe->row)) return true;
  probe->row = FindRow(probe->lines, probe->line_count, probe->word, probe->hash, is_key);
  return intact;
}

/// Keys move through four stages, kWindow keys apart, so that each cache miss of a key (index line,
/// row, for strings the key bytes) is under way while others are worked on.
template <bool kStringKeys, typename Deliver>
Status FrozenTable::Run(const Keys& keys, bool strict, const Deliver& deliver) const {
  Probe ring[kRing];
  for (size_t step = 0; step < keys.size + 3 * kWindow; ++step) {
    if (step < keys.size) {
      Probe& probe = ring[step % kRing];
      if constexpr (kStringKeys) {
        probe.word = HashBytes(keys.strings[step]);
      } else {
        probe.word = static_cast<uint64_t>(keys.ints[step]);
      }
      probe.hash = Mix64(probe.word);
      Locate(&probe);
      const IndexLine* home = probe.lines + ReduceLow32(probe.hash, probe.line_count);
      PrefetchFar(home);
      PrefetchFar(home + 1);  // where one search in six goes on; behind the last: rows
      PrefetchFar(&places_[probe.place]);
    }
    if (step >= kWindow && step - kWindow < keys.size) {
      Probe& probe = ring[(step - kWindow) % kRing];
      // For string keys whose words collide this may be another's row; ResolveKey sees to that.
      probe.row = FindRow(probe.lines, probe.line_count, probe.word, probe.hash,
                          [](uint32_t) { return true; });
      if (IsInside(probe)) {
        PrefetchBytes(RowAt(probe), prefetch_bytes_);
        if (kStringKeys) PrefetchFar(RowAt(probe) + key_offset_);
      }
    }
    if (kStringKeys && step >= 2 * kWindow && step - 2 * kWindow < keys.size) {
      const Probe& probe = ring[(step - 2 * kWindow) % kRing];
      std::string_view text;
      if (IsInside(probe) && StringAt(places_[probe.place], RowAt(probe) + key_offset_, &text)) {
        PrefetchFar(text.data());
      }
    }
    if (step >= 3 * kWindow) {
      const size_t i = step - 3 * kWindow;
      Probe& probe = ring[i % kRing];
      if (kStringKeys && probe.row != kNoRow && !ResolveKey(keys.strings[i], &probe)) {
        return Corrupt(probe);
      }
      if (probe.row == kNoRow) {
        if (strict && oov_.kind == OovPolicy::Kind::kError) return Missing(keys, i);
      } else if (!IsInside(probe)) {
        return Corrupt(probe);
      }
      if (!deliver(i, probe)) return Corrupt(probe);
    }
  }
  return Status::Ok();
}

template <typename Deliver>
Status FrozenTable::RunKeys(const Keys& keys, bool strict, const Deliver& deliver) const {
  return key_type() == KeyType::kString ? Run<true>(keys, strict, deliver)
                                        : Run<false>(keys, strict, deliver);
}

void FrozenTable::ReadValue(const char* row, char* value) const noexcept {
  if (read_ == nullptr) {
    CopyBytes(value, row, value_bytes_);
    return;
  }
  float scale = 1.0F;
  if (scale_offset_ != 0) std::memcpy(&scale, row + scale_offset_, sizeof(scale));
  read_(row, scale, dim(), value);
}

void FrozenTable::FillMissing(uint64_t word, char* value) const noexcept {
  if (initializer_ != nullptr) {
    initializer_->Fill(word, value);
  } else {
    CopyBytes(value, reinterpret_cast<const char*>(missing_.data()), value_bytes_);
  }
}

Status FrozenTable::Find(const Keys& keys, void* values, bool* found, bool strict) const noexcept {
  return Guarded([&] {
    const bool strings = value_dtype() == DType::kString;
    DE_RETURN_IF_ERROR(CheckKeys(keys, values == nullptr && strings));
    char* const out = static_cast<char*>(values);
    const char* const missing = reinterpret_cast<const char*>(missing_.data());
    if (out == nullptr) {  // nobody asks what the rows are
      return RunKeys(keys, false, [&](size_t i, const Probe& probe) {
        if (found != nullptr) found[i] = probe.row != kNoRow;
        return true;
      });
    }
    if (read_ != nullptr) {
      return RunKeys(keys, strict, [&](size_t i, const Probe& probe) {
        const bool is_found = probe.row != kNoRow;
        if (is_found) {
          ReadValue(RowAt(probe), out + i * value_bytes_);
        } else {
          FillMissing(probe.word, out + i * value_bytes_);
        }
        if (found != nullptr) found[i] = is_found;
        return true;
      });
    }
    return RunKeys(keys, strict, [&](size_t i, const Probe& probe) {
      const bool is_found = probe.row != kNoRow;
      char* value = out + i * value_bytes_;
      if (is_found) {
        CopyBytes(value, RowAt(probe), value_bytes_);
      } else if (initializer_ != nullptr) {
        initializer_->Fill(probe.word, value);
      } else {
        CopyBytes(value, missing, value_bytes_);
      }
      if (found != nullptr) found[i] = is_found;
      return true;
    });
  });
}

Status FrozenTable::FindStrings(const Keys& keys, std::string_view* values, bool* found,
                                bool strict) const noexcept {
  return Guarded([&] {
    DE_RETURN_IF_ERROR(CheckKeys(keys, true));
    const bool constant = oov_.kind == OovPolicy::Kind::kConstant;
    const std::string_view missing = constant ? std::string_view(oov_.value) : std::string_view();
    return RunKeys(keys, strict && values != nullptr, [&](size_t i, const Probe& probe) {
      const bool is_found = probe.row != kNoRow;
      for (size_t j = 0; values != nullptr && j < dim(); ++j) {
        std::string_view* value = values + i * dim() + j;
        *value = missing;
        if (is_found &&
            !StringAt(places_[probe.place], RowAt(probe) + j * sizeof(SnapshotStringRef), value)) {
          return false;
        }
      }
      if (found != nullptr) found[i] = is_found;
      return true;
    });
  });
}

}  // namespace de::engine
