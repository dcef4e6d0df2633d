// Verbs that write rows.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "de_core/cc/engine/rows/scalar_types.h"
#include "de_core/cc/engine/rows/slot_copy.h"
#include "de_core/cc/engine/table/shard_update.h"
#include "de_core/cc/engine/table/table_gate.h"
#include "de_core/cc/engine/table/table_spread.h"

namespace de::engine {
namespace {

/// Computes row += to - from, or row += to if `from` is nullptr, for `dim` elements.
using AddValues = void (*)(char* row, const char* to, const char* from, size_t dim) noexcept;

template <typename T>
void AddElements(char* row, const char* to, const char* from, size_t dim) noexcept {
  for (size_t i = 0; i < dim; ++i) {
    T value, term, less{};
    std::memcpy(&value, row + i * sizeof(T), sizeof(T));
    std::memcpy(&term, to + i * sizeof(T), sizeof(T));
    if (from != nullptr) std::memcpy(&less, from + i * sizeof(T), sizeof(T));
    if constexpr (std::is_integral_v<T>) {
      using U = std::make_unsigned_t<T>;  // overflow wraps as in TensorFlow
      value = static_cast<T>(static_cast<U>(value) + static_cast<U>(term) - static_cast<U>(less));
    } else {
      using S = Scalar<T>;
      value = S::Store(S::Load(value) + (S::Load(term) - S::Load(less)));
    }
    std::memcpy(row + i * sizeof(T), &value, sizeof(T));
  }
}

/// Returns the function that adds values of `dtype`, or nullptr for types that cannot be added.
AddValues AdditionOf(DType dtype) {
  const auto of = [](auto tag) -> AddValues { return &AddElements<typename decltype(tag)::type>; };
  return IsFloating(dtype) ? VisitFloating<AddValues>(dtype, nullptr, of)
                           : VisitInteger<AddValues>(dtype, nullptr, of);
}

}  // namespace

/// Replaces the strings of a row's value: all of them, or none if memory runs out. In that case, if
/// the key was `inserted` by this verb, erases it again and throws.
void Table::WriteStrings(Shard& shard, const IndexKey& key, char* row, size_t position,
                         const Values& values, bool inserted) const {
  try {
    shard.ReplaceStrings(row, values.strings + position * options_.dim);
  } catch (const std::bad_alloc&) {
    if (inserted) shard.Erase(key);
    throw;
  }
}

Status Table::InsertOrAssign(const Keys& keys, const Values& values, Executor* executor) {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  const Stamp stamp = policy_.BeginWrite();
  const TableGate gate(this, stamp, /*admits_all=*/true);
  const WriteTouches touch(std::max(layout_.value_bytes(), policy_.end()), values.data,
                           values.data == nullptr ? 0 : layout_.value_bytes());
  const size_t bytes = layout_.value_bytes();
  const auto update = [&](const auto& plain) {
    return UpdateRows(
        keys, executor, touch, gate,
        [&](Shard& shard, const IndexKey& key, char* row, size_t position, bool inserted) {
          if (inserted) layout_.FillSlots(row, 0);
          if (values.data != nullptr) {
            CopyBytes(row, values.data + position * bytes, bytes);
          } else {
            WriteStrings(shard, key, row, position, values, inserted);
          }
          policy_.Touch(row, stamp);
        },
        Ignored{}, plain);
  };
  const bool plain = options_.key_type != KeyType::kString && values.data != nullptr &&
                     !policy_.tracks() && gate.active() == nullptr && bytes <= kMostPlainBytes;
  if (!plain) return update(PlainRows<void>{});
  return WithRowWidth(bytes, layout_.stride(), [&](const auto& width) {
    return update(PlainRows<std::decay_t<decltype(width)>>{values.data, width});
  });
}

Status Table::AccumOrAssign(const Keys& keys, const void* values, const void* old_values,
                            Executor* executor) {
  const AddValues add = AdditionOf(options_.value_dtype);
  if (add == nullptr) {
    return Status::InvalidArgument("accum needs values of a numeric type. Received: value_dtype=" +
                                   std::string(NameOf(options_.value_dtype)));
  }
  const std::shared_lock<ShardLock> hold(layout_lock_);
  const size_t bytes = layout_.value_bytes();
  const Stamp stamp = policy_.BeginWrite();
  const TableGate gate(this, stamp, /*admits_all=*/true);
  const WriteTouches touch(std::max(bytes, policy_.end()), static_cast<const char*>(values), bytes);
  return UpdateRows(
      keys, executor, touch, gate,
      [&](Shard&, const IndexKey&, char* row, size_t position, bool inserted) {
        const size_t at = position * bytes;
        const char* value = static_cast<const char*>(values) + at;
        if (inserted) {
          layout_.FillSlots(row, 0);
          CopyBytes(row, value, bytes);
        } else {
          add(row, value,
              old_values == nullptr ? nullptr : static_cast<const char*>(old_values) + at,
              options_.dim);
        }
        policy_.Touch(row, stamp);
      });
}

Status Table::FindOrInsert(const Keys& keys, const ValuesOut& out, bool* found,
                           Executor* executor) {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  const Stamp stamp = policy_.BeginWrite();
  const TableGate gate(this, stamp, /*admits_all=*/false);
  const size_t touched = std::max(layout_.value_bytes(), policy_.end());
  const auto tell = [&](size_t position, bool exists) {
    if (found != nullptr) found[position] = exists;
  };
  return UpdateRows(
      keys, executor, touched, gate,
      [&](Shard& shard, const IndexKey& key, char* row, size_t position, bool inserted) {
        if (inserted) WriteInitial(shard, key, row);
        policy_.Touch(row, stamp);
        tell(position, !inserted);
        ReadRow(row, position, out);
      },
      [&](const IndexKey& key, size_t position) {
        tell(position, false);
        ReadInitial(key, position, out);
      });
}

void Table::WriteInitial(Shard& shard, const IndexKey& key, char* row) const {
  layout_.FillSlots(row, 0);
  if (options_.value_dtype != DType::kString) return initializer_->Fill(key.word, row);
  for (size_t i = 0; i < options_.dim; ++i) {  // free the strings of an expired row
    char* at = row + i * sizeof(StringArena::Ref);
    shard.arena().Free(StringArena::LoadRef(at));
    StringArena::StoreRef(at, 0);
  }
}

Status Table::LoadRows(const RowLayout& from, const Keys& keys, const Values& rows,
                       Executor* executor) {
  if (from.key_type() != options_.key_type || from.value_dtype() != options_.value_dtype ||
      from.dim() != options_.dim) {
    return Status::InvalidArgument("rows must be of the table's types and dim. Received: " +
                                   std::string(NameOf(from.key_type())) + " keys, " +
                                   std::string(NameOf(from.value_dtype())) +
                                   " values of dim=" + std::to_string(from.dim()) +
                                   " for a table of " + std::string(NameOf(options_.key_type)) +
                                   " keys, " + std::string(NameOf(options_.value_dtype)) +
                                   " values of dim=" + std::to_string(options_.dim));
  }
  return Guarded([&]() -> Status {
    const std::shared_lock<ShardLock> hold(layout_lock_);
    const std::vector<SlotCopy> shared = SharedSlots(from, layout_);
    const size_t stride = from.stride();
    const Stamp stamp = policy_.BeginWrite();
    const TableGate gate(this, stamp, /*admits_all=*/true);
    return UpdateRows(
        keys, executor, layout_.stride(), gate,
        [&](Shard& shard, const IndexKey& key, char* row, size_t position, bool inserted) {
          const char* source = rows.data + position * stride;
          if (rows.strings != nullptr) {
            WriteStrings(shard, key, row, position, rows, inserted);
          } else {
            CopyBytes(row, source, layout_.value_bytes());
          }
          layout_.FillSlots(row, 0);
          policy_.Touch(row, stamp);  // the incoming rows have no metadata
          for (const SlotCopy& slot : shared) slot.Run(source, row);
        });
  });
}

Status Table::Erase(const Keys& keys, Executor* executor) {
  return EraseKeys(keys, /*moved=*/false, executor);
}

Status Table::MoveOut(const Keys& keys, Executor* executor) {
  return EraseKeys(keys, /*moved=*/true, executor);
}

Status Table::EraseKeys(const Keys& keys, bool moved, Executor* executor) {
  const std::shared_lock<ShardLock> hold(layout_lock_);
  return ForEachShard(keys, executor, [&](const OneShardsKeys& batch) {
    Shard& shard = *batch.shards[batch.shard];
    const ShardKeys& group = batch.group;
    for (size_t begin = 0; begin < group.count; begin += kKeysPerLock) {
      const size_t end = std::min(group.count, begin + kKeysPerLock);
      if (begin > 0) shard.lock.LetReadersIn();
      const std::lock_guard<ShardLock> guard(shard.lock);
      for (size_t j = begin; j < end; ++j) {
        if (j + kPrefetchAhead < end) shard.PrefetchLine(Mix64(group.words[j + kPrefetchAhead]));
        const IndexKey key{group.words[j], Mix64(group.words[j]),
                           keys.strings == nullptr ? nullptr : keys.strings + group.positions[j]};
        shard.Erase(key, moved);
        if (!moved) policy_.Forget(key);
      }
    }
  });
}

}  // namespace de::engine
