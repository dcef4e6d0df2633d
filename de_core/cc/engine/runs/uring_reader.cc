// Reads by io_uring, with system calls alone: liburing need not be installed.
#include "de_core/cc/engine/runs/run_reader.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

// Linux 5.7 and its headers have all operations that are used here.
#if defined(IORING_FEAT_FAST_POLL)

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "de_core/cc/engine/base/guard.h"

namespace de::engine {
namespace {

int Setup(uint32_t entries, io_uring_params* params) {
  return static_cast<int>(syscall(__NR_io_uring_setup, entries, params));
}

/// Memory that the kernel shares. Unmaps it.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() {
    if (data_ != nullptr) munmap(data_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool Map(int descriptor, size_t bytes, uint64_t offset) noexcept {
    void* const at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
                          descriptor, static_cast<off_t>(offset));
    if (at == MAP_FAILED) return false;
    data_ = static_cast<char*>(at);
    bytes_ = bytes;
    return true;
  }
  template <typename T>
  T* At(size_t offset) const noexcept {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  char* data_ = nullptr;
  size_t bytes_ = 0;
};

class UringReader final : public RunReader {
 public:
  explicit UringReader(uint32_t depth) : slots_(std::max<uint32_t>(depth, 1)) {}
  ~UringReader() override {
    if (ring_ >= 0) close(ring_);
  }

  bool Start() {
    io_uring_params params{};
#if defined(IORING_SETUP_COOP_TASKRUN)
    params.flags = IORING_SETUP_COOP_TASKRUN;
#endif
    const auto depth = static_cast<uint32_t>(slots_.size());
    ring_ = Setup(depth, &params);
    if (ring_ < 0 && errno == EINVAL) {
      params = {};
      ring_ = Setup(depth, &params);
    }
    if (ring_ < 0) return false;
    constexpr uint32_t kNeeded =
        IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_FAST_POLL;
    if ((params.features & kNeeded) != kNeeded) return false;
    const size_t requests = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    const size_t answers = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
    if (!rings_.Map(ring_, std::max(requests, answers), IORING_OFF_SQ_RING)) return false;
    if (!requests_.Map(ring_, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) {
      return false;
    }
    sq_tail_ = rings_.At<uint32_t>(params.sq_off.tail);
    sq_mask_ = *rings_.At<uint32_t>(params.sq_off.ring_mask);
    sq_array_ = rings_.At<uint32_t>(params.sq_off.array);
    cq_head_ = rings_.At<uint32_t>(params.cq_off.head);
    cq_tail_ = rings_.At<uint32_t>(params.cq_off.tail);
    cq_mask_ = *rings_.At<uint32_t>(params.cq_off.ring_mask);
    answers_ = rings_.At<io_uring_cqe>(params.cq_off.cqes);
    free_.reserve(slots_.size());
    for (uint32_t i = 0; i < slots_.size(); ++i) free_.push_back(i);
    return true;
  }

  Status Run(RunReads* reads) override {
    Status status;
    const auto run = [&](const auto& step) {
      Status done = Guarded(step);
      if (status.ok()) status = std::move(done);
    };
    if (broken_) return Status::Internal("io_uring failed earlier");
    for (;;) {
      bool more = true;
      while (more && status.ok() && !free_.empty()) {
        run([&]() -> Status {
          more = reads->Next(&slots_[free_.back()].read);
          if (more) Prepare();
          return Status::Ok();
        });
      }
      if (free_.size() == slots_.size()) return status;
      if (!Enter()) {
        // The kernel may still write into the buffers, so they are never freed.
        broken_ = true;
        new std::vector<Slot>(std::move(slots_));
        return Status::Internal(std::string("io_uring_enter failed: ") + std::strerror(errno));
      }
      for (uint32_t slot = 0; Reap(&slot);) {
        run([&] { return Finish(slots_[slot], status.ok() ? reads : nullptr); });
        free_.push_back(slot);
      }
    }
  }

  const char* name() const noexcept override { return "io_uring"; }

 private:
  struct Slot {
    RunRead read;
    DirectBuffer buffer;
    int result = 0;
  };

  /// Queues the read of the last free slot, and takes the slot.
  void Prepare() {
    const uint32_t number = free_.back();
    Slot& slot = slots_[number];
    const ReadRange range(slot.read);
    slot.buffer.Reserve(range.size);
    const uint32_t tail = *sq_tail_;
    const uint32_t at = tail & sq_mask_;
    io_uring_sqe& request = requests_.At<io_uring_sqe>(0)[at];
    std::memset(&request, 0, sizeof(request));
    request.opcode = IORING_OP_READ;
    request.fd = slot.read.run->file().descriptor();
    request.off = range.begin;
    request.addr = reinterpret_cast<uint64_t>(slot.buffer.data());
    request.len = range.size;
    request.user_data = number;
    sq_array_[at] = at;
    __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
    ++queued_;
    free_.pop_back();
  }

  /// Submits the queued reads and waits for one to finish. Returns false if the kernel refuses.
  bool Enter() noexcept {
    for (;;) {
      const long taken =
          syscall(__NR_io_uring_enter, ring_, queued_, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
      if (taken >= 0) {
        queued_ -= static_cast<uint32_t>(taken);
        return true;
      }
      if (errno == EINTR) continue;
      // The kernel is short of memory for now. Reap first if reads are running.
      return (errno == EAGAIN || errno == EBUSY) && slots_.size() - free_.size() > queued_;
    }
  }

  /// Takes a finished read, if there is one.
  bool Reap(uint32_t* slot) noexcept {
    const uint32_t head = *cq_head_;
    if (head == __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE)) return false;
    const io_uring_cqe& answer = answers_[head & cq_mask_];
    *slot = static_cast<uint32_t>(answer.user_data);
    slots_[*slot].result = answer.res;
    __atomic_store_n(cq_head_, head + 1, __ATOMIC_RELEASE);
    return true;
  }

  /// Delivers a finished read, unless `reads` is nullptr.
  static Status Finish(const Slot& slot, RunReads* reads) {
    if (reads == nullptr) return Status::Ok();
    const LocalFile& file = slot.read.run->file();
    const ReadRange range(slot.read);
    if (slot.result < 0 && slot.result != -EINTR && slot.result != -EAGAIN) {
      return FileError(file.path(), "read", -slot.result);
    }
    // A short read is rare: read again, and wait.
    if (slot.result < static_cast<int>(range.needed)) {
      DE_RETURN_IF_ERROR(
          file.ReadAligned(range.begin, range.size, range.needed, slot.buffer.data()));
    }
    return reads->Done(slot.read, slot.buffer.data() + range.skip);
  }

  std::vector<Slot> slots_;     // (depth)
  std::vector<uint32_t> free_;  ///< numbers of the slots without a read
  int ring_ = -1;
  Mapping rings_, requests_;
  uint32_t *sq_tail_ = nullptr, *sq_array_ = nullptr, *cq_head_ = nullptr, *cq_tail_ = nullptr;
  uint32_t sq_mask_ = 0, cq_mask_ = 0;
  io_uring_cqe* answers_ = nullptr;
  uint32_t queued_ = 0;  ///< reads that were prepared and not submitted
  bool broken_ = false;
};

}  // namespace

std::unique_ptr<RunReader> NewUringReader(uint32_t depth) {
  auto reader = std::make_unique<UringReader>(depth);
  if (!reader->Start()) return nullptr;
  return reader;
}

}  // namespace de::engine

#else

namespace de::engine {

std::unique_ptr<RunReader> NewUringReader(uint32_t) { return nullptr; }

}  // namespace de::engine

#endif
