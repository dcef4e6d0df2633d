#include "de_core/cc/engine/serving/frozen_table.h"

#include <algorithm>
#include <cstring>
#include <locale>
#include <sstream>

#include "de_core/cc/engine/base/guard.h"
#include "de_core/cc/engine/base/hash.h"
#include "de_core/cc/engine/base/prefetch.h"
#include "de_core/cc/engine/base/simd_level.h"
#include "de_core/cc/engine/rows/values.h"

namespace de::engine {
namespace {

// most bytes to prefetch of a row; the hardware prefetches the rest
constexpr size_t kMaxPrefetchBytes = 1024;

constexpr IndexLine kEmptyLine{};
constexpr IndexLine kPassedLine{{}, {}, 0, 1, 0xffff};

/// Parses a decimal number independently of the locale.
bool ParseNumber(const std::string& text, double* number) {
  std::istringstream in(text);
  in.imbue(std::locale::classic());
  return static_cast<bool>(in >> *number) && in.peek() == std::istringstream::traits_type::eof();
}

}  // namespace

Status FrozenTable::Open(std::unique_ptr<SnapshotReader> reader, const SnapshotHeader& unknown,
                         std::unique_ptr<FrozenTable>* table) noexcept {
  return Guarded([&] {
    DE_RETURN_IF_ERROR(SimdLevelStatus());
    std::unique_ptr<FrozenTable> opened(new FrozenTable(std::move(reader)));
    DE_RETURN_IF_ERROR(opened->Start(unknown));
    *table = std::move(opened);
    return Status::Ok();
  });
}

Status FrozenTable::Start(const SnapshotHeader& unknown) {
  if (reinterpret_cast<uintptr_t>(reader_->data()) % alignof(IndexLine) != 0) {
    return Status::InvalidArgument("a snapshot must lie at a multiple of 64 bytes in memory");
  }
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
  blank_.resize((stride_ + sizeof(uint64_t) - 1) / sizeof(uint64_t));
  BuildPlaces();
  BuildCells();
  DE_RETURN_IF_ERROR(OovPolicy::Load(unknown.metadata, &oov_));
  return PrepareOov(unknown.initializer);
}

void FrozenTable::BuildPlaces() {
  const KeyType keys = header().layout.key_type();
  places_.reserve(reader_->sections().size() + 1);
  for (const SectionRecord& section : reader_->sections()) {
    const BlockShape shape = ShapeOf(section, stride_, keys);
    const char* block = reader_->data() + section.offset;
    places_.push_back({section.hash_last, reinterpret_cast<const IndexLine*>(block + shape.lines),
                       block + shape.rows, block + shape.strings, section.string_bytes,
                       section.lines, section.count, block + shape.tombstones, section.tombstones});
  }
  places_.push_back({~uint64_t{0}, &kEmptyLine, nullptr, nullptr, 0, 1, 0, nullptr, 0});
}

/// Builds a table from the first bits of a hash to the section of the hash. There are at least as
/// many cells as sections, so if the hashes are divided evenly, each cell has one section.
void FrozenTable::BuildCells() {
  const size_t sections = places_.size() - 1;
  uint32_t bits = 1;
  while ((size_t{1} << bits) < sections) ++bits;
  cell_shift_ = 64 - bits;
  cells_.reserve(size_t{1} << bits);
  first_places_.reserve((size_t{1} << bits) + 1);
  uint32_t first = 0;
  for (uint64_t i = 0; i < uint64_t{1} << bits; ++i) {
    const uint64_t begin = i << cell_shift_;
    const uint64_t last = begin | (~uint64_t{0} >> bits);
    while (places_[first].hash_last < begin) ++first;
    const Place& place = places_[first];
    const bool one = place.hash_last >= last;
    cells_.push_back(one ? Cell{place.lines, place.line_count, place.count}
                         : Cell{&kPassedLine, 1, 0});
    first_places_.push_back(first);
  }
  first_places_.push_back(static_cast<uint32_t>(sections));
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
        "a table of strings must read unknown keys as a constant, not as a row");
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

Status FrozenTable::CheckArguments(const Keys& keys, const FrozenOut& out) const {
  DE_RETURN_IF_ERROR(CheckBatch(keys.size));
  const bool fits = key_type() == KeyType::kInt64 ? keys.ints != nullptr : keys.strings != nullptr;
  if (!fits && keys.size > 0) {
    return Status::InvalidArgument(std::string("keys must be of the table's type, ") +
                                   std::string(NameOf(key_type())));
  }
  if (value_dtype() == DType::kString ? out.data != nullptr : out.strings != nullptr) {
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
      "every key must be in the table: its policy for unknown keys is \"error\". Received: "
      "key=" +
      key + (table == header().metadata.end() ? "" : ", table=" + table->second));
}

Status FrozenTable::Report(const Failure& failure, const Keys& keys) const {
  if (failure.corrupt == nullptr) return Missing(keys, failure.missing);
  const auto number = static_cast<size_t>(failure.corrupt - places_.data());
  return Status::DataLoss(SectionName(number, reader_->sections()[number].offset) +
                          " is corrupt: its index or a string points outside the section");
}

/// Returns the section of a hash, by binary search between the first section of the hash's cell and
/// the first section of the next cell.
const FrozenTable::Place& FrozenTable::PlaceOf(uint64_t hash) const noexcept {
  const uint64_t cell = hash >> cell_shift_;
  const Place* first = &places_[first_places_[cell]];
  // included: the first section of the next cell may begin in this cell
  const Place* last = &places_[first_places_[cell + 1]];
  return *std::lower_bound(first, last, hash, [](const Place& place, uint64_t wanted) {
    return place.hash_last < wanted;
  });
}

bool FrozenTable::StringAt(const Place& place, const char* at,
                           std::string_view* text) const noexcept {
  SnapshotStringRef ref;
  std::memcpy(&ref, at, sizeof(ref));
  if (ref.offset > place.string_bytes || ref.size > place.string_bytes - ref.offset) return false;
  *text = std::string_view(place.strings + ref.offset, ref.size);
  return true;
}

/// Sets `key` to the string key of a row or tombstone. Tombstones are numbered after the rows.
/// Returns false if the file is corrupt.
bool FrozenTable::RowKeyAt(const Place& place, uint32_t row, std::string_view* key) const noexcept {
  if (row < place.count) {
    return StringAt(place, place.rows + uint64_t{row} * stride_ + key_offset_, key);
  }
  const uint32_t gone = row - place.count;
  return gone < place.tombstone_count &&
         StringAt(place, place.tombstones + gone * sizeof(SnapshotStringRef), key);
}

/// Sets `row` to the row whose string key is `key`, among the rows with this word, or to kNoRow.
/// Returns false if the file is corrupt.
bool FrozenTable::ResolveKey(const Place& place, std::string_view key, uint64_t word, uint64_t hash,
                             uint32_t* row) const noexcept {
  bool intact = true;
  *row = FindRow(place.lines, place.line_count, word, hash, [&](uint32_t candidate) {
    std::string_view text;
    const bool readable = RowKeyAt(place, candidate, &text);
    intact = intact && readable;
    return readable && text == key;
  });
  return intact;
}

void FrozenTable::ReadValue(const char* row, char* value) const noexcept {
  if (!read_) {
    CopyBytes(value, row, value_bytes_);
    return;
  }
  float scale = 1.0F;
  if (scale_offset_ != 0) std::memcpy(&scale, row + scale_offset_, sizeof(scale));
  read_.values(row, scale, dim(), value);
}

void FrozenTable::FillMissing(uint64_t word, char* value) const noexcept {
  if (initializer_ != nullptr) {
    initializer_->Fill(word, value);
  } else {
    CopyBytes(value, reinterpret_cast<const char*>(missing_.data()), value_bytes_);
  }
}

/// Sets the string values of a key with or without a row. Returns false if the file is corrupt.
bool FrozenTable::ReadStrings(const Answer& answer, std::string_view* values) const noexcept {
  const bool constant = oov_.kind == OovPolicy::Kind::kConstant;
  const std::string_view missing = constant ? std::string_view(oov_.value) : std::string_view();
  std::fill_n(values, dim(), missing);
  if (answer.row == nullptr) return true;
  const Place& place = PlaceOf(Mix64(answer.word));
  for (size_t j = 0; j < dim(); ++j) {
    if (!StringAt(place, answer.row + j * sizeof(SnapshotStringRef), &values[j])) return false;
  }
  return true;
}

}  // namespace de::engine
