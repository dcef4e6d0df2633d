// Looking a key up in a file that lies on others: its row, its tombstone, or neither.
#include <cstring>

#include "de_core/cc/engine/frozen_table.h"
#include "de_core/cc/engine/guard.h"
#include "de_core/cc/engine/hash.h"
#include "de_core/cc/engine/partition.h"

namespace de::engine {

bool FrozenTable::LocateOne(const Keys& keys, size_t i, Probe* probe) const noexcept {
  probe->word = WordOf(keys, i);
  probe->hash = Mix64(probe->word);
  Locate(probe);
  const Place& place = places_[probe->place];
  bool intact = true;
  probe->row =
      FindRow(probe->lines, probe->line_count, probe->word, probe->hash, [&](uint32_t row) {
        if (keys.strings == nullptr) return true;
        const bool gone = row >= place.count;
        const char* at = gone ? place.tombstones + (row - place.count) * sizeof(SnapshotStringRef)
                              : place.rows + uint64_t{row} * stride_ + key_offset_;
        std::string_view text;
        if ((gone && row - place.count >= place.tombstone_count) || !StringAt(place, at, &text)) {
          intact = false;
          return false;
        }
        return text == keys.strings[i];
      });
  return intact && (probe->row == kNoRow || probe->row < place.count ||
                    probe->row - place.count < place.tombstone_count);
}

Status FrozenTable::Override(const Keys& keys, size_t i, void* value, bool* found) const noexcept {
  return Guarded([&] {
    Probe probe{};
    if (!LocateOne(keys, i, &probe)) return Corrupt(probe);
    if (probe.row == kNoRow) return Status::Ok();
    *found = IsInside(probe);
    if (value == nullptr) return Status::Ok();
    if (*found) {
      ReadValue(RowAt(probe), static_cast<char*>(value));
    } else {
      FillMissing(probe.word, static_cast<char*>(value));
    }
    return Status::Ok();
  });
}

Status FrozenTable::OverrideStrings(const Keys& keys, size_t i, std::string_view* value,
                                    bool* found) const noexcept {
  return Guarded([&] {
    Probe probe{};
    if (!LocateOne(keys, i, &probe)) return Corrupt(probe);
    if (probe.row == kNoRow) return Status::Ok();
    *found = IsInside(probe);
    const bool constant = oov_.kind == OovPolicy::Kind::kConstant;
    for (size_t j = 0; value != nullptr && j < dim(); ++j) {
      value[j] = constant ? std::string_view(oov_.value) : std::string_view();
      if (*found && !StringAt(places_[probe.place], RowAt(probe) + j * sizeof(SnapshotStringRef),
                              &value[j])) {
        return Corrupt(probe);
      }
    }
    return Status::Ok();
  });
}

}  // namespace de::engine
