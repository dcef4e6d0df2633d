// Applies a table's policy during one write verb: UpdateShard asks it about each key.
#ifndef DE_CORE_ENGINE_TABLE_GATE_H_
#define DE_CORE_ENGINE_TABLE_GATE_H_

#include "de_core/cc/engine/batch/partition.h"
#include "de_core/cc/engine/table/table.h"

namespace de::engine {

/// Returns the bytes that a shard's rows, index and strings use.
inline uint64_t WeightOf(const Shard& shard) noexcept {
  return shard.size() * shard.slab().stride() + shard.index_bytes() + shard.arena().live_bytes();
}

class TableGate {
 public:
  /// With `admits_all`, every key is admitted: the caller of the verb gives the rows.
  TableGate(Table* table, const Stamp& stamp, bool admits_all) noexcept
      : table_(table), stamp_(stamp), admits_all_(admits_all || table->policy_.admits_all()) {}

  /// Returns the gate, or nullptr if the policy affects no write.
  const TableGate* active() const noexcept {
    const RowPolicy& policy = table_->policy_;
    return policy.expires() || policy.bounded() || !admits_all_ ? this : nullptr;
  }

  bool Expired(const char* row) const noexcept { return table_->policy_.Expired(row, stamp_); }
  bool Admits(const IndexKey& key) const {
    return admits_all_ || table_->policy_.Admit(key, stamp_);
  }
  void MakeRoom() const {
    if (table_->policy_.bounded()) table_->MakeRoom();
  }

  /// Records the bytes of the shard of `group`, for the bound max_bytes. Requires the shard's lock.
  void Weigh(const Shard& shard, const ShardKeys& group) const noexcept {
    if (table_->policy_.options().max_bytes == 0 || group.count == 0) return;
    table_->policy_.weights[ShardOfHash(Mix64(group.words[0]))].store(WeightOf(shard),
                                                                      std::memory_order_relaxed);
  }

 private:
  Table* table_;
  Stamp stamp_;
  bool admits_all_;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_GATE_H_
