#include "de_core/cc/engine/tier/block_reader.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <utility>

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#endif
#if defined(__NR_io_uring_setup) && defined(IORING_FEAT_RW_CUR_POS)
#define DE_HAS_IO_URING 1
#else
#define DE_HAS_IO_URING 0
#endif

namespace de::engine {
namespace {

/// Reads what is left of a read, after its first `done` bytes.
void ReadRest(BlockRead* read, size_t done) noexcept {
  read->error = 0;
  while (done < read->bytes) {
    const ssize_t got = pread(read->file, read->to + done, read->bytes - done,
                              static_cast<off_t>(read->offset + done));
    if (got > 0) {
      done += static_cast<size_t>(got);
    } else if (got == 0 || errno != EINTR) {
      read->error = got == 0 ? EIO : errno;
      return;
    }
  }
}

}  // namespace

#if DE_HAS_IO_URING

/// One io_uring (J. Axboe, "Efficient IO with io_uring", 2019), which one call uses at a time.
class BlockReader::Ring {
 public:
  static std::unique_ptr<Ring> Open(uint32_t depth) {
    auto ring = std::make_unique<Ring>();
    ring->free_slots_.reserve(depth);
    return ring->Start(depth) ? std::move(ring) : nullptr;
  }
  Ring() = default;
  ~Ring() {
    Unmap(submissions_, submission_bytes_);
    Unmap(completions_, completion_bytes_);
    Unmap(entries_, entry_bytes_);
    if (file_ >= 0) close(file_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  /// Returns false if the system refused the first reads. Then nothing was read.
  bool Read(BlockRead* reads, size_t count, const ReadSlots& slots, const Visit& visit) noexcept {
    size_t next = 0;
    const size_t most = std::min<size_t>(depth_, slots.count);
    free_slots_.clear();
    for (size_t i = most; i > 0; --i) free_slots_.push_back(slots.memory + (i - 1) * slots.bytes);
    uint32_t waiting = 0;  // put into the queue, but not taken by the system yet
    uint32_t running = 0;
    size_t done = 0;
    while (done < count) {
      while (next < count && running + waiting < most) {
        reads[next].to = free_slots_.back();
        free_slots_.pop_back();
        Put(reads[next], next);
        ++next;
        ++waiting;
      }
      const long taken = syscall(__NR_io_uring_enter, file_, waiting, 1U, IORING_ENTER_GETEVENTS,
                                 nullptr, size_t{0});
      if (taken >= 0) {
        waiting -= static_cast<uint32_t>(taken);
        running += static_cast<uint32_t>(taken);
      } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY && done == 0 && running == 0) {
        return false;
      }
      const size_t ended = Take(reads, visit);
      running -= static_cast<uint32_t>(ended);
      done += ended;
    }
    return true;
  }

 private:
  static void* Map(int file, size_t bytes, uint64_t offset) noexcept {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file,
                          static_cast<off_t>(offset));
    return at == MAP_FAILED ? nullptr : at;
  }
  static void Unmap(void* at, size_t bytes) noexcept {
    if (at != nullptr) munmap(at, bytes);
  }
  static uint32_t* At(void* base, uint32_t offset) noexcept {
    return reinterpret_cast<uint32_t*>(static_cast<char*>(base) + offset);
  }

  bool Start(uint32_t depth) noexcept {
    io_uring_params settings{};
    file_ = static_cast<int>(syscall(__NR_io_uring_setup, depth, &settings));
    // IORING_OP_READ is as old as this feature.
    if (file_ < 0 || (settings.features & IORING_FEAT_RW_CUR_POS) == 0) return false;
    depth_ = std::min(depth, settings.sq_entries);
    submission_bytes_ = settings.sq_off.array + settings.sq_entries * sizeof(uint32_t);
    completion_bytes_ = settings.cq_off.cqes + settings.cq_entries * sizeof(io_uring_cqe);
    entry_bytes_ = settings.sq_entries * sizeof(io_uring_sqe);
    submissions_ = Map(file_, submission_bytes_, IORING_OFF_SQ_RING);
    completions_ = Map(file_, completion_bytes_, IORING_OFF_CQ_RING);
    entries_ = Map(file_, entry_bytes_, IORING_OFF_SQES);
    if (submissions_ == nullptr || completions_ == nullptr || entries_ == nullptr) return false;
    tail_ = At(submissions_, settings.sq_off.tail);
    mask_ = *At(submissions_, settings.sq_off.ring_mask);
    numbers_ = At(submissions_, settings.sq_off.array);
    ended_head_ = At(completions_, settings.cq_off.head);
    ended_tail_ = At(completions_, settings.cq_off.tail);
    ended_mask_ = *At(completions_, settings.cq_off.ring_mask);
    ended_ = reinterpret_cast<io_uring_cqe*>(At(completions_, settings.cq_off.cqes));
    return true;
  }

  void Put(const BlockRead& read, uint64_t number) noexcept {
    const uint32_t tail = *tail_;
    io_uring_sqe& entry = static_cast<io_uring_sqe*>(entries_)[tail & mask_];
    entry = io_uring_sqe{};
    entry.opcode = IORING_OP_READ;
    entry.fd = read.file;
    entry.off = read.offset;
    entry.addr = reinterpret_cast<uint64_t>(read.to);
    entry.len = static_cast<uint32_t>(read.bytes);
    entry.user_data = number;
    numbers_[tail & mask_] = tail & mask_;
    __atomic_store_n(tail_, tail + 1, __ATOMIC_RELEASE);
  }

  /// Takes ended reads from the queue and returns their number. Takes few at once, so that new
  /// reads soon follow them.
  size_t Take(BlockRead* reads, const Visit& visit) noexcept {
    constexpr uint32_t kMostTaken = 16;
    const uint32_t begin = *ended_head_;
    const uint32_t ready = __atomic_load_n(ended_tail_, __ATOMIC_ACQUIRE) - begin;
    const uint32_t end = begin + std::min(ready, kMostTaken);
    for (uint32_t at = begin; at != end; ++at) {
      const io_uring_cqe& ended = ended_[at & ended_mask_];
      BlockRead& read = reads[ended.user_data];
      // Reads the rest of a short read, and once more what failed.
      ReadRest(&read, ended.res < 0 ? 0 : static_cast<size_t>(ended.res));
      visit(ended.user_data);
      free_slots_.push_back(read.to);
    }
    __atomic_store_n(ended_head_, end, __ATOMIC_RELEASE);
    return end - begin;
  }

  int file_ = -1;
  uint32_t depth_ = 0;
  void *submissions_ = nullptr, *completions_ = nullptr, *entries_ = nullptr;
  size_t submission_bytes_ = 0, completion_bytes_ = 0, entry_bytes_ = 0;
  uint32_t *tail_ = nullptr, *numbers_ = nullptr, *ended_head_ = nullptr, *ended_tail_ = nullptr;
  uint32_t mask_ = 0, ended_mask_ = 0;
  io_uring_cqe* ended_ = nullptr;
  std::vector<char*> free_slots_;  // (depth_) at most
};

#else

class BlockReader::Ring {
 public:
  static std::unique_ptr<Ring> Open(uint32_t) { return nullptr; }
  bool Read(BlockRead*, size_t, const ReadSlots&, const Visit&) noexcept { return false; }
};

#endif

BlockReader::BlockReader(uint32_t depth, bool use_ring) : depth_(std::max(1U, depth)) {
  if (!use_ring) return;
  std::unique_ptr<Ring> first = Ring::Open(depth_);
  has_ring_ = first != nullptr;
  if (has_ring_) rings_.Give(std::move(first));
}

BlockReader::~BlockReader() = default;

bool BlockReader::ReadByRing(BlockRead* reads, size_t count, const ReadSlots& slots,
                             const Visit& visit) noexcept {
  if (!has_ring_) return false;
  std::unique_ptr<Ring> ring = rings_.Take();
  try {
    if (ring == nullptr) ring = Ring::Open(depth_);
  } catch (const std::bad_alloc&) {  // `pread` needs no memory
  }
  if (ring == nullptr || !ring->Read(reads, count, slots, visit)) return false;
  rings_.Give(std::move(ring));
  return true;
}

void BlockReader::ReadEach(BlockRead* reads, size_t count, const ReadSlots& slots,
                           Executor* executor, const Visit& visit) noexcept {
  if (ReadByRing(reads, count, slots, visit)) return;
  for (size_t begin = 0; begin < count; begin += slots.count) {
    const size_t some = std::min(count - begin, slots.count);
    const auto read = [&](size_t slot) {
      reads[begin + slot].to = slots.memory + slot * slots.bytes;
      ReadRest(&reads[begin + slot], 0);
    };
    try {
      RunTasks(ThreadsFor(some > 1, executor), some, read);
    } catch (const std::bad_alloc&) {
      RunTasks(nullptr, some, read);
    }
    for (size_t i = begin; i < begin + some; ++i) visit(i);
  }
}

}  // namespace de::engine
