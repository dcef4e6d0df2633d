#include "de_core/cc/engine/save/kept_rows.h"

#include <cstring>
#include <type_traits>

#include "de_core/cc/engine/rows/scalar_types.h"

namespace de::engine {
namespace {

double NumberAt(const char* at, DType dtype) {
  if (dtype == DType::kInt64) {  // a metadata column, which readers may be writing at the same time
    return static_cast<double>(
        __atomic_load_n(reinterpret_cast<const int64_t*>(at), __ATOMIC_RELAXED));
  }
  if (dtype == DType::kBool) return static_cast<double>(static_cast<uint8_t>(*at));
  const auto load = [at](auto tag) {
    using T = typename decltype(tag)::type;
    T value;
    std::memcpy(&value, at, sizeof(value));
    if constexpr (std::is_integral_v<T>) {
      return static_cast<double>(value);
    } else {
      return static_cast<double>(Scalar<T>::Load(value));
    }
  };
  return IsFloating(dtype) ? VisitFloating<double>(dtype, 0, load)
                           : VisitInteger<double>(dtype, 0, load);
}

}  // namespace

Status KeptRows::Plan(const RowLayout& layout, const std::vector<KeepRule>& rules) {
  for (const KeepRule& rule : rules) {
    const RowSlot* slot = layout.FindSlot(rule.owner, rule.slot);
    if (slot == nullptr) {
      return Status::NotFound("keep_slots must name slots of the table. Received: slot=" +
                              rule.slot + " of owner=" + rule.owner);
    }
    bounds_.push_back({slot->offset, slot->spec.dtype, rule.at_least});
  }
  return Status::Ok();
}

bool KeptRows::Keeps(const char* row) const {
  for (const Bound& bound : bounds_) {
    if (!(NumberAt(row + bound.offset, bound.dtype) >= bound.at_least)) return false;
  }
  return true;
}

}  // namespace de::engine
