// The layout of a row: [value | slots of the first optimizer | slots of the next … | key].
//
// The layout is run-time data: one code path serves every dtype, dim and optimizer. Slots are
// appended when an optimizer first uses the table. They move only when another optimizer's slots
// are removed, or when slots get another dtype.
#ifndef DE_CORE_ENGINE_ROW_LAYOUT_H_
#define DE_CORE_ENGINE_ROW_LAYOUT_H_

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "de_core/cc/engine/base/status.h"
#include "de_core/cc/engine/base/types.h"
#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {

/// Owner and name of the slot that holds the scale of an int8 row: value = stored * scale.
inline constexpr std::string_view kScaleOwner = "de.stored";
inline constexpr std::string_view kScaleName = "scale";

/// Greatest number of slots of a row, with the columns of policies.
inline constexpr size_t kMaxSlots = 64;

/// A part of a row that belongs to an optimizer.
struct SlotSpec {
  std::string name;
  DType dtype;
  size_t width;    ///< in elements
  double initial;  ///< initial value of each element
};

/// One optimizer slot in a row. `owner` names the optimizer.
struct RowSlot {
  std::string owner;
  SlotSpec spec;
  size_t offset = 0;  ///< bytes from the start of the row

  size_t bytes() const noexcept { return spec.width * SizeOf(spec.dtype); }
};

class RowLayout {
 public:
  RowLayout(KeyType key_type, DType value_dtype, size_t dim)
      : key_type_(key_type), value_dtype_(value_dtype), dim_(dim) {
    Place();
  }

  KeyType key_type() const noexcept { return key_type_; }
  DType value_dtype() const noexcept { return value_dtype_; }
  size_t dim() const noexcept { return dim_; }
  size_t value_bytes() const noexcept { return dim_ * SizeOf(value_dtype_); }
  const std::vector<RowSlot>& slots() const noexcept { return slots_; }

  /// Number of times that slots were added or removed. Two layouts of one table are equal if their
  /// generations are equal. Code that keeps a copy of the layout compares generations to learn that
  /// the table's has changed.
  uint64_t generation() const noexcept { return generation_; }

  /// Bytes from the start of one row to the next. The last 8 bytes hold a string key's reference.
  size_t stride() const noexcept { return stride_; }
  size_t key_offset() const noexcept { return key_offset_; }

  /// Adds the slots of one owner that do not exist yet, or exist with another floating-point dtype,
  /// to `changes`. Returns an error if a slot exists with another width or kind of dtype, or if the
  /// row would have too many slots.
  Status FindChanges(const std::string& owner, const std::vector<SlotSpec>& specs,
                     std::vector<SlotSpec>* changes) const {
    size_t slots = slots_.size();
    for (const SlotSpec& spec : specs) {
      const RowSlot* slot = FindSlot(owner, spec.name);
      if (slot == nullptr) {
        changes->push_back(spec);
        ++slots;
        continue;
      }
      const SlotSpec& held = slot->spec;
      const bool same = held.dtype == spec.dtype;
      if (held.width != spec.width ||
          (!same && !(IsFloating(held.dtype) && IsFloating(spec.dtype)))) {
        return Status::InvalidArgument("slot '" + spec.name + "' of optimizer '" + owner +
                                       "' must keep its width and kind of dtype. Received: " +
                                       Describe(spec) + " where the table holds " + Describe(held));
      }
      if (!same) changes->push_back(spec);
    }
    if (slots > kMaxSlots) {
      return Status::InvalidArgument(
          "a table has at most 64 slots: drop_slots removes the slots of an optimizer that "
          "slot_owners() lists. Received: optimizer='" +
          owner + "', slots=" + std::to_string(slots));
    }
    return Status::Ok();
  }

  /// Appends the slots that FindChanges found missing, and changes the dtype of the others.
  void Change(std::string_view owner, const std::vector<SlotSpec>& changes) {
    for (const SlotSpec& spec : changes) {
      const auto is_it = [&](const RowSlot& slot) {
        return slot.owner == owner && slot.spec.name == spec.name;
      };
      const auto slot = std::find_if(slots_.begin(), slots_.end(), is_it);
      if (slot == slots_.end()) {
        slots_.push_back({std::string(owner), spec, 0});
      } else {
        slot->spec.dtype = spec.dtype;
      }
    }
    ++generation_;
    Place();
  }

  /// Appends the slots of one owner. Existing slots keep their offsets.
  void Append(std::string_view owner, const std::vector<SlotSpec>& specs) {
    for (const SlotSpec& spec : specs) slots_.push_back({std::string(owner), spec, 0});
    ++generation_;
    Place();
  }

  /// Removes the slots of one owner. Later slots move forward.
  void Remove(std::string_view owner) {
    const auto is_owners = [owner](const RowSlot& slot) { return slot.owner == owner; };
    slots_.erase(std::remove_if(slots_.begin(), slots_.end(), is_owners), slots_.end());
    ++generation_;
    Place();
  }

  /// Writes the initial values of slots [first, …) into a row.
  void FillSlots(char* row, size_t first) const noexcept {
    if (first >= slots_.size()) return;
    // Write the padding between slots too, so that it never contains old data.
    const size_t begin = first == 0 ? value_bytes() : slots_[first].offset;
    const size_t end = slots_.back().offset + slots_.back().bytes();
    std::memcpy(row + begin, initial_.data() + begin, end - begin);
  }

  /// True if the rows of both layouts have the same bytes.
  bool IsLike(const RowLayout& other) const noexcept {
    const auto same = [](const RowSlot& a, const RowSlot& b) {
      return a.owner == b.owner && a.offset == b.offset && a.spec.name == b.spec.name &&
             a.spec.width == b.spec.width && a.spec.dtype == b.spec.dtype;
    };
    return key_type_ == other.key_type_ && value_dtype_ == other.value_dtype_ &&
           dim_ == other.dim_ &&
           std::equal(slots_.begin(), slots_.end(), other.slots_.begin(), other.slots_.end(), same);
  }

  /// True if the row has a slot of `owner`.
  bool HasOwner(std::string_view owner) const noexcept {
    for (const RowSlot& slot : slots_) {
      if (slot.owner == owner) return true;
    }
    return false;
  }

  /// Returns the slot `name` of `owner`, or nullptr.
  const RowSlot* FindSlot(std::string_view owner, std::string_view name) const noexcept {
    for (const RowSlot& slot : slots_) {
      if (slot.owner == owner && slot.spec.name == name) return &slot;
    }
    return nullptr;
  }

 private:
  static std::string Describe(const SlotSpec& spec) {
    return "width=" + std::to_string(spec.width) + ", dtype=" + std::string(NameOf(spec.dtype));
  }

  static constexpr size_t RoundUp(size_t bytes, size_t to) noexcept {
    return (bytes + to - 1) / to * to;
  }

  void Place() {
    size_t at = value_bytes();
    size_t align = SizeOf(value_dtype_);
    for (RowSlot& slot : slots_) {
      const size_t element = SizeOf(slot.spec.dtype);
      at = RoundUp(at, element);
      slot.offset = at;
      at += slot.bytes();
      align = align < element ? element : align;
    }
    if (key_type_ == KeyType::kString) {
      key_offset_ = at = RoundUp(at, 8);
      at += 8;
      align = 8;
    }
    stride_ = RoundUp(at, align);
    initial_.assign(stride_, 0);
    for (const RowSlot& slot : slots_) {
      for (size_t i = 0; i < slot.spec.width; ++i) {
        StoreReal(slot.spec.dtype, slot.spec.initial,
                  initial_.data() + slot.offset + i * SizeOf(slot.spec.dtype));
      }
    }
  }

  KeyType key_type_;
  DType value_dtype_;
  size_t dim_;
  std::vector<RowSlot> slots_;
  uint64_t generation_ = 0;
  size_t key_offset_ = 0;
  size_t stride_ = 0;
  std::vector<char> initial_;  ///< a row with every slot at its initial value
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_ROW_LAYOUT_H_
