// Lends a table's working memory to one verb.
#ifndef DE_CORE_ENGINE_TABLE_SCRATCH_H_
#define DE_CORE_ENGINE_TABLE_SCRATCH_H_

#include <memory>
#include <mutex>
#include <shared_mutex>
#include <utility>

#include "de_core/cc/engine/table/table.h"

namespace de::engine {

/// Takes a Scratch from the table, or creates one if all are in use. The destructor hands it back.
class Table::ScratchLease {
 public:
  explicit ScratchLease(const Table& table) : table_(table) {
    const std::lock_guard<std::mutex> guard(table.scratch_mutex_);
    if (!table.scratch_.empty()) {
      scratch_ = std::move(table.scratch_.back());
      table.scratch_.pop_back();
    } else {
      scratch_ = std::make_unique<Scratch>();
    }
  }
  ~ScratchLease() {
    const std::lock_guard<std::mutex> guard(table_.scratch_mutex_);
    // Keep at most as many spare objects as verbs have run in parallel. If push_back fails, only
    // this spare object is lost.
    if (table_.scratch_.size() < table_.scratch_.capacity() || table_.scratch_.size() < 8) {
      try {
        table_.scratch_.push_back(std::move(scratch_));
      } catch (const std::bad_alloc&) {
        scratch_.reset();
      }
    }
  }
  ScratchLease(const ScratchLease&) = delete;
  ScratchLease& operator=(const ScratchLease&) = delete;

  Scratch* operator->() const noexcept { return scratch_.get(); }
  Scratch* get() const noexcept { return scratch_.get(); }

 private:
  const Table& table_;
  std::unique_ptr<Scratch> scratch_;
};

class Table::Scratch::SumLease {
 public:
  explicit SumLease(Scratch* scratch) noexcept : scratch_(scratch) {
    uint32_t lent = scratch->lent.load(std::memory_order_relaxed);
    do {
      at_ = LowestBit(~lent);
    } while (!scratch->lent.compare_exchange_weak(lent, lent | 1U << at_));
  }
  ~SumLease() { scratch_->lent.fetch_and(~(1U << at_)); }
  SumLease(const SumLease&) = delete;
  SumLease& operator=(const SumLease&) = delete;
  GradientSum& operator*() const noexcept { return scratch_->gradients[at_]; }

 private:
  Scratch* scratch_;
  uint32_t at_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_TABLE_SCRATCH_H_
