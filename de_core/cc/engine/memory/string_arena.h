// Byte strings of one shard: bump-allocated cells of 8-byte granularity, with a free list per size.
#ifndef DE_CORE_ENGINE_STRING_ARENA_H_
#define DE_CORE_ENGINE_STRING_ARENA_H_

#include <cstdint>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "de_core/cc/engine/memory/page_memory.h"

namespace de::engine {

class StringArena {
 public:
  /// The number that a row stores for a string: its cell's address, or 0 for an empty string. Valid
  /// until Free.
  using Ref = uint64_t;

  /// Reads or writes a reference in a row, at any alignment.
  static Ref LoadRef(const char* at) noexcept {
    Ref ref;
    std::memcpy(&ref, at, sizeof(ref));
    return ref;
  }
  static void StoreRef(char* at, Ref ref) noexcept { std::memcpy(at, &ref, sizeof(ref)); }

  static std::string_view Get(Ref ref) noexcept {
    if (ref == 0) return {};
    const char* cell = reinterpret_cast<const char*>(static_cast<uintptr_t>(ref));
    uint64_t length;
    std::memcpy(&length, cell, sizeof(length));
    return {cell + sizeof(length), length};
  }

  Ref Put(std::string_view bytes) {
    if (bytes.empty()) return 0;
    char* cell = Allocate(CellSize(bytes.size()));
    live_bytes_ += CellSize(bytes.size());
    const uint64_t length = bytes.size();
    std::memcpy(cell, &length, sizeof(length));
    std::memcpy(cell + sizeof(length), bytes.data(), bytes.size());
    return static_cast<Ref>(reinterpret_cast<uintptr_t>(cell));
  }

  void Free(Ref ref) noexcept {
    if (ref == 0) return;
    const size_t size = CellSize(Get(ref).size());
    live_bytes_ -= size;
    try {
      free_[size].push_back(reinterpret_cast<char*>(static_cast<uintptr_t>(ref)));
    } catch (const std::bad_alloc&) {
      // There is no memory to record the free cell. It is lost until the arena is destroyed.
    }
  }

  /// Bytes that a string of `length` takes.
  static constexpr size_t CellSize(size_t length) noexcept { return (length + 8 + 7) / 8 * 8; }

  /// Bytes of memory taken from the system.
  size_t bytes() const noexcept { return held_bytes_; }
  size_t live_bytes() const noexcept { return live_bytes_; }

 private:
  static constexpr size_t kBlock = size_t{64} << 10;

  char* Allocate(size_t size) {
    const auto cells = free_.find(size);
    if (cells != free_.end() && !cells->second.empty()) {
      char* cell = cells->second.back();
      cells->second.pop_back();
      return cell;
    }
    if (left_ < size) {
      const size_t grown = blocks_.empty() ? 4096 : kBlock;
      const size_t block = size > grown / 4 ? size : grown;
      blocks_.emplace_back(block);
      held_bytes_ += block;
      if (block == size) return blocks_.back().data();
      next_ = blocks_.back().data();
      left_ = block;
    }
    char* cell = next_;
    next_ += size;
    left_ -= size;
    return cell;
  }

  std::vector<PageMemory> blocks_;
  std::unordered_map<size_t, std::vector<char*>> free_;
  char* next_ = nullptr;
  size_t left_ = 0;
  size_t live_bytes_ = 0;
  size_t held_bytes_ = 0;
};

}  // namespace de::engine

#endif  // DE_CORE_ENGINE_STRING_ARENA_H_
